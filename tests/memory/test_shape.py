"""Counts against published ones."""

import pytest

from advisor.memory.shape import model_shape
from advisor.models.resolve import resolve


@pytest.mark.parametrize(
    ("name", "count", "largest"),
    [
        ("meta-llama/Llama-2-70b-hf", 68_976_648_192, 32000 * 8192),
        ("meta-llama/Llama-3.2-1B", 1_235_814_400, 128256 * 2048),
    ],
)
def test_counts_are_the_published_ones(name: str, count: int, largest: int) -> None:
    shape = model_shape(resolve(name))
    assert (shape.count, shape.largest_module) == (count, largest)
    assert sum(shape.layer_bytes(layer) for layer in (None, *range(shape.layers))) == 2 * count
