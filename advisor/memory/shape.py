"""What a model is made of, counted on transformers' own classes: parameters by name, layer and size."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.job import Job
from advisor.memory.assemble import trace_of
from advisor.memory.stretch import parameters
from advisor.memory.timeline import Parameter
from advisor.models.spec import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Counts of the whole model in 16 bits; tied weights count once. Bytes are 16-bit bytes."""

    parameters: tuple[Parameter, ...]
    buffer_bytes: int
    layers: int  # of all repeated stacks
    largest_module: int  # parameters of the largest module without its children, as DeepSpeed's estimators mean it

    @property
    def count(self) -> int:
        """Unique parameters."""
        return sum(parameter.numel for parameter in self.parameters)

    def layer_bytes(self, layer: int | None) -> int:
        """Bytes of one layer index (of all stacks); of what lies outside the layers for None."""
        return sum(parameter.storage_bytes for parameter in self.parameters if parameter.layer == layer)


def model_shape(model: ModelSpec) -> ModelShape:
    """The shape of ``model``. Raises InputError when transformers cannot read its config."""
    trace = trace_of(model, Job(task="inference", strategy="single", sequence_length=64))
    params = parameters(trace)
    modules: dict[str, int] = {}
    for parameter in params:
        owner = parameter.name.rpartition(".")[0]
        modules[owner] = modules.get(owner, 0) + parameter.numel
    return ModelShape(
        parameters=params,
        buffer_bytes=trace.buffers,
        layers=sum(stack.total for stack in trace.stacks),
        largest_module=max(modules.values()),
    )
