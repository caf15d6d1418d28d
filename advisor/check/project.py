"""Everything that was read, and how it combines: what a rule looks through."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from advisor.check.facts import Call, ConfigFacts, Launch, Pin, ScriptFacts, ShellFacts
from advisor.check.settings import Settings
from advisor.check.sources import Read
from advisor.check.values import UNKNOWN, Node, Option, integer


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero:
    """One use of DeepSpeed. ``node`` is where the stage stands; ``config`` the DeepSpeed config when one was found.

    ``through`` says who reads it: arguments (the Trainer), accelerate, initialize, plugin, or hf (HfDeepSpeedConfig).
    ``call`` is the script's call that names it; None when it comes from outside of the script. ``init`` is False where
    accelerate's zero3_init_flag is off.
    """

    stage: int | None
    node: Node
    config: Node | None
    through: str
    call: Call | None = None
    init: bool = True

    @property
    def at_load(self) -> bool:
        """Whether from_pretrained knows of it: not when zero3_init_flag is off, nor of deepspeed.initialize later on."""
        return self.init and self.through != "initialize"

    def said(self) -> str:
        """Where the stage was found, for a message: ``stage 3 in ds.json, line 4``."""
        return f"stage {self.stage} in {PurePath(self.node.path).name}, line {self.node.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The Trainer's arguments of a run, from a call or from options. ``whole``: what is not there has its default."""

    kind: str
    values: Mapping[str, Node]
    whole: bool
    node: Node
    call: Call | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """How many processes. ``count`` None: not known; ``stated`` False: the launcher takes every GPU that it finds."""

    count: int | None
    stated: bool
    node: Node | None
    words: str

    @property
    def several(self) -> bool:
        """Whether there is surely more than one."""
        return self.count is not None and self.count > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A script with the launcher that starts it and the configs that both are given. Any of them may be missing."""

    script: ScriptFacts | None
    launch: Launch | None
    accelerate: Node | None
    options: Mapping[str, Node]
    arguments: tuple[Arguments, ...]
    zeros: tuple[Zero, ...]
    fsdp: Node | None
    ranks: Ranks

    def value(self, node: Node | None) -> Node | None:
        """The node with options of the command line put in."""
        for _ in range(8):
            if node is None or not isinstance(node.value, Option):
                return node
            given = self.options.get(node.value.flag)
            found = given if given is not None else node.value.default
            node = Node(found.value, node.path, node.line, node.column, -1, -1, node.key_line, node.key_start)
        return node

    def plain(self, node: Node | None) -> object:
        """The plain value, None when it is not there."""
        found = self.value(node)
        return None if found is None else found.plain()

    def argument(self, *names: str) -> tuple[Node, Arguments] | None:
        """The first of the Trainer's arguments that is given."""
        for arguments in self.arguments:
            for name in names:
                found = self.value(arguments.values.get(name))
                if found is not None:
                    return found, arguments
        return None

    @property
    def zero3(self) -> Zero | None:
        """DeepSpeed with stage 3, when it is surely used."""
        return next((zero for zero in self.zeros if zero.stage == 3), None)

    def zero3_at(self, call: Call) -> Zero | None:
        """Stage 3 as far as it holds where ``call`` stands."""
        fitting = (zero for zero in self.zeros if zero.stage == 3)
        return next((zero for zero in fitting if zero.call is None or zero.call.meets(call)), None)

    @property
    def trains(self) -> bool:
        """Whether there is training in it, as far as can be seen."""
        if self.script is None:
            return bool(self.arguments)
        words = ("backward", "prepare", "train", "fit", "parsed")
        return (
            any(call.last.endswith(("Trainer", "TrainingArguments")) or call.last in words for call in self.script.calls)
            or bool(self.arguments)
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The facts of all files under the given paths, and the runs that they make."""

    settings: Settings
    read: Read
    given: frozenset[str]
    named: frozenset[str] = frozenset()  # those of ``given`` that the caller named one by one, and folders
    runs: tuple[Run, ...] = ()
    orphans: tuple[ConfigFacts, ...] = ()  # configs that no run uses

    @property
    def scripts(self) -> Iterator[ScriptFacts]:
        """Scripts and notebooks, in order."""
        return iter(self.read.scripts.values())

    @property
    def shells(self) -> Iterator[ShellFacts]:
        """Shell scripts and the shell lines of notebooks."""
        return iter(self.read.shells.values())

    def configs(self, kind: str) -> Iterator[ConfigFacts]:
        """Config files of one kind."""
        return (fact for facts in self.read.configs.values() for fact in facts if fact.kind == kind)

    @property
    def pins(self) -> list[Pin]:
        """What the project asks for."""
        return self.read.pins


@dataclass(slots=True)
class Finder:
    """Files that others name: among those that were given, or beside the file that names them."""

    read: Read
    root: Path
    asked: dict[str, str] = field(default_factory=dict)  # absolute path to the path as it was given

    def __post_init__(self) -> None:
        self.asked = {os.path.normpath(Path(path).absolute()): path for path in self.read.texts}

    def find(self, name: object, beside: str, folder: str | None = None, suffix_only: bool = False) -> str | None:
        """The path of the file that ``beside`` names, or None. A name that fits several files fits none."""
        if not isinstance(name, str) or not name or len(name) > 500 or "\0" in name or "\n" in name:
            return None
        start = Path(beside).absolute().parent
        bases = [start, self.root.absolute(), *list(start.parents)[:4]]
        if folder and "\0" not in folder:
            bases.insert(0, start / folder)
        if not suffix_only:
            for base in bases:
                absolute = os.path.normpath(base / name)
                if absolute in self.asked:
                    return self.asked[absolute]
            absolute = os.path.normpath(start / name)
            if Path(absolute).suffix in (".json", ".yaml", ".yml", ".py") and self._fetch(absolute):
                return absolute
        tail = "/" + os.path.normpath(name).lstrip("./")
        fitting = [path for absolute, path in self.asked.items() if absolute.endswith(tail)]
        return fitting[0] if len(fitting) == 1 else None

    def _fetch(self, absolute: str) -> bool:
        try:
            there = Path(absolute).is_file()
        except (OSError, ValueError):
            return False
        if there:
            self.read.take(absolute)
            self.asked[absolute] = absolute
        return there


def stage_of(config: Node) -> tuple[int | None, Node]:
    """The ZeRO stage of a DeepSpeed config, and where it stands; None when it cannot be told, 0 when ZeRO is off."""
    section = config.get("zero_optimization")
    if section is None:
        return 0, config
    stage = section.get("stage")
    if stage is None:
        return (0, section) if section.known else (None, section)
    return (None if stage.value is UNKNOWN else integer(stage.value)), stage
