"""ADV502: NCCL and container settings that slow or break several processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from advisor.check.judge import finding, shown
from advisor.check.project import Project, Run
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Node, integer, truth
from advisor.units import GIB

_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": GIB}


def check(project: Project) -> Iterator[Finding | Doubt]:
    """What shell scripts export and scripts set; containers that start a launcher without shared memory."""
    seen: set[tuple[str, int]] = set()
    for run in project.runs:
        environment = dict(run.script.environment) if run.script is not None else {}
        if run.launch is not None:
            environment.update(run.launch.environment)
        for one in _settings(run, environment):
            if (one.path, one.line) not in seen:
                seen.add((one.path, one.line))
                yield one
    for shell in project.shells:
        several = any(launch.launcher in ("torchrun", "accelerate", "deepspeed") for launch in shell.launches)
        for flags in shell.containers if several else ():
            yield from _shared_memory(flags)


def _settings(run: Run, environment: Mapping[str, Node]) -> Iterator[Finding]:
    if run.ranks.count == 1:
        return
    off = {name: node for name, node in environment.items() if name.startswith("NCCL_") and truth(node.value) is True}
    peer, shared, fabric = (off.get(f"NCCL_{name}_DISABLE") for name in ("P2P", "SHM", "IB"))
    nodes = run.launch.flags.get("nnodes") or run.launch.flags.get("num_nodes") if run.launch is not None else None
    machines = integer(nodes.value) if nodes is not None else None
    if shared is not None:
        both = " and NCCL_P2P_DISABLE" if peer is not None else ""
        yield finding(RULE, shared, f"NCCL_SHM_DISABLE{both} sends traffic inside the machine through network sockets")
    elif peer is not None:
        yield finding(
            RULE, peer, "NCCL_P2P_DISABLE keeps GPUs from reaching each other: NVLink is not used", severity="info",
            fix="delete it where cards have NVLink; RTX 40 cards need it only with drivers before 550.40.07",
        )  # fmt: skip
    if fabric is not None and machines is not None and machines > 1:
        yield finding(
            RULE, fabric, f"NCCL_IB_DISABLE with {machines} machines sends all traffic between them over plain sockets",
            fix="delete it where the machines have InfiniBand or RoCE",
        )  # fmt: skip


def _shared_memory(flags: Mapping[str, Node]) -> Iterator[Finding]:
    start, size = flags[""], flags.get("shm_size")
    if "gpus" not in flags and "runtime" not in flags:
        return
    if size is None:
        shares = flags.get("ipc")
        mounts = [flags[name] for name in ("v", "volume", "mount", "tmpfs") if name in flags]
        if shares is None and not any("/dev/shm" in str(node.value) for node in mounts):
            yield finding(
                RULE,
                start,
                "this container has 64 MB of /dev/shm, which NCCL and data loaders of several processes outgrow",
            )
        return
    text = str(size.value).lower().removesuffix("b") or "0"
    unit = text[-1] if text[-1] in _UNITS else "b"
    number = text.rstrip("kmg")
    if number.replace(".", "", 1).isdigit() and float(number) * _UNITS[unit] < GIB:
        yield finding(
            RULE, size, f"--shm-size {shown(size)} is less than the 1 GiB that several processes want of /dev/shm"
        )


RULE = Rule(
    code="ADV502",
    name="nccl-and-shared-memory",
    severity="warning",
    what="NCCL_SHM_DISABLE, NCCL_P2P_DISABLE or NCCL_IB_DISABLE where they cost, and containers for several "
    "processes without shared memory.",
    why="Docker gives 64 MB of /dev/shm, and NCCL then fails or hangs. The DISABLE switches are workarounds that "
    "stay behind: without peer access and shared memory every byte goes through sockets.",
    fix="docker run --shm-size=8g or --ipc=host; delete the NCCL switch, or keep it with a comment that says "
    "which machine needs it",
    since="every NCCL",
    check=check,
)
