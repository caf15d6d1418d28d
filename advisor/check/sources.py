"""Which files are read, and what each is: the walk over the given paths, with bounds on number and size."""

from __future__ import annotations

import fnmatch
import io
import os
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from advisor.check.facts import ConfigFacts, Pin, ScriptFacts, ShellFacts
from advisor.check.readers import config, notebook, pins, python, shell
from advisor.check.settings import Settings

MAX_BYTES = 1_000_000  # larger files are data, not something that a person configures a run with
MAX_NOTEBOOK = 5_000_000  # a notebook carries its pictures
MAX_LINES = 100_000  # shell scripts and requirements are written by hand, and each of their lines costs time
MAX_FILES = 20_000
# Folders that hold other people's code, or what tools write; so do hidden ones.
_SKIPPED = frozenset(
    {"venv", "node_modules", "site-packages", "dist-packages", "__pycache__", "__pypackages__", "_build", "build", "dist",
     "wandb"}
)  # fmt: skip
_SHELLS = (".sh", ".bash", ".zsh", ".slurm", ".sbatch", ".job", ".sub", ".submit")
_PINS = ("requirements*.txt", "constraints*.txt", "requirements/*.txt")


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that was not checked, and why. ``relevant``: it speaks of what rules look at, and cannot be parsed."""

    reason: str
    line: int = 0
    column: int = 0
    relevant: bool = False


@dataclass(slots=True)
class Read:
    """Everything that the files say. ``texts`` holds those that were given, for suppressions."""

    scripts: dict[str, ScriptFacts] = field(default_factory=dict)
    shells: dict[str, ShellFacts] = field(default_factory=dict)
    configs: dict[str, list[ConfigFacts]] = field(default_factory=dict)
    pins: list[Pin] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    unread: dict[str, Unread] = field(default_factory=dict)

    def take(self, path: str) -> None:
        """Read one file, whatever it is. What is no text, too large or not what its name says is kept in ``unread``."""
        text = self.text(path)
        if text is None:
            return
        name = PurePath(path).name.lower()
        ending = PurePath(name).suffix
        if ending == ".py":
            self.script(path, text, None)
        elif ending == ".ipynb":
            self.notebook(path, text)
        elif ending in (".json", ".jsonc", ".yaml", ".yml"):
            if ending != ".json" and name.startswith(("environment", "conda")):
                self.pins += pins.conda(text, path)
            self.config(path, text)
        elif ending in _SHELLS or (not ending and text.startswith("#!") and "sh" in text[:60].split("\n")[0]):
            self.shell(path, text, None)
        elif name == "pyproject.toml":
            self.pins += pins.pyproject(text, path)
        elif any(fnmatch.fnmatch(name, pattern) for pattern in _PINS) or (
            ending == ".txt" and PurePath(path).parent.name == "requirements"
        ):
            self.pins += pins.requirements(text, path)

    def text(self, path: str) -> str | None:
        reason: str | None = None
        try:
            file = Path(path)
            size = file.stat().st_size
            ending = file.suffix.lower()
            limit = MAX_NOTEBOOK if ending == ".ipynb" else MAX_LINES if ending in (*_SHELLS, ".txt") else MAX_BYTES
            if not file.is_file():
                reason = "is no regular file"
            elif size > limit:
                reason = f"has {size:,} bytes, more than the {limit:,} that are read of such a file"
            else:
                data = file.read_bytes()
                text = _cookie(data) if file.suffix.lower() == ".py" else None
                self.texts[path] = text = data.decode("utf-8") if text is None else text
                return text
        except OSError as error:
            reason = f"cannot be read ({error.strerror})"
        except ValueError:  # UnicodeDecodeError is one, and so is a NUL in the name
            reason = "is no UTF-8 text"
        self.unread[path] = Unread(reason)
        return None

    def script(self, path: str, text: str, lines: Sequence[int] | None) -> None:
        facts = python.script_facts(text.removeprefix("\ufeff") if lines is not None else text, path, lines)
        if facts is not None:
            self.scripts[path] = facts
            return
        reason, line, column = python.refusal(text)
        if lines is not None:
            line = lines[line - 1] if 0 < line <= len(lines) else 1
        self.unread[path] = Unread(reason, line, column if lines is None else 0, relevant=True)

    def notebook(self, path: str, text: str) -> None:
        if not python.RELEVANT.search(text):
            self.scripts[path] = ScriptFacts(path=path)
            return
        found = notebook.cells(text, path)
        if found is None:
            self.unread[path] = Unread("is no notebook that can be read", 1, relevant=True)
            return
        self.script(path, found.code, found.code_lines)
        self.shell(path, found.shell, found.shell_lines)

    def shell(self, path: str, text: str, lines: Sequence[int] | None) -> None:
        facts, pinned = shell.shell_facts(text, path, lines)
        self.pins += pinned
        self.shells[path] = facts

    def config(self, path: str, text: str) -> None:
        found = config.config_facts(text, path)
        if found is None:
            kind = "JSON" if path.lower().endswith((".json", ".jsonc")) else "YAML"
            self.unread[path] = Unread(f"is no {kind} that can be parsed", 1, relevant=True)
        elif found:
            self.configs[path] = found


def _cookie(data: bytes) -> str | None:
    """The text of a script that names another encoding than UTF-8 in its first lines; None for all others."""
    if b"coding" not in b"".join(data.splitlines(keepends=True)[:2])[:400]:
        return None
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return None if encoding.startswith("utf-8") else data.decode(encoding)
    except (SyntaxError, LookupError):
        return None


def files(paths: Sequence[Path], settings: Settings) -> Iterator[str]:
    """Files under the given paths in order, without those that are excluded; names as the paths were given."""
    seen: set[str] = set()
    for path in paths:
        for found in _walk(path, settings):
            if found not in seen and len(seen) < MAX_FILES:
                seen.add(found)
                yield found


def _walk(path: Path, settings: Settings) -> Iterator[str]:
    if not path.is_dir():
        yield str(path)
        return
    for folder, folders, names in os.walk(path):
        if "pyvenv.cfg" in names and Path(folder) != path:  # an environment under a name of its own
            folders.clear()
            continue
        folders[:] = [name for name in sorted(folders) if _entered(Path(folder, name), settings)]
        for name in sorted(names):
            found = str(Path(folder, name))
            if _readable(name) and not matches(found, settings.exclude, settings.root):
                yield found


def _entered(folder: Path, settings: Settings) -> bool:
    """Whether the walk goes into a folder that was not named itself."""
    if folder.name in _SKIPPED or folder.name.startswith("."):
        return False
    return not matches(str(folder), settings.exclude, settings.root)


def _readable(name: str) -> bool:
    lower = name.lower()
    ending = PurePath(lower).suffix
    known = (".py", ".ipynb", ".json", ".jsonc", ".yaml", ".yml", ".toml", ".txt", *_SHELLS)
    return ending in known or not ending


def matches(path: str, patterns: Sequence[str], root: Path) -> bool:
    """Whether a path, its name, or a folder above it fits one of the globs, which are relative to ``root``."""
    if not patterns:
        return False
    try:
        inside = Path(os.path.relpath(Path(path).absolute(), root.absolute())).as_posix()
    except ValueError:  # another drive
        inside = PurePath(path).as_posix()
    parts = inside.split("/")
    heads = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    for pattern in patterns:
        plain = pattern.rstrip("/")
        if any(fnmatch.fnmatch(head, plain) for head in heads) or any(fnmatch.fnmatch(part, plain) for part in parts):
            return True
    return False
