"""A Slurm batch script that applies a plan on every node; written, and submitted only when that is asked for."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from advisor.errors import InputError, RunError
from advisor.files import write_whole
from advisor.plan import Plan

# srun starts one supervisor a node; each starts the ranks of its own node, and torchrun joins them.
_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=advisor
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --output=advisor-%j.log
set -euo pipefail
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export ADVISOR_FIRST_NODE="$first"
srun --kill-on-bad-exit=1 bash -c {line}
"""


def batch_script(plan: Plan, path: Path, arguments: Sequence[str], script: Sequence[str]) -> str:
    """The script's text. ``arguments`` are the other options of ``advisor apply``; they are quoted, never expanded."""
    job = plan.main.job
    if not plan.main.promise.gpus:
        raise InputError(str(path), "uses no GPU, so there is nothing to ask Slurm for")
    words = [sys.executable, "-m", "advisor", "apply", str(path.absolute()), *arguments]
    joined = shlex.join(words)
    if job.nodes > 1:
        joined += ' --launcher torchrun --node-rank "$SLURM_NODEID" --master-addr "$ADVISOR_FIRST_NODE"'
    if script:
        joined += f" -- {shlex.join(script)}"
    return _SCRIPT.format(nodes=job.nodes, gpus=max(1, job.gpus // job.nodes), line=shlex.quote(f"exec {joined}"))


def write_batch_script(text: str, path: Path) -> None:
    """Write it, never over a file that is no batch script. Raises InputError then."""
    if path.exists() and "#SBATCH" not in path.read_text(encoding="utf-8", errors="replace"):
        raise InputError(str(path), "exists and is no Slurm script, so it is left alone", field="--slurm")
    write_whole(path, text)


def submit(path: Path) -> str:
    """Hand the script to ``sbatch``; returns what it says. Raises InputError without Slurm, RunError when it refuses."""
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise InputError("--submit", "needs Slurm's sbatch, which is not on this machine", expected="no --submit")
    done = subprocess.run([sbatch, str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RunError(f"sbatch refused {path}: {done.stderr.strip()}")
    return done.stdout.strip()
