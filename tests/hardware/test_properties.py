"""What holds for any machine: visibility never invents a card, limits never add memory, nodes join to the weakest."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.hardware.merge import join
from advisor.hardware.probe import probe
from advisor.hardware.visible import visible_devices
from tests.hardware.traps import GIB, card, readings

CG = "/sys/fs/cgroup"
V2 = f"31 23 0:27 / {CG} rw - cgroup2 cgroup2 rw"
TOKENS = st.sampled_from(
    ["0", "1", "2", "3", "9", "-1", "", "GPU-0aaa", "GPU-2aaa-bbbb", "GPU-", "MIG-x", "NoDevFiles", "x"]
)
ORDER = st.sampled_from([None, "PCI_BUS_ID", "FASTEST_FIRST"])


@settings(deadline=None)
@given(st.none() | st.lists(TOKENS, max_size=5), st.lists(st.integers(1, 3), min_size=1, max_size=4), ORDER)
def test_visible_devices_are_cards_once_each(tokens: list[str] | None, cores: list[int], order: str | None) -> None:
    cards = [card(index, cores=number) for index, number in enumerate(cores)]
    environment = {} if order is None else {"CUDA_DEVICE_ORDER": order}
    if tokens is not None:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(tokens)
    seen = [device["uuid"] for device in visible_devices(cards, environment).devices]
    assert len(set(seen)) == len(seen) <= len(cards)
    assert set(seen) <= {device["uuid"] for device in cards}
    if tokens is None:
        assert len(seen) == len(cards)
    elif order == "PCI_BUS_ID" and tokens and all(token.isdigit() for token in tokens):
        # Numbers are taken from the left up to the first that names no card; a card named twice leaves none.
        valid = []
        for token in tokens:
            if int(token) >= len(cards):
                break
            valid.append(f"GPU-{token}aaa-bbbb")
        assert seen == (valid if len(set(valid)) == len(valid) else [])


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 512), st.none() | st.integers(1, 512), st.none() | st.integers(1, 512), st.none() | st.integers(1, 512),
    st.integers(0, 600), st.integers(0, 600),
)  # fmt: skip
def test_memory_is_within_every_limit(
    available: int, own: int | None, above: int | None, grant: int | None, used: int, cache: int
) -> None:
    files = {"/proc/self/cgroup": "0::/job\n"}
    for folder, most in ((f"{CG}/job", own), (CG, above)):
        files |= {
            f"{folder}/memory.max": f"{most * GIB}\n" if most is not None else "max\n",
            f"{folder}/memory.current": f"{used * GIB}\n", f"{folder}/memory.stat": f"inactive_file {cache * GIB}\n",
        }  # fmt: skip
    environment = {} if grant is None else {"SLURM_MEM_PER_NODE": str(grant << 10)}
    host = probe(readings(files=files, mounts=(V2,), available=available * GIB, environment=environment)).host
    assert host.memory_available is not None and host.memory_limit_reason
    assert (
        0
        <= host.memory_available
        <= min(amount * GIB for amount in (available, own, above, grant) if amount is not None)
    )


NODES = st.tuples(st.integers(1, 3), st.integers(8, 80), st.integers(4, 256), st.sampled_from(["7.0", "8.0", "9.0"]))


@settings(max_examples=30, deadline=None)
@given(st.lists(NODES, min_size=1, max_size=4))
def test_joined_nodes_are_as_weak_as_the_weakest(values: list[tuple[int, int, int, str]]) -> None:
    nodes = [
        probe(readings(tuple(card(index, total=total * GIB, capability=able) for index in range(count)),
                       available=memory * GIB, node=f"n{number}"))
        for number, (count, total, memory, able) in enumerate(values)
    ]  # fmt: skip
    joined = join(nodes)
    assert joined.nodes == len(nodes)
    assert len(joined.cards) == min(len(node.cards) for node in nodes)
    for node in nodes:
        assert (joined.host.memory_available or 0) <= (node.host.memory_available or 0)
        for weak, own in zip(joined.cards, node.cards, strict=False):
            assert joined.capacity(weak) <= node.capacity(own)
            assert not weak.has_bf16 or own.has_bf16
