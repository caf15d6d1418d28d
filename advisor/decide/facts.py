"""The facts that rules may ask about: each has a name, a type, a unit and a meaning, declared here and nowhere else.

A *way* is a strategy with what it moves and stores: ``zero3``, ``zero3_cpu``, ``single_nf4``, ``ddp_nodes``. Each way
has ``WAY.fits``, ``WAY.tight``, ``WAY.headroom``, ``WAY.free``, ``WAY.step_free`` and ``WAY.speed``, and is the name of a
leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from advisor.decide.types import Candidate
from advisor.hardware.profile import HardwareProfile
from advisor.job import Workload
from advisor.models.spec import ModelSpec
from advisor.units import format_bytes, format_rate

FactType = Literal["flag", "number", "text"]
# None: the number is not known. A comparison with it is false, and the trace says "unknown".
Value = bool | float | int | str | None

WAYS: Mapping[str, str] = {
    "single": "the whole model on one GPU",
    "single_int8": "the whole model on one GPU, weights in 8 bits",
    "single_nf4": "the whole model on one GPU, weights in 4 bits",
    "tensor_parallel": "every layer split over the GPUs of a node",
    "device_map": "whole modules on several GPUs, which work in turn",
    "device_map_int8": "the same with weights in 8 bits",
    "device_map_nf4": "the same with weights in 4 bits",
    "device_map_cpu": "modules on GPUs, the rest in host RAM",
    "device_map_disk": "modules on GPUs, the rest in host RAM and on disk",
    "ddp": "a copy of the model on every GPU of one node",
    "ddp_nodes": "a copy of the model on every GPU of all nodes",
    "zero2": "gradients and optimizer states sharded over the GPUs of one node",
    "zero2_nodes": "the same over all nodes",
    "zero2_cpu": "ZeRO-2 with the optimizer in host RAM, one node",
    "zero2_nodes_cpu": "the same over all nodes",
    "zero3": "parameters, gradients and optimizer states sharded over the GPUs of one node",
    "zero3_nodes": "the same over all nodes",
    "zero3_cpu": "ZeRO-3 with optimizer or parameters in host RAM, one node",
    "zero3_nodes_cpu": "the same over all nodes",
    "zero3_nvme": "ZeRO-3 with optimizer and parameters on NVMe, one node",
    "zero3_nodes_nvme": "the same over all nodes",
}
NONE = "none"  # the leaf where nothing fits
FAST_LINKS = ("nvlink", "infinity_fabric")


@dataclass(frozen=True, slots=True)
class Fact:
    """One declared fact."""

    name: str
    type: FactType
    unit: str
    doc: str


_GENERAL = (
    Fact("task", "text", "", "inference or finetune"),
    Fact("method", "text", "", "full, lora or qlora: the one looked at in this walk; empty for inference"),
    Fact("gpus", "number", "", "GPUs over all nodes"),
    Fact("cards", "number", "", "GPUs of one node"),
    Fact("nodes", "number", "", "nodes"),
    Fact("mixed_cards", "flag", "", "the cards of a node differ in kind or memory"),
    Fact("unified_memory", "flag", "", "GPU and host share one pool of memory"),
    Fact("nvlink", "flag", "", "the GPUs of a node are joined by NVLink or Infinity Fabric"),
    Fact("gpu_link", "number", "B/s", "between GPUs of a node, one direction a GPU"),
    Fact("host_link", "number", "B/s", "host to GPU"),
    Fact("network", "number", "B/s", "between nodes, a node"),
    Fact("card_memory", "number", "B", "what a run may use of the smallest card"),
    Fact("host_memory", "number", "B", "host RAM that a run may use, a node"),
    Fact("weights", "number", "B", "the model's weights in 16 bits"),
    Fact("model_over_card", "number", "ratio", "16-bit weights over the smallest card's memory"),
    Fact("parameters", "number", "", "unique parameters of the model"),
    Fact("mixture_of_experts", "flag", "", "a token passes through a part of the parameters only"),
    Fact("quantization_open", "flag", "", "the user left open how weights are stored"),
    Fact("margin", "number", "ratio", "1 + the stated error of the speed estimates: less apart counts as equal"),
)


def _declared() -> dict[str, Fact]:
    facts = {fact.name: fact for fact in _GENERAL}
    for way, meaning in WAYS.items():
        facts[f"{way}.fits"] = Fact(f"{way}.fits", "flag", "", f"{meaning}: it fits")
        facts[f"{way}.tight"] = Fact(f"{way}.tight", "flag", "", f"{way} fits, but by less than the stated error")
        facts[f"{way}.headroom"] = Fact(f"{way}.headroom", "number", "ratio", f"free share of the fullest card, {way}")
        facts[f"{way}.free"] = Fact(f"{way}.free", "number", "B", f"free bytes of the fullest card, {way}")
        facts[f"{way}.step_free"] = Fact(
            f"{way}.step_free", "number", "B", f"free bytes of the fullest card in the optimizer's step, {way}"
        )
        facts[f"{way}.speed"] = Fact(f"{way}.speed", "number", "tokens/s", f"of {way} over all GPUs, where it fits")
    return facts


FACTS: Mapping[str, Fact] = _declared()


def way_of(candidate: Candidate) -> str:
    """The way that a candidate goes: the leaf that would name it."""
    job, name = candidate.job, str(candidate.strategy)
    if job is None:
        return name
    if not job.trains and job.quantization:
        name += f"_{job.quantization}"
    if job.nodes > 1:
        name += "_nodes"
    return name + _moved(candidate)


def _moved(candidate: Candidate) -> str:
    job = candidate.job
    assert job is not None
    for place in ("nvme", "cpu"):
        if place in (job.offload_optimizer, job.offload_param):
            return f"_{place}"
    if isinstance(job.device_map, Mapping):
        devices = set(job.device_map.values())
        for place in ("disk", "cpu"):
            if place in devices:
                return f"_{place}"
    return ""


def speed_of(candidate: Candidate) -> float | None:
    """Tokens a second over all GPUs: trained ones, or decoded ones (prefill counts where nothing is decoded)."""
    time = candidate.time
    if time is None:
        return None
    if candidate.job is not None and not candidate.job.trains and time.decode_tokens_per_second is not None:
        # Replicas (ZeRO-Inference) serve a batch each.
        return time.decode_tokens_per_second * candidate.job.data_parallel_size
    return time.tokens_per_second


def best_by_way(candidates: Iterable[Candidate]) -> dict[str, Candidate]:
    """The fastest fitting candidate of each way (unknown speeds: the first); ways that do not fit are absent."""
    best: dict[str, Candidate] = {}
    for candidate in candidates:
        way = way_of(candidate)
        if candidate.fits and (way not in best or (speed_of(candidate) or 0) > (speed_of(best[way]) or 0)):
            best[way] = candidate
    return best


def build(
    candidates: Sequence[Candidate], machine: HardwareProfile, workload: Workload, model: ModelSpec, method: str = ""
) -> dict[str, Value]:
    """Every declared fact's value for one walk; ``candidates`` are those of ``method``."""
    host, links = machine.host, machine.links
    card = min(machine.capacities, default=None)
    weights = 2 * model.parameters if model.parameters is not None else None
    errors = [c.time.error for c in candidates if c.fits and c.time is not None and c.time.error is not None]
    facts: dict[str, Value] = {
        "task": workload.task,
        "method": method,
        "gpus": machine.gpu_count,
        "cards": len(machine.cards),
        "nodes": machine.nodes,
        "mixed_cards": machine.mixed,
        "unified_memory": any(gpu.unified_memory for gpu in machine.gpus),
        "nvlink": links.gpu_to_gpu_kind in FAST_LINKS,
        "gpu_link": links.gpu_to_gpu,
        "host_link": links.host_to_gpu,
        "network": links.network,
        "card_memory": card,
        "host_memory": host.memory_total if host.memory_available is None else host.memory_available,
        "weights": weights,
        "model_over_card": weights / card if weights is not None and card else None,
        "parameters": model.parameters,
        "mixture_of_experts": model.active_parameters is not None,
        "quantization_open": workload.quantization is None,
        "margin": 1 + max(errors, default=0.0),
    }
    best = best_by_way(candidates)
    for way in WAYS:
        found = best.get(way)
        facts[f"{way}.fits"] = found is not None
        facts[f"{way}.tight"] = found is not None and found.verdict == "tight"
        facts[f"{way}.headroom"] = found.headroom if found is not None else None
        facts[f"{way}.free"] = _free(found, machine) if found is not None else None
        facts[f"{way}.step_free"] = _step_free(found, machine) if found is not None else None
        facts[f"{way}.speed"] = speed_of(found) if found is not None else None
    return facts


def _free(candidate: Candidate, machine: HardwareProfile) -> int | None:
    """Bytes left on the card that is filled most."""
    gpus = candidate.budget.gpus if candidate.budget is not None else ()
    return min((room - gpu.needed for gpu, room in zip(gpus, machine.capacities, strict=False)), default=None)


def _step_free(candidate: Candidate, machine: HardwareProfile) -> int | None:
    """Bytes left on the fullest card while the optimizer steps: activations are gone then."""
    free = _free(candidate, machine)
    phases = candidate.budget.phases if candidate.budget is not None else {}
    if free is None or "step" not in phases:
        return None
    return free + max(phases.values()) - phases["step"]


def neutral() -> dict[str, Value]:
    """Every declared fact at its quietest value: false, unknown, empty. Cases state what differs."""
    quiet: dict[FactType, Value] = {"flag": False, "number": None, "text": ""}
    return {name: quiet[fact.type] for name, fact in FACTS.items()}


def show(name: str, value: Value) -> str:
    """A fact's value as text, in its unit."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value or "-"
    unit = FACTS[name].unit
    if unit == "B":
        return format_bytes(int(value))
    if unit == "B/s":
        return format_rate(value)
    number = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return number if unit in ("", "ratio") else f"{number} {unit}"
