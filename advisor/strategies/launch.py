"""How a job is started: the launcher's argv and the environment of every process."""

from __future__ import annotations

from typing import Any

from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.strategies.base import Launch

# accelerate's own rule (case E05): RTX 40 cards hang in peer-to-peer copies with older drivers.
RTX40_DRIVER = (550, 40, 7)
RENDEZVOUS_PORT = 29500


def environment(machine: HardwareProfile, job: Job) -> dict[str, str]:
    """Variables of every process: which cards, which allocator, which links."""
    values = _visible(machine, job)
    if job.expandable_segments:
        # torch renamed the variable in 2.9; each version reads its own.
        values["PYTORCH_ALLOC_CONF"] = values["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    if job.world_size > 1:
        values |= _links(machine, job)
    if job.offload_optimizer and machine.host.cpus:
        # torchrun sets one thread a rank, which would leave the CPU optimizer on one core.
        values["OMP_NUM_THREADS"] = str(max(1, machine.host.cpus // _ranks_of_node(job)))
    return values


def _ranks_of_node(job: Job) -> int:
    return max(1, job.world_size // job.nodes)


def _visible(machine: HardwareProfile, job: Job) -> dict[str, str]:
    """Only the cards that the job uses: a plain process that sees more wraps the model in nn.DataParallel."""
    cards = machine.gpus
    if not cards or cards[0].vendor in ("apple", "intel"):
        return {}
    count = max(1, job.gpus // job.nodes)
    uuids = [uuid for card in cards for uuid in card.uuids][:count]
    # An index means another card wherever visibility was narrowed before, or where a probe listed the fastest first.
    if (machine.here or machine.mixed) and len(uuids) == count and job.nodes == 1:
        names = ",".join(uuids)
    else:
        names = ",".join(str(index) for index in range(count))
    if cards[0].vendor == "amd":
        return {"HIP_VISIBLE_DEVICES": names}
    # Profiles number cards as NVML does, by bus; CUDA's own order is fastest first.
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": names}


def _links(machine: HardwareProfile, job: Job) -> dict[str, str]:
    values: dict[str, str] = {}
    if any("RTX 40" in card.name for card in machine.gpus) and old_driver(machine):
        values |= {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1"}
    if job.nodes > 1 and machine.links.network_kind == "ethernet":
        values["NCCL_IB_DISABLE"] = "1"
    return values


def old_driver(machine: HardwareProfile) -> bool:
    """Whether the driver is known and older than the first that RTX 40 cards can talk through."""
    driver = machine.software.driver
    if driver is None:
        return False
    numbers = tuple(int(part) for part in driver.split(".") if part.isdigit())
    return numbers < RTX40_DRIVER


def one_process(machine: HardwareProfile, job: Job) -> Launch:
    """``python script``."""
    return Launch(launcher="python", argv=("python", "{script}"), environment=environment(machine, job))


def torchrun(machine: HardwareProfile, job: Job) -> Launch:
    """One process a card. Over nodes the same line runs on each, with its rank and the first node's address."""
    each = f"--nproc_per_node={_ranks_of_node(job)}"
    argv: tuple[str, ...] = ("torchrun", "--standalone", each, "{script}")
    if job.nodes > 1:
        argv = (
            "torchrun", f"--nnodes={job.nodes}", each, "--node_rank={node_rank}", "--master_addr={master_addr}",
            f"--master_port={RENDEZVOUS_PORT}", "{script}",
        )  # fmt: skip
    return Launch(launcher="torchrun", argv=argv, environment=environment(machine, job))


def deepspeed(machine: HardwareProfile, job: Job) -> Launch:
    """DeepSpeed's launcher, which starts every node of a hostfile over ssh.

    It reads CUDA_VISIBLE_DEVICES as whole numbers and sets it itself, so the plan leaves it out.
    """
    values = environment(machine, job)
    values.pop("CUDA_VISIBLE_DEVICES", None)
    argv = (
        "deepspeed", "--hostfile={hostfile}", f"--num_nodes={job.nodes}", f"--num_gpus={_ranks_of_node(job)}",
        f"--master_port={RENDEZVOUS_PORT}", "--no_local_rank", "{script}",
    )  # fmt: skip
    return Launch(launcher="deepspeed", argv=argv, environment=values)


def accelerate_yaml(job: Job) -> dict[str, Any]:
    """``accelerate launch``'s config for the same processes, for those who start scripts that way."""
    values: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "MULTI_GPU" if job.world_size > 1 else "NO",
        "machine_rank": 0,
        "num_machines": job.nodes,
        "num_processes": job.world_size,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }
    if job.strategy in ("zero2", "zero3"):
        values["distributed_type"] = "DEEPSPEED"
        # Everything else of DeepSpeed stands in its own file, which accelerate wants to be alone then.
        values["deepspeed_config"] = {
            "deepspeed_config_file": "{deepspeed_config}",
            "zero3_init_flag": job.strategy == "zero3" and job.zero_init,
        }
    else:
        values["mixed_precision"] = job.precision.removesuffix("-mixed") if job.precision.endswith("-mixed") else "no"
    if job.nodes > 1:
        values |= {"main_process_ip": "{master_addr}", "main_process_port": RENDEZVOUS_PORT}
    return values
