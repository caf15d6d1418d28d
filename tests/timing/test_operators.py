"""What operators cost, against products and copies that can be counted by hand."""

from __future__ import annotations

import pytest

from advisor.memory.operators import Cost, attention_cost, operator_cost

torch = pytest.importorskip("torch")


def costs(run: object) -> list[Cost]:
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Cost] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = function(*args, **(kwargs or {}))
            cost = operator_cost(function, args, kwargs, out)
            if cost is not None:
                found.append(cost)
            return out

    with Watch():
        run()  # type: ignore[operator]
    return found


def test_a_product_counts_two_operations_a_multiply_and_its_three_matrices() -> None:
    a, b = torch.ones(8, 16, dtype=torch.bfloat16), torch.ones(16, 32, dtype=torch.bfloat16)
    assert costs(lambda: a @ b) == [Cost("matmul", "bf16", 2 * 8 * 16 * 32, 2 * (8 * 16 + 16 * 32 + 8 * 32))]


def test_a_bias_does_not_change_the_count_of_a_linear() -> None:
    layer, x = torch.nn.Linear(16, 32), torch.ones(8, 16)
    (cost,) = costs(lambda: layer(x))
    assert cost.flops == 2 * 8 * 16 * 32 and cost.dtype == "fp32"


def test_views_and_empty_memory_cost_nothing() -> None:
    x = torch.ones(4, 4)
    assert costs(lambda: (x.view(16), x.t(), x[1:], x.expand(2, 4, 4), torch.empty(9), x.detach())) == []


def test_an_expanded_tensor_is_read_from_its_source() -> None:
    row = torch.ones(1, 4)
    (cost,) = costs(lambda: row.expand(1000, 4) + 1)
    assert cost.moved == 4 * 4 + 4 * 4000


def test_an_embedding_reads_the_rows_it_returns() -> None:
    table, ids = torch.ones(100_000, 4), torch.zeros(3, dtype=torch.long)
    (cost,) = costs(lambda: torch.nn.functional.embedding(ids, table))
    assert cost.moved == 2 * 3 * 4 * 4 + 3 * 8


def test_in_place_kernels_over_lists_write_what_they_change() -> None:
    lists = [torch.ones(10), torch.ones(20)]
    (cost,) = costs(lambda: torch._foreach_mul_(lists, 2.0))
    assert cost.moved == 2 * 30 * 4


def test_causal_attention_is_half_of_the_square() -> None:
    full = attention_cost((1, 8, 1024, 64), 1024, 8, "bf16", causal=False, backward=False)
    half = attention_cost((1, 8, 1024, 64), 1024, 8, "bf16", causal=True, backward=False)
    assert full.flops == 4 * 8 * 1024 * 1024 * 64
    assert half.flops / full.flops == pytest.approx(0.5, abs=0.001)
    back = attention_cost((1, 8, 1024, 64), 1024, 8, "bf16", causal=True, backward=True)
    assert back.flops == 2.5 * half.flops


def test_labels_part_what_a_sum_would_blur() -> None:
    assert Cost("matmul", "bf16", 1000.0, 1.0).label != Cost("matmul", "bf16", 1.0, 1.0).label
    assert Cost("other", "bf16", 0.0, 5.0).label == Cost("other", "bf16", 0.0, 500.0).label
