"""Everything that a formula of the time model looks at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.memory.timeline import Parameter
from advisor.models.spec import ModelSpec
from advisor.timing.rates import Rates
from advisor.timing.work import PhaseWork


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's parameters, counted."""

    bytes_all: int
    numel: int
    trainable: int
    trainable_tensors: int
    trainable_bytes: int
    modules: int  # that own parameters
    quantized_layers: int  # that hold packed weights, one byte an element of storage
    adapted_layers: int  # that carry a LoRA adapter
    gathered: int  # modules with a parameter above ZeRO-3's persistence threshold

    @classmethod
    def of(cls, parameters: tuple[Parameter, ...], persistence_threshold: int) -> Weights:
        """Count ``parameters``."""
        owners: dict[str, bool] = {}
        for parameter in parameters:
            owner = parameter.name.rpartition(".")[0]
            owners[owner] = owners.get(owner, False) or parameter.numel > persistence_threshold
        trained = [parameter for parameter in parameters if parameter.trainable]
        return cls(
            bytes_all=sum(parameter.storage_bytes for parameter in parameters),
            numel=sum(parameter.numel for parameter in parameters),
            trainable=sum(parameter.numel for parameter in trained),
            trainable_tensors=len(trained),
            trainable_bytes=sum(parameter.numel * parameter.dtype_bytes for parameter in trained),
            modules=len(owners),
            quantized_layers=sum(parameter.dtype_bytes == 1 for parameter in parameters),
            adapted_layers=sum(".lora_A" in owner for owner in owners),
            gathered=sum(owners.values()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where weights lie: bytes that come from host RAM and from disk at every forward, and how many cards work."""

    host_bytes: int = 0
    disk_bytes: int = 0
    cards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job on one machine, with its traced work and the rates that the machine reaches."""

    model: ModelSpec
    machine: HardwareProfile
    job: Job
    work: Mapping[str, PhaseWork]  # by phase
    weights: Weights
    placement: Placement
    rates: Rates
