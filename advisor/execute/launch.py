"""From a plan's launch to the command that really runs, and the check that the plan asks for nothing else.

A plan file is data. It may choose among our launchers, their known flags, and environment variables that tune GPUs and
networks; a foreign program, a flag that loads code, or a variable that does, is refused.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.plan import PlanLaunch, PlanStep

WORKER = Path(__file__).parent / "entry" / "advisor_worker.py"

_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "python": (sys.executable,),
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
    "accelerate": (sys.executable, "-m", "accelerate.commands.launch"),
    "deepspeed": (sys.executable, "-m", "deepspeed.launcher.runner"),
}
_NUMBER, _HOST, _PLACE = r"\d+", r"[\w.\-]+", r"\{[a-z_]+\}"
# Flags a plan may give a launcher, with what their values may look like. None: a flag without a value.
_FLAGS: Mapping[str, Mapping[str, str | None]] = {
    "python": {},
    "torchrun": {
        "nproc_per_node": _NUMBER, "nnodes": _NUMBER, "node_rank": rf"{_NUMBER}|{_PLACE}", "standalone": None,
        "master_addr": rf"{_HOST}|{_PLACE}", "master_port": rf"{_NUMBER}|{_PLACE}", "rdzv_backend": "c10d|static",
        "rdzv_endpoint": rf"{_HOST}(:\d+)?|{_PLACE}(:\d+)?", "rdzv_id": rf"[\w\-]+|{_PLACE}", "max_restarts": _NUMBER,
    },
    "accelerate": {
        "config_file": _PLACE, "num_processes": _NUMBER, "num_machines": _NUMBER, "multi_gpu": None, "cpu": None,
        "machine_rank": rf"{_NUMBER}|{_PLACE}", "main_process_ip": rf"{_HOST}|{_PLACE}",
        "main_process_port": rf"{_NUMBER}|{_PLACE}", "mixed_precision": "no|fp16|bf16", "use_deepspeed": None,
        "dynamo_backend": "no", "deepspeed_hostfile": _PLACE,
    },
    "deepspeed": {
        "num_gpus": _NUMBER, "num_nodes": _NUMBER, "hostfile": _PLACE, "master_addr": rf"{_HOST}|{_PLACE}",
        "master_port": rf"{_NUMBER}|{_PLACE}", "include": r"[\w.\-:,@]+", "no_local_rank": None, "no_ssh": None,
        "node_rank": rf"{_NUMBER}|{_PLACE}", "force_multi": None, "no_ssh_check": None,
    },
}  # fmt: skip
_ENVIRONMENT = re.compile(
    r"^(CUDA_(VISIBLE_DEVICES|DEVICE_ORDER|DEVICE_MAX_CONNECTIONS)|PYTORCH_(CUDA_)?ALLOC_CONF|OMP_NUM_THREADS"
    r"|TOKENIZERS_PARALLELISM|HF_HUB_OFFLINE|TRANSFORMERS_OFFLINE|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES"
    r"|NCCL_(P2P_DISABLE|P2P_LEVEL|IB_DISABLE|IB_HCA|SOCKET_IFNAME|DEBUG|NVLS_ENABLE|ALGO|PROTO|SHM_DISABLE|CUMEM_ENABLE"
    r"|MIN_NCHANNELS|MAX_NCHANNELS|IB_TIMEOUT|NET_GDR_LEVEL)|TORCH_NCCL_(BLOCKING_WAIT|ASYNC_ERROR_HANDLING|AVOID_RECORD_STREAMS)"
    r"|TORCH_SYMM_MEM_DISABLE_MULTICAST|GLOO_SOCKET_IFNAME|DS_SKIP_CUDA_CHECK|ACCELERATE_USE_CPU)$"
)
_VALUE = re.compile(r"^[\w.:,=/+\-\[\]]*$")


@dataclass(frozen=True, slots=True)
class Command:
    """What will be executed: argv and the variables set on top of the caller's environment."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]

    def shown(self) -> str:
        """As a person would type it."""
        import shlex

        settings = [f"{key}={shlex.quote(value)}" for key, value in self.environment.items()]
        return " ".join([*settings, shlex.join(self.argv)])


def _flag(name: str) -> str:
    return name.lstrip("-").replace("-", "_")


def check(launch: PlanLaunch, where: str) -> None:
    """Raise InputError unless the launch uses only known programs, flags and variables."""
    argv = launch.argv
    if not argv or argv[0] != launch.launcher:
        raise InputError(
            where, "starts a program that is no launcher of ours", field="launch.argv", found=argv[0] if argv else "",
            expected=f"{launch.launcher!r} first",
        )  # fmt: skip
    if argv.count("{script}") != 1 or argv[-1] != "{script}":
        raise InputError(where, 'must end with "{script}", once', field="launch.argv", found=" ".join(argv))
    words = list(argv[1:-1])
    if launch.launcher == "accelerate":
        if words[:1] != ["launch"]:
            raise InputError(where, "must be `accelerate launch`", field="launch.argv", found=" ".join(argv[:2]))
        words = words[1:]
    allowed = _FLAGS[launch.launcher]
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if not name.startswith("-") or _flag(name) not in allowed:
            raise InputError(
                where, f"gives {launch.launcher} a flag that a plan may not", field="launch.argv", found=word
            )
        pattern = allowed[_flag(name)]
        if pattern is None:
            if equals:
                raise InputError(where, "is a flag without a value", field="launch.argv", found=word)
            continue
        if not equals:
            value = words.pop(0) if words else ""
        if not re.fullmatch(pattern, value):
            raise InputError(where, f"has a value that {name} may not have", field="launch.argv", found=value)
    for key, value in launch.environment.items():
        if not _ENVIRONMENT.match(key) or not _VALUE.match(value):
            raise InputError(
                where, "sets a variable or value that a plan may not", field=f"launch.environment.{key}", found=value
            )


def command(step: PlanStep, payload: Sequence[str], places: Mapping[str, str], where: str) -> Command:
    """The command of a step. ``payload`` is the script and its arguments; ``places`` fills "{accelerate_config}" and
    its like, in the launcher's flags and in the payload. Raises InputError for a place that is not known here."""
    check(step.launch, where)

    def fill(word: str, *, strict: bool) -> str:
        for name, value in places.items():
            word = word.replace(f"{{{name}}}", value)
        missing = re.search(_PLACE, word) if strict else None
        if missing:
            flag = f"--{missing.group()[1:-1].replace('_', '-')}"
            raise InputError(
                where, "is for several nodes and needs a value that is not known here", field="launch.argv", found=word,
                expected=f"{flag}, or --slurm FILE for a batch script",
            )  # fmt: skip
        return word

    words = [fill(word, strict=True) for word in step.launch.argv[1:-1]]
    program = list(_PROGRAMS[step.launch.launcher])
    if step.launch.launcher == "accelerate":
        words = words[1:]
    return Command(
        argv=(*program, *words, *(fill(word, strict=False) for word in payload)),
        environment={
            **step.launch.environment,
            **({"DS_ENV_FILE": env} if (env := places.get("deepspeed_env")) else {}),
        },
    )
