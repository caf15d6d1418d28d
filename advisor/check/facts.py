"""What one file says. Readers make these; `combine` joins them; nothing here looks at a second file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.check.values import Called, Node


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a script. ``order`` counts in the order of running inside its ``flow``; calls of different flows have
    none. ``maybe`` says that it stands in a branch or loop. ``function`` names the function around it, "" for the module,
    ``owner`` the class whose method that is. ``kept`` False: a statement of its own, so what it returns is gone at once.
    """

    called: Called
    node: Node
    maybe: bool
    flow: int
    order: int
    function: str
    owner: str = ""
    kept: bool = True

    @property
    def last(self) -> str:
        """The last part of the name that is called."""
        return self.called.last

    @property
    def name(self) -> str:
        """The dotted name that is called; ``?.`` stands for an object that is not known."""
        return self.called.name

    def meets(self, other: Call) -> bool:
        """Whether one run may well make both calls: one flow, methods of one class, or one of them the module's own.

        Two functions that nothing joins (a script that trains or serves) need not run together.
        """
        joined = self.flow == other.flow or 0 in (self.flow, other.flow)
        return joined or (self.owner != "" and self.owner == other.owner)

    def get(self, *names: str) -> Node | None:
        """The first of these arguments that is given by name."""
        for name in names:
            if name in self.called.kwargs:
                return self.called.kwargs[name]
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptFacts:
    """A Python script or notebook. ``given`` names parameters of each flow's function; ``options`` the arguments that its
    parsers define; ``dataclasses`` the classes that its HfArgumentParser fills; ``environment`` what it sets in os.environ.
    """

    path: str
    calls: tuple[Call, ...] = ()
    given: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, Node] = field(default_factory=dict)
    dataclasses: tuple[str, ...] = ()
    environment: Mapping[str, Node] = field(default_factory=dict)
    imports: frozenset[str] = frozenset()
    literals: tuple[Node, ...] = ()
    bases: Mapping[str, str] = field(default_factory=dict)  # class of this file to the first class that it extends

    def named(self, *lasts: str) -> list[Call]:
        """Calls whose name ends in one of these."""
        return [call for call in self.calls if call.last in lasts]

    def calls_any(self, *lasts: str) -> bool:
        """Whether such a call is there."""
        return any(call.last in lasts for call in self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One line of a shell script or notebook that starts Python.

    ``launcher`` is python, torchrun, accelerate, deepspeed or srun (with its own ranks); ``flags`` are the launcher's,
    ``options`` the script's; a flag without a value is True. ``shell`` is the environment that the file sets above it.
    """

    path: str
    node: Node
    launcher: str
    flags: Mapping[str, Node]
    script: Node | None
    options: Mapping[str, Node]
    arguments: tuple[Node, ...] = ()
    environment: Mapping[str, Node] = field(default_factory=dict)
    slurm: Mapping[str, Node] = field(default_factory=dict)
    module: bool = False
    folder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellFacts:
    """A shell or Slurm script: the lines that start Python, containers, and what it exports."""

    path: str
    launches: tuple[Launch, ...] = ()
    containers: tuple[Mapping[str, Node], ...] = ()
    environment: Mapping[str, Node] = field(default_factory=dict)
    slurm: Mapping[str, Node] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFacts:
    """A JSON or YAML file. ``kind`` is deepspeed, accelerate, arguments, or other."""

    path: str
    root: Node
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A requirement: the package's canonical name and its version specifier as text."""

    package: str
    specifier: str
    node: Node
