"""Several nodes as one profile: by DeepSpeed's hostfile over ssh, or from probes that were taken on each.

A job over all nodes waits for the slowest and fits only the smallest, so the joined profile is the weakest of each
number, and the notes say what differs.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from advisor.errors import InputError, RunError
from advisor.hardware.load import read_profile, select
from advisor.hardware.profile import Gpu, HardwareProfile, Host, Measured
from advisor.hardware.software import CPU_ADAM, missing_for_op
from advisor.units import format_bytes, format_rate

SSH_SECONDS = 60
Model = TypeVar("Model", bound=BaseModel)


def read_hostfile(path: Path) -> list[tuple[str, int]]:
    """Hosts and their slots. Raises InputError naming the line for anything but ``HOST slots=N``."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read ({error})") from error
    hosts: list[tuple[str, int]] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        # A host that begins with a dash would be read as an option by ssh.
        match = re.fullmatch(r"([\w.@:\[\]][\w.@:\[\]-]*)\s+slots=(\d+)", text)
        if not match or int(match[2]) < 1:
            raise InputError(str(path), "is no host", field=f"line {number}", found=text, expected="HOST slots=N")
        if any(match[1] == host for host, _ in hosts):
            raise InputError(str(path), "names a host twice", field=f"line {number}", found=match[1])
        hosts.append((match[1], int(match[2])))
    if not hosts:
        raise InputError(str(path), "names no host", expected="lines such as `worker-1 slots=8`")
    return hosts


def probe_hosts(hosts: Sequence[tuple[str, int]]) -> list[HardwareProfile]:
    """A probe of each host by ssh, cut to its slots. Raises RunError naming the host that did not answer."""
    with ThreadPoolExecutor(max_workers=min(32, len(hosts))) as pool:
        return list(pool.map(lambda host: _probe_host(*host), hosts))


def _probe_host(host: str, slots: int) -> HardwareProfile:
    # The same environment, where it lies at the same place (DeepSpeed's launcher expects that, too), else the PATH's.
    python = shlex.quote(sys.executable)
    remote = f"if test -x {python}; then {python} -m advisor probe --json; else advisor probe --json; fi"
    command = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", host, remote]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SSH_SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RunError(f"{host}: ssh failed ({error})") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(f"{host}: `advisor probe --json` by ssh ended with {done.returncode} ({last})")
    profiles = _parse(done.stdout, host)
    if len(profiles) != 1:
        raise RunError(f"{host}: expected one profile by ssh, found {len(profiles)}")
    profile = profiles[0].model_copy(update={"name": host, "here": False})
    there = len(profile.cards)
    if slots > there:
        raise InputError(
            "--hostfile", f"gives {host} more slots than it shows GPUs", found=f"slots={slots}",
            expected=f"at most slots={there}" if there else "a host with GPUs",
        )  # fmt: skip
    return select(profile, gpus=slots)


def read_merged(sources: Sequence[str]) -> list[HardwareProfile]:
    """Profiles from files, and from one JSON value after another on stdin ("-"), as srun prints them."""
    profiles: list[HardwareProfile] = []
    for source in sources:
        profiles += _parse(sys.stdin.read(), "stdin") if source == "-" else [read_profile(Path(source))]
    if not profiles:
        raise InputError("--merge", "found no profile", expected="what `advisor probe --json` prints")
    return _named(profiles)


def _named(profiles: Sequence[HardwareProfile]) -> list[HardwareProfile]:
    """Each under a name that tells it apart: its node's, numbered where several have the same."""
    names = [profile.host.name or profile.name for profile in profiles]
    return [
        profile.model_copy(
            update={"name": name if names.count(name) == 1 else f"{name} #{names[: index + 1].count(name)}"}
        )
        for index, (profile, name) in enumerate(zip(profiles, names, strict=True))
    ]


def _parse(text: str, where: str) -> list[HardwareProfile]:
    decoder, position, profiles = json.JSONDecoder(), 0, list[HardwareProfile]()
    while (match := re.compile(r"\s*").match(text, position)) and match.end() < len(text):
        try:
            value, position = decoder.raw_decode(text, match.end())
            profiles.append(HardwareProfile.model_validate(value))
        except (json.JSONDecodeError, ValidationError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(where, f"holds no profile ({reason})", expected="advisor probe --json") from error
    return profiles


def join(nodes: Sequence[HardwareProfile]) -> HardwareProfile:
    """One profile of all nodes, each as weak as the weakest. Notes name every difference."""
    weakest = min(nodes, key=lambda node: (len(node.cards), min(node.capacities, default=0)))
    # Operators must be built on every node: one that cannot decides.
    unable = next((node for node in nodes if missing_for_op(node.software, CPU_ADAM)), weakest)
    total = sum(node.nodes for node in nodes)
    notes = [f"{node.name}: {note}" for node in nodes for note in node.notes]
    return weakest.model_copy(
        update={
            "name": f"{total} node{'s' if total > 1 else ''}",
            "description": "joined from " + ", ".join(node.name for node in nodes),
            "nodes": total,
            "gpus": tuple(
                _weakest([node.cards[index] for node in nodes], _ability) for index in range(len(weakest.cards))
            ),
            "host": _weakest([node.host for node in nodes], _room).model_copy(update={"name": None}),
            "links": _weakest([node.links for node in nodes], lambda links: links.gpu_to_gpu or 0.0),
            "disk": _weakest([node.disk for node in nodes], lambda disk: disk.free or 0),
            "software": unable.software,
            "measured": _measured(nodes),
            "here": False,
            "notes": (*differences(nodes), *notes),
        }
    )  # fmt: skip


def _ability(card: Gpu) -> tuple[Any, ...]:
    return card.capability or (0, 0), card.memory_total


def _room(host: Host) -> int:
    return host.memory_available or 0


def _measured(nodes: Sequence[HardwareProfile]) -> Measured | None:
    """The worst of each, where all nodes were measured."""
    found = [node.measured for node in nodes if node.measured]
    return _weakest(found, lambda item: item.host_to_gpu or 0.0) if len(found) == len(nodes) else None


# Of these the larger is the worse.
_WORSE_WHEN_MORE = (
    "unified_memory", "mig", "wsl", "memory_held",
    "context_bytes", "nccl_bytes", "launch_seconds", "context_only_bytes",
)  # fmt: skip


def _weakest(items: Sequence[Model], key: Callable[[Model], Any]) -> Model:
    """The least of every number, and False where one says so; unknown on one node is unknown. What is no number (a
    name, a kind) comes from the item with the least ``key``."""
    weakest = min(items, key=key)
    changes: dict[str, Any] = {}
    for name in type(weakest).model_fields:
        values = [getattr(item, name) for item in items]
        if all(value is None or isinstance(value, (int, float)) for value in values):
            known = [value for value in values if value is not None]
            # A limit that is None is no limit: the others' holds.
            complete = len(known) == len(values) or name == "pinned_limit"
            worst = max if name in _WORSE_WHEN_MORE else min
            changes[name] = worst(known) if known and complete else None
    return weakest.model_copy(update=changes)


def differences(nodes: Sequence[HardwareProfile]) -> list[str]:
    """What is not the same on every node, one line a fact."""
    facts: dict[str, list[Any]] = {
        "GPUs": [_kinds(card.name for card in node.cards) for node in nodes],
        "GPU memory": [_kinds(format_bytes(card.memory_total) for card in node.cards) for node in nodes],
        "host memory": [format_bytes(node.host.memory_total) for node in nodes],
        "cores": [node.host.cpus for node in nodes],
        "GPU to GPU": [node.links.gpu_to_gpu_kind for node in nodes],
        "network": [
            f"{node.links.network_kind} {format_rate(node.links.network)}" if node.links.network_kind else None
            for node in nodes
        ],
        "driver": [node.software.driver for node in nodes],
        "CUDA": [node.software.cuda for node in nodes],
        "Python": [node.software.python for node in nodes],
    }
    for package in sorted({name for node in nodes for name in node.software.packages}):
        facts[package] = [node.software.packages.get(package) for node in nodes]
    return [
        f"{name} differs: "
        + ", ".join(
            f"{node.name} {'none' if value is None else value}" for node, value in zip(nodes, values, strict=True)
        )
        for name, values in facts.items()
        if any(value != values[0] for value in values)
    ]


def _kinds(names: Iterable[str]) -> str:
    """As "8 x NVIDIA H200", several kinds joined by a plus."""
    counted = Counter(names)
    return " + ".join(f"{count} x {name}" for name, count in counted.items()) or "none"
