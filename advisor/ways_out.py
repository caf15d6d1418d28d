"""Where nothing fits: the nearest ways out, each one computed to fit. A machine without GPU is told which would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from advisor.decide.facts import speed_of
from advisor.decide.rules import load_tree
from advisor.decide.types import Candidate, Decision
from advisor.deciding import METHODS, nearest
from advisor.grown import Growth
from advisor.hardware.load import load_profile, profile_paths
from advisor.hardware.profile import HardwareProfile
from advisor.job import Method, Workload
from advisor.models.spec import ModelSpec
from advisor.quick import first_fit
from advisor.strategies.search import candidates as search
from advisor.strategies.search import exact, near_limit
from advisor.units import format_bytes

WAYS = 3
EACH = 2  # machines named for each method, where there is no GPU
_STORED: tuple[Literal["none", "int8", "nf4"], ...] = ("none", "int8", "nf4")
# Least bytes a parameter that a method keeps on all GPUs and hosts together: what is below cannot do it by far.
_LEAST = {"full": 4.0, "lora": 2.0, "qlora": 0.5, None: 2.0, "nf4": 0.5, "int8": 1.0}


def ways_out(
    model: ModelSpec, machine: HardwareProfile, workload: Workload, decision: Decision, rules_dir: Path | None = None
) -> tuple[str, ...]:
    """At most three sentences, the cheapest change first."""
    if not machine.gpus:
        return tuple(_machines_that_do(model, workload, rules_dir, every=True))
    found = [
        *_other_method(model, machine, workload, rules_dir),
        *_smaller(model, machine, workload, decision),
        *islice(_machines_that_do(model, workload, rules_dir, but=machine.name), WAYS),
    ]
    return tuple(found[:WAYS]) or tuple(islice(_relaxed(model, machine, workload, rules_dir), WAYS))


_ASKED = ("quantization", "strategy", "optimizer", "attention", "precision", "gradient_checkpointing")


def _relaxed(model: ModelSpec, machine: HardwareProfile, workload: Workload, rules_dir: Path | None) -> Iterator[str]:
    """Where what was asked for fits no machine at all: the same without those flags, here or elsewhere."""
    flags = [name for name in _ASKED if getattr(workload, name) is not None]
    if not flags:
        return
    nothing: dict[str, Any] = dict.fromkeys(flags)
    free = replace(workload, **nothing)
    without = "without " + " and ".join(f"--{name.replace('_', '-')}" for name in flags)
    found = first_fit(model, machine, free, load_tree(workload.task, rules_dir))
    if found is not None:
        yield f"{without}: {_in_short(found, machine)}"
    for other in _machines_that_do(model, free, rules_dir, but=machine.name):
        yield f"{without}, on {other}"


def _other_method(
    model: ModelSpec, machine: HardwareProfile, workload: Workload, rules_dir: Path | None
) -> Iterator[str]:
    """The first method after the asked one that fits here, or weights in 4 bits."""
    tree = load_tree(workload.task, rules_dir)
    if workload.task == "inference":
        if workload.quantization == "none":
            found = first_fit(model, machine, replace(workload, quantization="nf4", strategy=None), tree)
            if found is not None:
                yield f"--quantization nf4: {_in_short(found, machine)}"
    elif workload.method != "auto":
        for method in METHODS[METHODS.index(workload.method) + 1 :]:
            found = first_fit(model, machine, replace(workload, method=method, strategy=None), tree)
            if found is not None:
                yield f"--method {method}: {_in_short(found, machine)}"
                return
    if workload.strategy is not None:
        found = first_fit(model, machine, replace(workload, strategy=None), tree)
        if found is not None:
            yield f"without --strategy {workload.strategy}: {_in_short(found, machine)}"


def _smaller(model: ModelSpec, machine: HardwareProfile, workload: Workload, decision: Decision) -> Iterator[str]:
    """A smaller batch or a shorter sequence, where what is missing grows with them."""
    lacking = [c for c in nearest(decision.candidates) if workload.strategy in (None, c.strategy)]
    for candidate in lacking[:WAYS]:
        job = candidate.job
        if job is None:
            continue
        growth = Growth.of(candidate, model)
        for micro in range(job.micro_batch_size - 1, 0, -1):
            if growth.at(micro, job.sequence_length, machine).fits:
                yield f"--batch-size {micro} (now {job.micro_batch_size}): {candidate.label} fits"
                return
        for length in _lengths(job.sequence_length):
            if growth.at(1, length, machine).fits:
                batch = " --batch-size 1" if job.micro_batch_size > 1 else ""
                yield f"--seq-len {length}{batch} (now {job.sequence_length}): {candidate.label} fits"
                return
    yield from _searched_smaller(model, machine, workload, lacking)


def _searched_smaller(
    model: ModelSpec, machine: HardwareProfile, workload: Workload, lacking: list[Candidate]
) -> Iterator[str]:
    """Half the batch, and a single sample, planned anew: a device map that has no place has no budget to scale."""
    asked = workload.micro_batch_size
    if not any(c.budget is None for c in lacking) or asked is None or asked == 1:
        return
    for micro in dict.fromkeys((asked // 2, 1)):
        smaller = replace(workload, micro_batch_size=micro)
        fitting = [c for c in search(model, machine, smaller) if c.fits]
        if fitting:
            label = max(fitting, key=lambda candidate: speed_of(candidate) or 0.0).label
            yield f"--batch-size {micro} (now {asked}): {label} fits"
            return


def _lengths(length: int) -> Iterator[int]:
    """Shorter lengths, in steps of an eighth down to 128 tokens."""
    for eighths in range(7, 0, -1):
        if length * eighths // 8 >= 128:
            yield length * eighths // 8


def _machines_that_do(
    model: ModelSpec, workload: Workload, rules_dir: Path | None, *, every: bool = False, but: str | None = None
) -> Iterator[str]:
    """Shipped profiles that do the work, smallest first, by formula; what is near a card's limit is replayed.

    With ``every``, the smallest ones for each method (or storage of weights) in turn, most faithful first.
    """
    kinds = list(_kinds(workload)) if every else [workload]
    for kind in kinds:
        for found, profile in islice(_fitting(model, kind, rules_dir), EACH if every else None):
            if profile.name != but:
                yield f"{profile.name}: {_in_short(found, profile)}"


def _kinds(workload: Workload) -> Iterator[Workload]:
    if workload.task == "finetune" and workload.method == "auto":
        yield from (replace(workload, method=method) for method in METHODS)
    elif workload.task == "inference" and workload.quantization is None:
        yield from (replace(workload, quantization=kind) for kind in _STORED)
    else:
        yield workload


def _fitting(
    model: ModelSpec, workload: Workload, rules_dir: Path | None
) -> Iterator[tuple[Candidate, HardwareProfile]]:
    tree = load_tree(workload.task, rules_dir)
    profiles = sorted((load_profile(name) for name in profile_paths()), key=_memory)
    for profile in profiles:
        if _memory(profile) + _host(profile) < _least(model, workload):
            continue
        found = first_fit(model, profile, workload, tree)
        if found is None or found.job is None or "nvme" in (found.job.offload_optimizer, found.job.offload_param):
            continue
        # Moving weights in for every token is a last resort, nothing to buy a machine for.
        if found.job.offload_param and (not found.job.trains or found.job.method != "full"):
            continue
        assert found.budget is not None
        replayed = exact(found, model, profile) if near_limit(profile, found.job, found.budget) else found
        if replayed.fits:
            yield replayed, profile


def _memory(profile: HardwareProfile) -> int:
    return sum(profile.capacities) * profile.nodes


def _host(profile: HardwareProfile) -> int:
    return (profile.host.memory_total or 0) * profile.nodes


def _least(model: ModelSpec, workload: Workload) -> int:
    kind: Method | str | None = workload.method if workload.task == "finetune" else workload.quantization
    if kind in ("auto", "none"):
        kind = None if kind == "none" else "qlora"
    return int(_LEAST[kind] * (model.parameters or 0))


def _in_short(candidate: Candidate, machine: HardwareProfile) -> str:
    assert candidate.budget is not None and candidate.job is not None
    need = f"{format_bytes(candidate.budget.fullest.needed)} of {format_bytes(max(machine.capacities))} a GPU"
    cards = f"{candidate.job.gpus} GPU{'s' if candidate.job.gpus != 1 else ''}"
    offloads = candidate.job.offload_optimizer or candidate.job.offload_param
    host = f" and {format_bytes(candidate.budget.host_ram)} of host RAM" if offloads else ""
    return f"{candidate.label} on {cards}, {need}{host}"
