"""``# advisor: ignore[ADV101] reason`` on the line of a finding, or alone on the line above; patterns of pyproject.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from advisor.check.settings import Settings
from advisor.check.sources import matches

_COMMENT = re.compile(r"#\s*advisor:\s*ignore(?:\[([\w\s,]*)\])?", re.IGNORECASE)
_WHOLE_FILE = re.compile(r"#\s*advisor:\s*ignore-file(?:\[([\w\s,]*)\])?", re.IGNORECASE)


class Suppressions:
    """What the files and settings ask not to be told."""

    def __init__(self, texts: Mapping[str, str], settings: Settings) -> None:
        self.texts = texts
        self.settings = settings
        self.lines: dict[str, list[str]] = {}

    def hides(self, path: str, line: int, code: str) -> bool:
        """Whether a finding is suppressed. A comment without codes hides every code."""
        if self.configured(path, code):
            return True
        text = self.texts.get(path, "")
        if "advisor:" not in text:
            return False
        if any(_names(match.group(1), code) for match in _WHOLE_FILE.finditer(text)):
            return True
        lines = self.lines.setdefault(path, text.split("\n"))
        here = lines[line - 1] if 0 < line <= len(lines) else ""
        above = lines[line - 2] if 1 < line <= len(lines) + 1 else ""
        own = above.strip().lstrip('"').startswith("#")
        return self.asks(here, code) or (own and self.asks(above, code))

    @staticmethod
    def asks(line: str, code: str) -> bool:
        """Whether a line's comment hides a code."""
        match = _COMMENT.search(line)
        return match is not None and not _WHOLE_FILE.search(line) and _names(match.group(1), code)

    def configured(self, path: str, code: str) -> bool:
        """Whether per-file-ignores name it."""
        table: Mapping[str, Sequence[str] | frozenset[str]] = self.settings.per_file_ignores
        return any(code in codes and matches(path, (pattern,), self.settings.root) for pattern, codes in table.items())


def _names(listed: str | None, code: str) -> bool:
    if listed is None:
        return True
    return any(part and code.startswith(part.upper()) for part in re.split(r"[\s,]+", listed))
