"""Runs of hand-made plans, for the tests beside this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.execute.apply import Result, apply_step
from advisor.execute.guard import RUN_ID
from advisor.execute.options import Hooks, Options
from advisor.hardware.profile import HardwareProfile
from advisor.job import Job
from advisor.plan import read_plan, write_plan
from tests.execute.plans import plan_of

HERE = HardwareProfile(name="cpu")


def apply(folder: Path, job: Job, hooks: Hooks | None = None, path: Path | None = None, options: dict[str, Any] | None = None,
          load_from: Path | None = None, **step: Any) -> Result:  # fmt: skip
    """Write the job's plan, read it again, run it."""
    folder.mkdir(exist_ok=True)
    plan_file = folder / "plan.json"
    write_plan(plan_of(job, path=str(path) if path else None, **step), plan_file)
    plan = read_plan(plan_file)
    given = {"keep_record": False, "output": folder / "out", "time_limit": 900, **(options or {})}
    return apply_step(plan, plan_file, plan.steps[0], Options(**given), HERE, hooks, load_from)


def rehearse(folder: Path, job: Job, hooks: Hooks | None = None, **step: Any) -> Result:
    """The same with random weights."""
    return apply(folder, job, hooks, options={"rehearse": True}, **step)


def left_over() -> list[int]:
    """Processes of any run that still live."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and RUN_ID in process.environ():
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found
