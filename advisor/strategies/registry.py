"""All strategies, simplest first. A new one is one module and one line here; a contract test runs over the table."""

from __future__ import annotations

from collections.abc import Mapping

from advisor.job import StrategyName
from advisor.strategies.base import Strategy
from advisor.strategies.ddp import DataParallel
from advisor.strategies.device_map import DeviceMap
from advisor.strategies.single import Single
from advisor.strategies.tensor_parallel import TensorParallel
from advisor.strategies.zero2 import Zero2
from advisor.strategies.zero3 import Zero3

STRATEGIES: Mapping[StrategyName, Strategy] = {
    strategy.name: strategy for strategy in (Single(), DataParallel(), TensorParallel(), DeviceMap(), Zero2(), Zero3())
}
