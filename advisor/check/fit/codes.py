"""The codes of the fit half: what each finds, why it matters, what to do. Data; nothing here is computed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from advisor.check.types import Finding, Severity
from advisor.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRule:
    """One code. The words are those of a lint rule, so that ``explain`` and SARIF treat both alike."""

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    fix: str
    since: str = "any version"

    def finding(
        self, path: str, line: int, message: str, fix: str | None = None, severity: Severity | None = None
    ) -> Finding:
        """A finding of this code; ``path`` is empty and ``line`` 0 for a question that no file holds.

        ``fix`` is the rule's own unless another is given; an empty one means that there is nothing to do.
        """
        return Finding(
            code=self.code, severity=severity or self.severity, path=path, line=line, column=1 if line else 0,
            message=message, fix=(self.fix if fix is None else fix) or None, edits=(),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan's path and text, to say where in it a thing stands."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> PlanFile:
        """The file's text; what it says is for ``read_plan`` to judge. Raises InputError when it cannot be read."""
        try:
            return cls(path, path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise InputError(str(path), f"cannot be read ({reason})", expected="a plan.json") from error

    def line(self, key: str, occurrence: int = 0) -> int:
        """The line of ``"key":``, counted from 1, of its ``occurrence``-th from the top; 1 when there is none."""
        at = -1
        for _ in range(occurrence + 1):
            at = self.text.find(f'"{key}":', at + 1)
            if at < 0:
                return 1
        return self.text.count("\n", 0, at) + 1


DOES_NOT_FIT = FitRule(
    code="ADV901",
    name="does-not-fit",
    severity="error",
    what="A plan or job needs more memory than the target machine has.",
    why="The run ends out of memory, after the queue, the download and the load. The budget is the one that `advisor "
    "recommend` computes: card, host RAM and disk, held against the target's profile.",
    fix="Plan again for this machine: advisor recommend says what fits, or which change would make it fit.",
)
HEADROOM = FitRule(
    code="ADV902",
    name="too-little-headroom",
    severity="warning",
    what="A plan or job leaves less of a card or of host RAM free than --min-headroom asks for.",
    why="A prediction has an error, and longer samples, other processes or a new library version take a little more. "
    "A share kept free is what separates a run that fits from one that fits today.",
    fix="Plan again with a smaller micro batch or sequence length, gradient checkpointing or sharding, or ask for less.",
)
REFUSED = FitRule(
    code="ADV903",
    name="cannot-run-there",
    severity="error",
    what="The target machine cannot run the plan, whatever the memory: too few GPUs, no bf16, no network between nodes …",
    why="The launch fails, or the library refuses. The reason names the card, the library or the count.",
    fix="Plan again for this machine.",
)
VERSIONS_CHANGED = FitRule(
    code="ADV911",
    name="versions-changed",
    severity="warning",
    what="Libraries have other versions than those that the plan was made with.",
    why="Versions move defaults, kernels and memory: an attention kernel can be refused, an optimizer can change its form. "
    "A difference of the patch number alone is information and fails nothing.",
    fix="Install the plan's versions, or plan again with these.",
)
CONFIG_CHANGED = FitRule(
    code="ADV912",
    name="model-config-changed",
    severity="warning",
    what="The model's config.json is not the one that the plan was made for.",
    why="Sizes, window, or stored quantization decide the memory; the plan's numbers are those of the old config.",
    fix="Plan again with the model as it is now.",
)
HARDWARE_CHANGED = FitRule(
    code="ADV913",
    name="hardware-changed",
    severity="warning",
    what="The profile of the plan's machine says other things now, or the plan is checked against another machine.",
    why="Cards, memory, links and host RAM decide the plan; on another machine another strategy may be the right one. "
    "Another machine than the plan's is information: whether the plan runs there is what the other codes say.",
    fix="Plan again with the profile as it is now.",
)
BUDGET_CHANGED = FitRule(
    code="ADV914",
    name="budget-changed",
    severity="warning",
    what="The memory computed now differs from what the plan promised by more than 2%.",
    why="Something that the budget depends on changed: library versions, the profile, or the memory model itself. Less than "
    "promised is information, more is a warning.",
    fix="Plan again, so that the promise is what a run will be held against.",
)
FIT_RULES = (DOES_NOT_FIT, HEADROOM, REFUSED, VERSIONS_CHANGED, CONFIG_CHANGED, HARDWARE_CHANGED, BUDGET_CHANGED)
