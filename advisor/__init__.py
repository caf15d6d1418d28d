"""advisor: decide how to load, fine-tune or serve a model on the GPUs at hand, run it, and check the prediction.

From Python, with the names and types of the command line (importing ``advisor`` loads none of it yet):

    import advisor
    answer = advisor.recommend("Qwen/Qwen2.5-7B", "inference", hardware="rtx4090-x2", gpu_memory="10GiB")
    answer.plan.apply(rehearse=True)
    advisor.validate("runs.jsonl")
    advisor.check("train.py")
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

    from advisor.api import Findings, Plan, Recommendation, Validated, check, read_plan, recommend, validate

__version__ = "0.1.0"
__all__ = ["Findings", "Plan", "Recommendation", "Validated", "check", "read_plan", "recommend", "validate"]

# Functions that share their name with a room: the room itself is called, whether it was imported before or not.
_ROOMS = ("check", "validate")


class _Room(ModuleType):
    """A package that is also the function of its name in :mod:`advisor.api`."""

    def _function(self) -> Any:
        return getattr(importlib.import_module("advisor.api"), self.__name__.rpartition(".")[2])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function()(*args, **kwargs)

    @property
    def __signature__(self) -> Signature:
        """What ``help`` and notebooks show."""
        import inspect

        return inspect.signature(self._function())


def callable_room(name: str) -> None:
    """Make the package ``name`` callable; its ``__init__`` says so of itself."""
    sys.modules[name].__class__ = _Room


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"advisor.{name}")
    if name in __all__:
        return getattr(importlib.import_module("advisor.api"), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
