"""The timeline of a whole job on one device: load, two optimizer steps (or prefill and the decode of a generation)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from advisor.cache import cached, source_digest, version_of
from advisor.job import Job
from advisor.memory.optimizer import Step, optimizer_step
from advisor.memory.stretch import Part, Stretched, parameters, stretch
from advisor.memory.timeline import Event, Parameter, Timeline
from advisor.memory.trace.types import Mark, Trace
from advisor.models.spec import ModelSpec

# Decode steps that are laid out one by one; a longer generation is represented by as many, evenly spread over it, so
# that growing caches meet the allocator as they would.
DECODE_STEPS = 32
# What cuBLAS takes from torch's allocator for its workspace: (bytes on compute capability 9.0, elsewhere), from
# aten/src/ATen/cuda/CUDABlas.cpp (parseChosenWorkspaceSize).
CUBLAS_WORKSPACE_HOPPER = 32 << 20
CUBLAS_WORKSPACE = 8_519_680
# Job fields that change the trace of one device.
_TRACED = (
    "task", "method", "load_dtype", "micro_batch_size", "sequence_length", "gradient_checkpointing", "attention",
    "quantization", "loss_kernel",
)  # fmt: skip


def trace_key(model: ModelSpec, job: Job) -> dict[str, Any]:
    """Everything that the job's trace depends on."""
    key: dict[str, Any] = {name: getattr(job, name) for name in _TRACED}
    zero = job.strategy in ("zero2", "zero3")
    key |= {
        "marks": job.strategy == "zero3",
        "config": dict(model.config),
        "kind": model.kind,
        "accumulates": job.gradient_accumulation_steps > 1 and job.trains,
        "amp": job.precision if job.precision.endswith("-mixed") and not zero else None,
        "lora": asdict(job.lora) if job.lora else None,
        "kbit": bool(job.quantization) and job.strategy != "zero3",
        "new": min(job.max_new_tokens, 2) and job.max_new_tokens if not job.trains else 0,
        "versions": [version_of(name) for name in ("torch", "transformers", "peft")],
        "code": source_digest("memory/trace", "memory/operators"),
    }
    return key


def trace_of(model: ModelSpec, job: Job) -> Trace:
    """The job's trace, from the disk cache when it was made before with the same libraries and our same code."""

    def compute() -> Any:
        from advisor.memory.trace.run import run

        return run(model, job).to_json()

    return Trace.from_json(cached("trace", trace_key(model, job), compute))


def timeline(model: ModelSpec, job: Job, *, optimizer: bool = True, hopper: bool = True) -> Timeline:
    """Events of ``job`` with the whole model on one device.

    ``optimizer`` False leaves the optimizer's part out (ZeRO lays its own). ``hopper`` picks the cuBLAS workspace.
    Raises ValueError for an optimizer without a memory model.
    """
    trace = trace_of(model, job)
    return whole_step(stretch(trace), parameters(trace), trace.buffers, job, optimizer=optimizer, hopper=hopper)


def whole_step(
    whole: Stretched,
    params: tuple[Parameter, ...],
    buffers: int,
    job: Job,
    *,
    optimizer: bool = True,
    hopper: bool = True,
) -> Timeline:
    """Events of a stretched step (or a device's share of it) with ``params`` and bytes of ``buffers`` loaded."""
    build = _Builder(params, buffers, hopper)
    if job.trains:
        step = optimizer_step(job.optimizer, params) if optimizer else Step((), ())
        for number in range(2):
            build.training_step(whole, job, step, number)
    else:
        build.generation(whole, job)
    return Timeline(
        tuple(build.events), params, decode_tokens=max(0, job.max_new_tokens - 1), modules=_owners(whole, params)
    )


def _owners(whole: Stretched, params: tuple[Parameter, ...]) -> dict[str, tuple[int, ...]]:
    index = {param.name: number for number, param in enumerate(params)}
    owners: dict[str, tuple[int, ...]] = {}
    for part in whole.parts:
        for moment in part.moments:
            if moment.mark is not None and moment.mark.module not in owners:
                owners[moment.mark.module] = tuple(index[name] for name in moment.mark.params)
    return owners


class _Builder:
    """Collects events; keys are renewed for every repetition of the traced step."""

    def __init__(self, params: tuple[Parameter, ...], buffers: int, hopper: bool) -> None:
        self.params = params
        self.events: list[Event] = [Event("phase", 0, 0, "load")]
        self._next = 0
        for param in params:
            self._alloc(param.storage_bytes, "weights")
        if buffers:
            self._alloc(buffers, "weights")
        self._workspace = CUBLAS_WORKSPACE_HOPPER if hopper else CUBLAS_WORKSPACE
        self._handles = 0

    def _alloc(self, size: int, part: str) -> tuple[int, int]:
        self._next += 1
        self.events.append(Event("alloc", self._next, size, part))
        return self._next, size

    def _free(self, key: int, size: int, part: str) -> None:
        self.events.append(Event("free", key, size, part))

    def _mark(self, mark: Mark) -> None:
        self.events.append(Event("enter" if mark.enters else "exit", int(mark.backward), 0, mark.module))

    def _handle(self, phase: str, label: str) -> None:
        """The first matrix product of a thread takes cuBLAS's workspace; autograd runs the backward in its own."""
        if label.startswith("matmul") and self._handles < (2 if phase == "backward" else 1):
            self._handles += 1
            self._alloc(self._workspace, "temporary")

    def _replay(self, parts: Iterator[Part], number: int) -> dict[int, tuple[int, int, str]]:
        """Lay parts of the stretched step down; returns what is still alive, by the stretched key."""
        alive: dict[int, tuple[int, int, str]] = {}
        phase = ""
        for part in parts:
            if part.segment.phase != phase:
                phase = part.segment.phase
                self.events.append(Event("phase", number, 0, phase))
            for moment in part.moments:
                if moment.mark is not None:
                    self._mark(moment.mark)
                elif moment.kind == 0:
                    assert moment.operator is not None
                    _, flops, moved, label = moment.operator
                    self.events.append(Event("op", flops, moved, label))
                    self._handle(phase, label)
                elif moment.kind > 0:
                    assert moment.life is not None
                    key, size = self._alloc(moment.life.size, moment.life.part)
                    alive[moment.life.key] = (key, size, moment.life.part)
                else:
                    assert moment.life is not None
                    found = alive.pop(moment.life.key, None)
                    if found is not None:
                        self._free(*found)
        return alive

    def training_step(self, whole: Stretched, job: Job, step: Step, number: int) -> None:
        """Forward and backward (of two micro steps under accumulation), clipping, and the optimizer's step."""
        alive: dict[int, tuple[int, int, str]] = {}
        micro = [0] if job.gradient_accumulation_steps == 1 else [0, 1]
        for at in micro:
            chosen = (p for p in whole.parts if p.segment.phase in ("forward", "backward") and p.segment.step == at)
            alive |= self._replay(chosen, number)
            # Only gradients outlive a micro step; the rest (inputs) goes when the loop takes the next batch.
            for key in [key for key, value in alive.items() if value[2] != "gradients"]:
                self._free(*alive.pop(key))
        self.events.append(Event("phase", number, 0, "step"))
        self._clip(alive)
        if number == 0:
            for size in step.states:
                self._alloc(size, "optimizer")
        for together in step.temporaries:
            made = [self._alloc(size, "temporary") for size in together]
            for key, size in made:
                self._free(key, size, "temporary")
        for key, size, part in alive.values():
            self._free(key, size, part)

    def _clip(self, alive: dict[int, tuple[int, int, str]]) -> None:
        """The Trainer clips by default: one norm a gradient, and their stack."""
        made = [self._alloc(4, "temporary") for _ in alive]
        made.append(self._alloc(4 * len(alive), "temporary"))
        for key, size in made:
            self._free(key, size, "temporary")

    def generation(self, whole: Stretched, job: Job) -> None:
        """Prefill, then decode steps whose sizes grow from the first traced step's to the last's."""
        prefill = [part for part in whole.parts if part.segment.phase == "prefill"]
        first = [part for part in whole.parts if part.segment.phase == "decode" and part.segment.step == 0]
        last = [part for part in whole.parts if part.segment.phase == "decode" and part.segment.step == 1]
        # A short generation comes first, as in every run that warms up: what it leaves cached shapes the next.
        alive = self._replay(iter(prefill), 0)
        warm = [value for value in alive.values() if value[2] == "kv_cache"]
        if job.max_new_tokens > 1:
            warm = self._decode(first, last, 0.0, 0, warm, 1)
        for value in (*warm, *(value for value in alive.values() if value[2] != "kv_cache")):
            self._free(*value)
        alive = self._replay(iter(prefill), 1)
        cache = [value for value in alive.values() if value[2] == "kv_cache"]
        rest = [value for value in alive.values() if value[2] != "kv_cache"]
        total = max(0, job.max_new_tokens - 1)
        shown = min(total, DECODE_STEPS)
        for at in range(shown):
            share = at / (shown - 1) if shown > 1 else 0.0
            cache = self._decode(first, last, share, at, cache, total)
        for value in (*cache, *rest):
            self._free(*value)

    def _decode(
        self, first: list[Part], last: list[Part], share: float, number: int,
        cache: list[tuple[int, int, str]], total: int,
    ) -> list[tuple[int, int, str]]:  # fmt: skip
        """One decode step: the old cache of a layer goes when its longer one is there."""
        self.events.append(Event("phase", number, total, "decode"))
        alive: dict[int, tuple[int, int, str]] = {}
        made: list[tuple[int, int, str]] = []
        old = iter(cache)
        for one, other in zip(first, last if len(last) == len(first) else first, strict=True):
            same = len(one.moments) == len(other.moments)
            for index, moment in enumerate(one.moments):
                if moment.mark is not None:
                    self._mark(moment.mark)
                    continue
                if moment.kind == 0:
                    assert moment.operator is not None
                    twin = other.moments[index].operator if same else None
                    _, flops, moved, label = moment.operator
                    if twin is not None:
                        flops = int(flops + share * (twin.flops - flops))
                        moved = int(moved + share * (twin.moved - moved))
                    self.events.append(Event("op", flops, moved, label))
                    continue
                assert moment.life is not None
                if moment.kind < 0:
                    found = alive.pop(moment.life.key, None)
                    if found is not None:
                        self._free(*found)
                    continue
                twin_life = other.moments[index].life if same else None
                size = moment.life.size
                if twin_life is not None:
                    size = int(size + share * (twin_life.size - size))
                key, size = self._alloc(size, moment.life.part)
                if moment.life.part == "kv_cache":
                    made.append((key, size, "kv_cache"))
                    gone = next(old, None)
                    if gone is not None:
                        self._free(*gone)
                else:
                    alive[moment.life.key] = (key, size, moment.life.part)
        for value in alive.values():
            self._free(*value)
        # Caches that do not grow (an encoder's keys and values) stay.
        return made + list(old)
