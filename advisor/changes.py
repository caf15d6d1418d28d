"""What would change the answer: for batch, length, memory, cards and method the smallest change that turns the decision.

Every line is computed: the rules are walked again over the candidates at other sizes (:mod:`advisor.grown`), and the
turning point found by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from advisor.decide.facts import NONE, WAYS, best_by_way, speed_of, way_of
from advisor.decide.rules import Tree, load_tree
from advisor.decide.types import Candidate, Decision
from advisor.deciding import choose
from advisor.grown import Growth
from advisor.hardware.profile import HardwareProfile
from advisor.job import Workload
from advisor.models.spec import ModelSpec
from advisor.quick import candidates, first_fit
from advisor.strategies.common import parameter_count
from advisor.strategies.outline import outline
from advisor.units import GIB, format_bytes

MAX_MICRO_BATCH = 1024
MAX_LENGTH = 1 << 20
_MAX_CARDS = 64


def changes(
    model: ModelSpec, machine: HardwareProfile, workload: Workload, decision: Decision, rules_dir: Path | None = None
) -> tuple[str, ...]:
    """One sentence a change, the limits of the chosen way first. The decision must have a chosen candidate."""
    chosen = decision.chosen
    assert chosen is not None and chosen.job is not None
    rewalk = _Rewalk(model, machine, workload, decision, load_tree(workload.task, rules_dir))
    return (
        *_limits(rewalk),
        *_turns(rewalk),
        *_memory(rewalk),
        *_cards(rewalk),
        *_method(model, machine, chosen),
        *_pipeline(workload, decision),
    )


class _Rewalk:
    """The decision's own tree and candidates, to be walked again at other sizes."""

    def __init__(
        self, model: ModelSpec, machine: HardwareProfile, workload: Workload, decision: Decision, tree: Tree
    ) -> None:
        chosen = decision.chosen
        assert chosen is not None and chosen.job is not None
        self.model, self.machine, self.workload, self.tree = model, machine, workload, tree
        self.chosen, self.job, self.way = chosen, chosen.job, way_of(chosen)
        own = [c for c in decision.candidates if c.method == chosen.method and c.budget is not None]
        if workload.strategy is not None:  # a forced strategy stays forced
            own = [c for c in own if c.strategy == chosen.strategy]
        # The search settles for what is fastest here; where memory is short, the leanest jobs count as well.
        lean = [c for c in candidates(model, machine, _of_method(workload, chosen)) if c.method == chosen.method]
        self.growths = [Growth.of(candidate, model) for candidate in (*own, *lean)]
        self.own = Growth.of(chosen, model)

    def chosen_fits(self, micro: int, length: int) -> bool:
        """Whether the chosen way holds a micro batch of this size and length."""
        return self.own.at(micro, length, self.machine).fits

    def leaf(self, micro: int, length: int) -> str:
        """Where the rules lead with this micro batch and length."""
        return self._leaf([growth.at(micro, length, self.machine) for growth in self.growths], self.machine)

    @property
    def least_micro(self) -> int:
        """The micro batch that may not be undercut: the asked one, or 1 where the search may choose."""
        return self.job.micro_batch_size if self.workload.micro_batch_size or not self.job.trains else 1

    def leaf_with(self, memory: int) -> str:
        """Where the rules lead with cards of ``memory`` bytes. Device maps are taken as they were planned."""
        cards = tuple(
            card.model_copy(update={"memory_total": memory, "memory_free": None}) for card in self.machine.gpus
        )
        machine = self.machine.model_copy(update={"gpus": cards, "gpu_memory_limit": None})
        length, micro = self.job.sequence_length, self.least_micro
        found = [growth.at(micro, length, machine) for growth in self.growths]
        return self._leaf(found, machine)

    def _leaf(self, found: list[Candidate], machine: HardwareProfile) -> str:
        taken, named = choose(self.tree, machine, self.workload, self.model, found, self.chosen.method or "")
        if named is None and self.workload.strategy is not None:
            fitting = [candidate for candidate in found if candidate.fits]
            return way_of(fitting[0]) if fitting else NONE
        return taken.leaf


def _of_method(workload: Workload, chosen: Candidate) -> Workload:
    return replace(workload, method=chosen.method) if chosen.method else workload


def largest(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The largest number in ``low`` … ``high`` that holds, where all below it do; ``low`` is known to."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def largest_micro_batch(rewalk: _Rewalk) -> int:
    """The largest micro batch that the chosen way holds at this length."""
    micro, length = rewalk.job.micro_batch_size, rewalk.job.sequence_length
    return largest(lambda size: rewalk.chosen_fits(size, length), micro, max(MAX_MICRO_BATCH, 2 * micro))


def longest_sequence(rewalk: _Rewalk) -> int:
    """The longest sequence that the chosen way holds at its least batch, within what the model was made for."""
    micro = rewalk.least_micro
    return largest(lambda size: rewalk.chosen_fits(micro, size), rewalk.job.sequence_length, _limit(rewalk))


def _limit(rewalk: _Rewalk) -> int:
    limit = (rewalk.model.context_length or MAX_LENGTH) - rewalk.job.max_new_tokens
    return max(rewalk.job.sequence_length, limit)


def _limits(rewalk: _Rewalk) -> Iterator[str]:
    job = rewalk.job
    batch, length = largest_micro_batch(rewalk), longest_sequence(rewalk)
    yield (
        f"{rewalk.chosen.label} holds at most about micro batch {batch} at length {job.sequence_length}, or length "
        f"{length} at micro batch {rewalk.least_micro}"
        + (" (the model's own limit)" if rewalk.model.context_length == length + job.max_new_tokens else "")
    )


def _turns(rewalk: _Rewalk) -> Iterator[str]:
    """Larger batches and longer sequences: the first at which the rules lead elsewhere."""
    micro, length = rewalk.job.micro_batch_size, rewalk.job.sequence_length
    start = rewalk.leaf(micro, length)
    last = largest(lambda size: rewalk.leaf(size, length) == start, micro, MAX_MICRO_BATCH)
    if last < MAX_MICRO_BATCH:
        yield f"from micro batch {last + 1} on: {named(rewalk.leaf(last + 1, length))}"
    micro, limit = rewalk.least_micro, _limit(rewalk)
    start = rewalk.leaf(micro, length)
    last = largest(lambda size: rewalk.leaf(micro, size) == start, length, limit)
    if last < limit:
        yield f"from length {last + 1} on: {named(rewalk.leaf(micro, last + 1))}"


def named(leaf: str) -> str:
    """A leaf in words."""
    return "nothing fits" if leaf == NONE else f"{leaf} ({WAYS[leaf]})"


def _memory(rewalk: _Rewalk) -> Iterator[str]:
    """Smaller and larger cards: the nearest at which the rules lead elsewhere."""
    now = min(rewalk.machine.capacities)
    start = rewalk.leaf_with(now)
    step = GIB // 4
    low = largest(lambda size: rewalk.leaf_with(now - size * step) == start, 0, max(1, now // step - 1))
    if low < now // step - 1:
        less = now - (low + 1) * step
        yield f"with cards of {format_bytes(less)} or less (now {format_bytes(now)}): {named(rewalk.leaf_with(less))}"
    most = 8 * now // step
    high = largest(lambda size: rewalk.leaf_with(now + size * step) == start, 0, most)
    if high < most:
        more = now + (high + 1) * step
        yield f"with cards of {format_bytes(more)} or more (now {format_bytes(now)}): {named(rewalk.leaf_with(more))}"


def _cards(rewalk: _Rewalk) -> Iterator[str]:
    """Fewer and more cards of the same kind in a node: the nearest counts at which another way is the first that fits."""
    machine = rewalk.machine
    if len(machine.gpus) != 1 or rewalk.workload.strategy is not None:
        return

    @cache
    def way(count: int) -> str:
        found = first_fit(rewalk.model, with_cards(machine, count), _same_step(rewalk, count), rewalk.tree)
        return way_of(found) if found else NONE

    have = machine.gpus[0].count
    start = way(have)
    if start != rewalk.way:
        return  # the quick look sees this machine otherwise than the search did: it cannot tell where that turns
    fewer = [have >> power for power in range(1, have.bit_length())]
    more = [have << power for power in range(1, 7) if have << power <= _MAX_CARDS]
    for counts in (fewer, more):
        turn = next((count for count in counts if way(count) != start), None)
        if turn is not None:
            yield f"with {turn} GPU{'s' if turn != 1 else ''} instead of {have}: {named(way(turn))}"


def _same_step(rewalk: _Rewalk, cards: int) -> Workload:
    """The workload with the chosen way's own step on each of ``cards``: what was traced for it serves again."""
    job = rewalk.job
    if not job.trains:
        return rewalk.workload
    samples = job.micro_batch_size * job.gradient_accumulation_steps
    return replace(
        rewalk.workload, method=job.method or "auto", micro_batch_size=job.micro_batch_size,
        global_batch_size=samples * cards * rewalk.machine.nodes, gradient_checkpointing=job.gradient_checkpointing,
    )  # fmt: skip


def with_cards(machine: HardwareProfile, count: int) -> HardwareProfile:
    """The machine with ``count`` cards of its first kind a node."""
    return machine.model_copy(update={"gpus": (machine.gpus[0].model_copy(update={"count": count, "uuids": ()}),)})


def _method(model: ModelSpec, machine: HardwareProfile, chosen: Candidate) -> Iterator[str]:
    """Where states leave the GPU to train all weights: what LoRA would need instead.

    Read off the same step: frozen 16-bit weights and what passes, without gradients and states. Adapters add little.
    """
    job, budget = chosen.job, chosen.budget
    if job is None or budget is None or job.method != "full" or not (job.offload_optimizer or job.offload_param):
        return
    passing = outline(model, job).live + budget.fullest.runtime
    weights, room = 2 * parameter_count(model), min(machine.capacities)
    for way, kept in (("a copy on every GPU", weights), ("weights sharded over the GPUs", weights // job.gpus)):
        if kept + passing <= room:
            need = format_bytes(kept + passing)
            yield f"with --method lora: {way}, about {need} of {format_bytes(room)} each, and nothing in host RAM"
            return


def _pipeline(workload: Workload, decision: Decision) -> Iterator[str]:
    """A naive pipeline that is estimated faster than what was chosen: the rules keep to what was measured."""
    chosen = decision.chosen
    assert chosen is not None
    if workload.task != "finetune" or workload.strategy is not None:
        return
    own = [c for c in decision.candidates if c.method == chosen.method]
    pipeline, speed = best_by_way(own).get("device_map"), speed_of(chosen)
    if pipeline is None or pipeline.time is None or speed is None or chosen is pipeline:
        return
    faster, error = speed_of(pipeline) or 0.0, pipeline.time.error or 0.0
    if faster > (1 + error) * speed:
        yield (
            f"with --strategy device_map: a naive pipeline, one GPU at a time, estimated at {faster:,.0f} tokens/s "
            f"against {speed:,.0f}; no measured run has checked that estimate"
        )
