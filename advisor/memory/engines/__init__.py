"""Engines of several processes: their buffers laid over the traced step of one device."""

from advisor.memory.engines.ddp import budget_ddp
from advisor.memory.engines.tensor_parallel import budget_tensor_parallel
from advisor.memory.engines.zero import budget_zero

__all__ = ["budget_ddp", "budget_tensor_parallel", "budget_zero"]
