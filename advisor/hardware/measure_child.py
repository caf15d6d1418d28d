"""The tests themselves, run by ``advisor.hardware.measure`` in a process of its own: ``TEST ARGUMENTS-AS-JSON``.

Rates are bytes/s and FLOP/s: the best of several repeats, as the question is what the link can do. Each result is
printed as soon as it is known, so that a test that hangs later loses nothing.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from advisor.hardware.measure import MARK

BLOCK = 256 << 20  # bytes a copy
DISK_BYTES = 512 << 20
CHUNK = 8 << 20
MATRIX = 8192
PR_SET_PDEATHSIG = 1


def report(**found: Any) -> None:
    """One result line."""
    sys.stdout.write(MARK + json.dumps(found) + "\n")
    sys.stdout.flush()


def die_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends (Linux)."""
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before we asked
        sys.exit(1)


def best(action: Callable[[], object], wait: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of the fastest of ``repeats`` runs, after one that warms up."""
    times = []
    for _ in range(repeats + 1):
        wait()
        start = time.perf_counter()
        action()
        wait()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def disk(arguments: dict[str, Any]) -> None:
    """Write a file and read it back past the page cache: O_DIRECT where the disk allows it, else dropped pages."""
    folder = Path(arguments["folder"])
    state = os.statvfs(folder)
    size = min(DISK_BYTES, state.f_bavail * state.f_frsize // 4) // CHUNK * CHUNK
    buffer = mmap.mmap(-1, CHUNK)  # page-aligned, as O_DIRECT demands
    buffer.write(os.urandom(CHUNK))
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".advisor-measure-") as file:
        start = time.perf_counter()
        for _ in range(size // CHUNK):
            file.write(buffer)
        file.flush()
        os.fsync(file.fileno())
        report(disk_write=size / (time.perf_counter() - start))
        try:
            descriptor = os.open(file.name, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
        except OSError:
            descriptor = os.open(file.name, os.O_RDONLY)
        try:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            start = time.perf_counter()
            while os.readv(descriptor, [buffer]):
                continue
            report(disk_read=size / (time.perf_counter() - start))
        finally:
            os.close(descriptor)


def host(arguments: dict[str, Any]) -> None:
    """A copy by all cores; every byte is read once and written once."""
    import torch

    size = min(1 << 30, (arguments["memory"] or 1 << 30) // 8)
    source, target = torch.ones(size, dtype=torch.uint8), torch.empty(size, dtype=torch.uint8)
    seconds = best(lambda: target.copy_(source), lambda: None)
    report(host_memory_bandwidth=2 * size / seconds)


def card(arguments: dict[str, Any]) -> None:
    """Context bytes, copies, matrix products and launches on the first card; copies to the second."""
    import torch

    from advisor.hardware.nvml import used_bytes_of

    uuid = arguments["uuids"][0] if arguments["uuids"] else ""
    before = used_bytes_of(uuid)
    wait = torch.cuda.synchronize
    torch.zeros(1, device="cuda")
    wait()

    def outside() -> int | None:
        used = used_bytes_of(uuid)
        return None if used is None or before is None else used - before - torch.cuda.memory_reserved()

    report(context_only_bytes=outside())
    flops = _matrix_rate(torch)
    # By now cuBLAS and the kernel modules are loaded, as in a run.
    report(context_bytes=outside(), **({"bf16_flops": flops} if _bf16(torch) else {}))

    pinned = torch.empty(BLOCK, dtype=torch.uint8, pin_memory=True)
    near = torch.empty(BLOCK, dtype=torch.uint8, device="cuda")
    other = torch.empty_like(near)
    report(host_to_gpu=BLOCK / best(lambda: near.copy_(pinned, non_blocking=True), wait))
    report(gpu_to_host=BLOCK / best(lambda: pinned.copy_(near, non_blocking=True), wait))
    # Counted as a kernel sees it: every byte read and written.
    report(gpu_memory_bandwidth=2 * BLOCK / best(lambda: other.copy_(near), wait, repeats=20))

    small = torch.zeros(16, device="cuda")
    launches = 2000
    torch.cuda.synchronize()
    for _ in range(launches):
        small.add_(1)
    wait()
    start = time.perf_counter()
    for _ in range(launches):
        small.add_(1)
    # Not waited for: this is the CPU's time to launch, not the kernel's.
    report(launch_seconds=(time.perf_counter() - start) / launches)
    wait()
    if arguments["cards"] > 1:
        far = torch.empty(BLOCK, dtype=torch.uint8, device="cuda:1")

        def wait_both() -> None:
            torch.cuda.synchronize(0)
            torch.cuda.synchronize(1)

        report(gpu_to_gpu=BLOCK / best(lambda: far.copy_(near, non_blocking=True), wait_both))


def _matrix_rate(torch: Any) -> float:
    """FLOP/s of a large square product in the card's half precision."""
    left = torch.randn(MATRIX, MATRIX, device="cuda").to(torch.bfloat16 if _bf16(torch) else torch.float16)
    out = torch.empty_like(left)
    return 2 * MATRIX**3 / best(lambda: torch.mm(left, left, out=out), torch.cuda.synchronize, repeats=20)


def _bf16(torch: Any) -> bool:
    return bool(torch.cuda.get_device_capability()[0] >= 8)


def group(arguments: dict[str, Any]) -> None:
    """All-reduce over all cards: one rank a card, in this process's session."""
    import torch.multiprocessing as mp

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(_rank, args=(arguments["cards"], port, arguments["uuids"], os.getpid()), nprocs=arguments["cards"])


def _rank(rank: int, world: int, port: int, uuids: list[str], parent: int) -> None:
    die_with(parent)
    import datetime

    import torch
    import torch.distributed as dist

    from advisor.hardware.nvml import used_bytes_of

    torch.cuda.set_device(rank)
    # Everything that is not NCCL's is there before the first look: context, kernel modules, the buffer.
    data = torch.ones(BLOCK // 4, device="cuda")
    data.add_(1)
    torch.cuda.synchronize()
    before = used_bytes_of(uuids[rank]) if rank < len(uuids) else None
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world,
        timeout=datetime.timedelta(seconds=40), device_id=torch.device("cuda", rank),
    )  # fmt: skip
    seconds = best(lambda: dist.all_reduce(data), torch.cuda.synchronize)
    after = used_bytes_of(uuids[rank]) if rank < len(uuids) else None
    if rank == 0:
        nccl = None if before is None or after is None else after - before
        # Bus bandwidth: what a ring moves over each link, 2 (n - 1) / n times the buffer.
        report(nccl_bytes=nccl, all_reduce=2 * (world - 1) / world * data.numel() * 4 / seconds)
    dist.destroy_process_group()


TESTS = {"disk": disk, "host": host, "card": card, "group": group}

if __name__ == "__main__":
    die_with(int(os.environ["ADVISOR_PARENT"]))
    TESTS[sys.argv[1]](json.loads(sys.argv[2]))
