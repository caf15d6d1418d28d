"""How long ``advisor probe`` takes without measuring, in a fresh process, and where the time goes.

    python benchmarks/probe_speed.py [--rounds 7] [--replay DIR]

Prints every round, the median and what stands behind it: the interpreter alone, the imports, each reading. Exit code 1
when the median is not under a second or torch (or its like) was imported.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

BAR = 1.0  # seconds
HEAVY = ("torch", "transformers", "accelerate", "deepspeed", "numpy")

# Runs the command as a user would, and tells at the end what it imported.
_CHILD = f"""
import sys
from advisor.cli import app
try:
    app(["probe", "--json", *sys.argv[1:]], standalone_mode=False)
finally:
    sys.stderr.write("imported: " + ",".join(name for name in {HEAVY!r} if name in sys.modules))
"""
# Each reading alone, in order, without the head start that a probe gives the slow ones.
_READINGS = """
import json, os, sys, time
start = time.perf_counter()
from advisor.hardware.probe import probe
from advisor.hardware.readings import Live
from advisor.hardware.software import nvcc_command
found = {"imports": time.perf_counter() - start}
questions = [("nvml",), ("system", "."), ("packages",), ("displays",), ("mounts",),
             ("command", *nvcc_command(dict(os.environ)))]
machine = Live()
for question in questions:
    start = time.perf_counter()
    machine.ask(*question)
    found[" ".join(question)] = time.perf_counter() - start
start = time.perf_counter()
probe(machine)
found["a whole probe, all loaded"] = time.perf_counter() - start
json.dump(found, sys.stdout)
"""


def timed(command: list[str]) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Seconds of a process from start to end, and what it said."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--replay", help="read a recorded probe, not this machine")
    options = parser.parse_args()
    extra = ["--replay", options.replay] if options.replay else []
    python, _ = timed([sys.executable, "-c", "pass"])
    before = os.times()
    rounds = [timed([sys.executable, "-c", _CHILD, *extra]) for _ in range(options.rounds)]
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    seconds = [taken for taken, _ in rounds]
    imported = {done.stderr.rpartition("imported: ")[2] for _, done in rounds} - {""}
    median = statistics.median(seconds)
    print(f"advisor probe --json: {', '.join(f'{taken:.2f}' for taken in seconds)} s; median {median:.2f} s")
    print(f"processor time: {busy / options.rounds:.2f} s a round (that is what it takes on a machine at rest)")
    print(f"python -c pass: {python:.2f} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    _, parts = timed([sys.executable, "-c", _READINGS])
    for name, taken in json.loads(parts.stdout).items():
        print(f"  {name}: {taken * 1e3:.1f} ms")
    print(f"imported: {', '.join(sorted(imported)) or 'none of the heavy libraries'}")
    return int(median >= BAR or bool(imported))


if __name__ == "__main__":
    sys.exit(main())
