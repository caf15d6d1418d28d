"""How many processes a launch makes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from advisor.check.facts import Launch, ScriptFacts
from advisor.check.project import Ranks
from advisor.check.settings import Hardware
from advisor.check.values import Node, integer

_SINGLE = frozenset({"NO", "NO_DISTRIBUTED"})


def ranks_of(
    launch: Launch | None, accelerate: Node | None, script: ScriptFacts | None, hardware: Hardware | None
) -> Ranks:
    """The processes of a launch; of a script without one, what a notebook launcher or a config beside it says."""
    for call in script.calls if script is not None else ():
        if call.last == "notebook_launcher":
            node = call.get("num_processes") or (call.called.args[2] if len(call.called.args) > 2 else None)
            count = integer(node.value) if node is not None else None
            return Ranks(count=count, stated=node is not None, node=node or call.node, words="notebook_launcher")
    if launch is None:
        if accelerate is not None:
            return _accelerate({}, accelerate, None, None)
        return Ranks(count=None, stated=False, node=None, words="")
    visible = visible_devices(launch.environment)
    cards = len(visible) if visible is not None else hardware.gpus if hardware is not None else None
    if launch.launcher == "python":
        # A process of its own start method (mp.spawn), or ranks that an outer launcher sets, cannot be counted.
        outer = "WORLD_SIZE" in launch.environment or (script is not None and script.calls_any("spawn"))
        return Ranks(count=None if outer else 1, stated=not outer, node=launch.node, words="python")
    if launch.launcher == "torchrun":
        return _torchrun(launch, cards)
    if launch.launcher == "accelerate":
        return _accelerate(launch.flags, accelerate, launch.node, cards)
    if launch.launcher == "deepspeed":
        return _deepspeed(launch, cards)
    if launch.launcher == "srun":
        return _srun(launch)
    return Ranks(count=cards, stated=False, node=launch.node, words=launch.launcher)


def visible_devices(environment: Mapping[str, Node]) -> list[str] | None:
    """The entries of CUDA_VISIBLE_DEVICES; None when it is not set or cannot be told."""
    node = environment.get("CUDA_VISIBLE_DEVICES")
    if node is None or not isinstance(node.value, (str, int)):
        return None
    return [part.strip() for part in str(node.value).split(",") if part.strip()]


def _torchrun(launch: Launch, cards: int | None) -> Ranks:
    node = launch.flags.get("nproc_per_node")
    nodes = _at_least(launch.flags.get("nnodes"))
    if node is None:
        return Ranks(count=nodes, stated=True, node=launch.node, words="torchrun")
    if node.value in ("gpu", "auto"):
        count = cards * nodes if cards is not None and nodes is not None else None
        return Ranks(count=count, stated=False, node=node, words=f"torchrun --nproc_per_node {node.value}")
    each = integer(node.value)
    count = each * nodes if each is not None and nodes is not None else None
    if each is not None and each > 1 and count is None:
        count = each  # more nodes make it only more
    return Ranks(count=count, stated=count is not None, node=node, words="torchrun")


def _at_least(node: Node | None) -> int | None:
    """``--nnodes 2`` or ``1:4``, whose smaller number is sure."""
    if node is None:
        return 1
    value = node.value
    return integer(value.partition(":")[0]) if isinstance(value, str) else None


def _accelerate(flags: Mapping[str, Node], root: Node | None, at: Node | None, cards: int | None) -> Ranks:
    given = flags.get("num_processes")
    listed = root.get("num_processes") if root is not None else None
    node = given or listed
    kind = str(root.plain("distributed_type")).upper() if root is not None else ""
    explicit = any(name in flags for name in ("multi_gpu", "use_deepspeed", "use_fsdp"))
    if "cpu" in flags:
        return Ranks(count=None, stated=False, node=at, words="accelerate launch --cpu")
    if kind in _SINGLE and not explicit and given is None:
        return Ranks(count=1, stated=True, node=root, words="accelerate launch")
    if node is not None:
        count = integer(node.value)
        return Ranks(count=count, stated=count is not None, node=node, words="accelerate launch")
    if "config_file" in flags and root is None:
        return Ranks(count=None, stated=False, node=None, words="")  # the file that says it was not found
    known_one = cards == 1
    return Ranks(count=cards if cards is not None else None, stated=known_one, node=at, words="accelerate launch")


def _deepspeed(launch: Launch, cards: int | None) -> Ranks:
    gpus, nodes, include = (launch.flags.get(name) for name in ("num_gpus", "num_nodes", "include"))
    include = include or launch.flags.get("i")
    if include is not None and isinstance(include.value, str):
        count = 0
        for host in include.value.split("@"):
            slots = host.partition(":")[2]
            if not slots or not re.fullmatch(r"\d+(?:,\d+)*", slots):
                return Ranks(count=None, stated=False, node=include, words="deepspeed")
            count += len(slots.split(","))
        return Ranks(count=count, stated=True, node=include, words="deepspeed")
    if gpus is not None:
        each = integer(gpus.value)
        machines = integer(nodes.value) if nodes is not None else 1
        total = each * machines if each is not None and machines is not None and each > 0 else each
        return Ranks(count=total, stated=total is not None, node=gpus, words="deepspeed")
    return Ranks(
        count=cards if "hostfile" not in launch.flags else None, stated=cards == 1, node=launch.node, words="deepspeed"
    )


def _srun(launch: Launch) -> Ranks:
    tasks = integer(launch.slurm["ntasks"].value) if "ntasks" in launch.slurm else None
    if "ntasks" in launch.slurm:
        return Ranks(count=tasks, stated=tasks is not None, node=launch.slurm["ntasks"], words="srun")
    each = launch.slurm.get("ntasks_per_node")
    nodes = launch.slurm.get("nodes")
    number = integer(nodes.value) if nodes is not None else 1
    if each is not None and number is not None:
        per = integer(each.value)
        return Ranks(count=per * number if per is not None else None, stated=per is not None, node=each, words="srun")
    return Ranks(count=number, stated=number is not None, node=launch.node, words="srun")
