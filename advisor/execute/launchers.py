"""Another launcher for the same processes: python, torchrun, ``accelerate launch`` or ``deepspeed``."""

from __future__ import annotations

from pathlib import Path

from advisor.errors import InputError
from advisor.execute.options import Options
from advisor.hardware.merge import read_hostfile
from advisor.plan import PlanLaunch, PlanStep
from advisor.strategies.launch import RENDEZVOUS_PORT, accelerate_yaml

LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed")


def with_launcher(step: PlanStep, options: Options) -> PlanStep:
    """``step`` started by ``options.launcher``, and by a hostfile where one is given; as it is without either.

    Raises InputError for a launcher that cannot start the step's processes.
    """
    name = options.launcher or step.launch.launcher
    if name not in LAUNCHERS:
        raise InputError("--launcher", "is not known", found=name, expected=", ".join(LAUNCHERS))
    if name == step.launch.launcher and options.hostfile is None:
        return step
    job = step.job
    each = max(1, job.world_size // job.nodes)
    if name == "python" and job.world_size > 1:
        raise InputError("--launcher", f"starts one process, the plan has {job.world_size}", found="python")
    environment = dict(step.launch.environment)
    argv: tuple[str, ...]
    over: tuple[str, ...]
    if options.hostfile is not None and name != "deepspeed":
        raise InputError(
            "--hostfile", f"is read by DeepSpeed's launcher, this run has {name}", expected="--launcher deepspeed"
        )
    if name == "deepspeed":
        # It reads CUDA_VISIBLE_DEVICES as whole numbers and sets it itself.
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        where = _hosts(options.hostfile, job.nodes, each) if options.hostfile else ()
        argv = (
            "deepspeed", *where, f"--num_gpus={each}", f"--master_port={RENDEZVOUS_PORT}", "--no_local_rank", "{script}",
        )  # fmt: skip
        if options.node_rank is not None:  # a batch system starts every node itself
            argv = (*argv[:-1], "--no_ssh", "--node_rank={node_rank}", "--master_addr={master_addr}", "{script}")
    elif name == "accelerate":
        over = ("--machine_rank={node_rank}", "--main_process_ip={master_addr}") if job.nodes > 1 else ()
        argv = ("accelerate", "launch", "--config_file={accelerate_config}", *over, "{script}")
    elif name == "torchrun":
        over = ("--standalone",) if job.nodes == 1 else (
            f"--nnodes={job.nodes}", "--node_rank={node_rank}", "--master_addr={master_addr}",
            f"--master_port={RENDEZVOUS_PORT}",
        )  # fmt: skip
        argv = ("torchrun", *over, f"--nproc_per_node={each}", "{script}")
    else:
        argv = ("python", "{script}")
    launch = PlanLaunch(launcher=name, argv=argv, environment=environment)  # type: ignore[arg-type]  # checked above
    files = {"accelerate": accelerate_yaml(job)} if name == "accelerate" and step.accelerate is None else {}
    return step.model_copy(update={"launch": launch, **files})


def _hosts(hostfile: Path, nodes: int, each: int) -> tuple[str, ...]:
    """DeepSpeed's flags for a hostfile. Raises InputError when it names other nodes or fewer slots than the plan has."""
    hosts = read_hostfile(hostfile)
    if len(hosts) != nodes or min(slots for _, slots in hosts) < each:
        found = ", ".join(f"{host} slots={slots}" for host, slots in hosts)
        raise InputError(str(hostfile), "does not fit the plan", found=found, expected=f"{nodes} hosts of {each} slots")
    # One host needs no ssh, which DeepSpeed tries all the same: to look at it, and to ask it for its address.
    alone = ("--no_ssh_check", "--master_addr=127.0.0.1") if nodes == 1 else ()
    return ("--hostfile={hostfile}", f"--num_nodes={nodes}", *alone)
