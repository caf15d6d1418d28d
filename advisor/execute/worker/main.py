"""A rank's life: read the plan, do the step, say how it went."""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from advisor.execute.status import Status
from advisor.plan import read_plan


class Task(BaseModel):
    """What the supervisor hands a worker (a JSON file, its last argument). ``plan`` has the one step to do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: str
    status: str
    rehearse: bool = False
    steps: int | None = None  # optimizer steps; None: the whole data
    epochs: float = 1.0
    learning_rate: float | None = None
    data: str | None = None
    packed: bool = False
    output: str
    resume: str | None = None
    prompts: str | None = None  # a file that the supervisor appends prompts to; a line {"end": true} ends it
    load_from: str | None = None  # a folder that replaces the plan's model (staged work)
    deepspeed_config: str | None = None
    trust_remote_code: bool = False
    allocator_cap: int | None = None  # bytes the allocator may take on each card
    seed: int = 0
    save_every: int | None = None


def main() -> None:
    """Entry point of every rank."""
    task = Task.model_validate_json(Path(sys.argv[-1]).read_text(encoding="utf-8"))
    rank = int(os.environ.get("RANK", "0"))
    status = Status(Path(task.status), rank)
    status.write("start", pid=os.getpid(), host=socket.gethostname())
    try:
        _work(task, status)
    except BaseException as error:  # noqa: BLE001 - a rank's last word must be told to the supervisor, whatever it is
        kind, message = _cause(error)
        status.write("error", kind=kind, message=message, trace=traceback.format_exc()[-6000:], peaks=_peaks())
        sys.stdout.flush()
        sys.stderr.flush()
        # A normal exit would wait in destroy_process_group for ranks that wait for this one.
        os._exit(1)
    status.write("done", peaks=_peaks())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _work(task: Task, status: Status) -> None:
    plan = read_plan(Path(task.plan))
    step = plan.main
    _quiet()
    started = time.monotonic()
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if task.allocator_cap:
            for index in range(torch.cuda.device_count()):
                total = torch.cuda.get_device_properties(index).total_memory
                torch.cuda.set_per_process_memory_fraction(min(1.0, task.allocator_cap / total), index)
    status.write("imported", seconds=time.monotonic() - started)
    if step.job.trains:
        from advisor.execute.worker.train import train

        train(plan, step, task, status)
    else:
        from advisor.execute.worker.generate import generate

        generate(plan, step, task, status)


def _quiet() -> None:
    import logging
    import warnings

    warnings.filterwarnings("ignore", category=FutureWarning)
    logging.getLogger("transformers").setLevel(logging.ERROR)


def _cause(error: BaseException) -> tuple[str, str]:
    """The kind of end and a sentence's predicate."""
    name = type(error).__name__
    text = str(error).strip().split("\n")[0][:400]
    if name == "OutOfMemoryError" or "CUDA out of memory" in text:
        return "oom", f"ran out of GPU memory: {text}"
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    if full or "No space left on device" in str(error):  # libraries pass it on as errors of their own
        return "disk_full", f"found the disk full: {text}"
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        return "host_oom", f"ran out of host RAM: {text}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "was interrupted"
    return "failed", f"failed: {name}: {text}"


def _peaks() -> dict[str, Any]:
    """This process's peaks by torch, bytes a card; empty without a GPU."""
    import torch

    if not torch.cuda.is_available():
        return {}
    count = torch.cuda.device_count()
    index = torch.cuda.current_device()
    free, total = torch.cuda.mem_get_info(index)
    return {
        "device": index,
        "allocated": [torch.cuda.max_memory_allocated(card) for card in range(count)],
        "reserved": [torch.cuda.max_memory_reserved(card) for card in range(count)],
        "runtime": total - free - torch.cuda.memory_reserved(index),
    }
