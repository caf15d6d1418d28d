"""What a batch system granted a job on this node: Slurm, PBS and LSF.

Grants are often enforced by control groups, which are read as well; where they are not, the grant is all there is.
(Grid Engine's h_vmem becomes the address-space limit of the process, which is read like any other.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.hardware.readings import Readings
from advisor.units import KIB, MIB


@dataclass(frozen=True)
class Limit:
    """Bytes that a program may still take, and what says so."""

    amount: int
    reason: str


def grants(readings: Readings, environment: dict[str, str]) -> Iterator[Limit]:
    """Memory that the batch system of this job granted on this node."""
    yield from _slurm(environment)
    if job := environment.get("PBS_JOBID"):
        yield from _pbs(readings, job)
    if job := environment.get("LSB_JOBID"):
        yield from _lsf(readings, job)


def _slurm(environment: dict[str, str]) -> Iterator[Limit]:
    """sbatch's output variables: MiB a node, a core or a GPU; 0 means all of the node."""
    if node := _count(environment.get("SLURM_MEM_PER_NODE")):
        yield Limit(node * MIB, "SLURM_MEM_PER_NODE")
    for each, number in (("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"), ("SLURM_MEM_PER_GPU", "SLURM_GPUS_ON_NODE")):
        amount, times = _count(environment.get(each)), _count(environment.get(number))
        if amount and times:
            yield Limit(amount * times * MIB, f"{each} x {number}")


def _pbs(readings: Readings, job: str) -> Iterator[Limit]:
    """PBS sets no variable for memory: its own record of the job has the sum over the nodes."""
    text = readings.ask("command", "qstat", "-f", job) or ""
    memory = re.search(r"^\s*Resource_List\.mem = (\S+)", text, re.MULTILINE)
    nodes = re.search(r"^\s*Resource_List\.nodect = (\d+)", text, re.MULTILINE)
    amount = _size(memory[1]) if memory else None
    if amount:
        yield Limit(amount // max(1, int(nodes[1]) if nodes else 1), "PBS Resource_List.mem, a node")


def _lsf(readings: Readings, job: str) -> Iterator[Limit]:
    """LSF's limit is one of each host ("-" where there is none)."""
    text = readings.ask("command", "bjobs", "-noheader", "-o", "memlimit", job) or ""
    amount = _size(text.strip())
    if amount:
        yield Limit(amount, "LSF memlimit")


def _size(text: str) -> int | None:
    """Bytes of "64gb", "512mb" (PBS) or "16 G" (LSF): powers of 1024 in both."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)b?", text.lower())
    return int(float(match[1]) * KIB ** ("", "k", "m", "g", "t").index(match[2])) if match else None


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d+", text.strip()) else None
