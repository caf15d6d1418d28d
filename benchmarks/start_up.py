"""How fast the command line answers, against bars: seconds for the light commands, a ratio for the cold decision.

Each command runs in a fresh process, ``--repeat`` times; the smallest time counts, wall clock and CPU (user + system)
apart, because CPU time is what a machine shared with others still tells truly.

- ``advisor --help`` within 0.3 s, ``advisor explain FIN030`` within 0.5 s, both without torch
- ``advisor recommend`` for Llama-2-70b from an empty cache: at most twice the bare library work (import torch,
  transformers and accelerate, build that model on the meta device)
- the same again, from its cache: within 1.5 s

    python benchmarks/start_up.py [--repeat N]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

BARE = """
import accelerate, torch, transformers
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM, LlamaConfig
config = LlamaConfig(
    hidden_size=8192, intermediate_size=28672, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
    vocab_size=32000, max_position_embeddings=4096,
)
with init_empty_weights():
    AutoModelForCausalLM.from_config(config)
"""
NO_TORCH = """
import sys
sys.argv = ["advisor", *{words!r}]
from advisor.cli import main
try:
    main()
finally:
    assert "torch" not in sys.modules, "torch was imported"
"""
RATIO, CACHED, HELP, EXPLAIN = 2.0, 1.5, 0.3, 0.5
QUESTIONS = (("inference", "h200-x8"), ("finetune", "h200-x8"), ("finetune", "a100-40g-x2"))


def once(command: Sequence[str], environment: Mapping[str, str] | None = None) -> tuple[float, float]:
    """(wall, CPU) seconds of one run. Raises SystemExit when it fails otherwise than by "nothing fits"."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(environment or {})})
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        sys.exit(f"{' '.join(command)}: {done.stderr[-500:]}")
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def best(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The smallest wall time and the smallest CPU time."""
    return min(wall for wall, _ in times), min(cpu for _, cpu in times)


def show(what: str, found: tuple[float, float], bar: str, met: bool) -> bool:
    """One line; whether the bar is met."""
    print(f"{what:<52} {found[0]:6.2f} s wall {found[1]:6.2f} s CPU   bar {bar:<24} {'met' if met else 'MISSED'}")
    return met


def light(repeat: int) -> bool:
    """Help and explain, by CPU time, and that neither loads torch."""
    kept = True
    for words, bar in ((["--help"], HELP), (["explain", "FIN030"], EXPLAIN)):
        once([sys.executable, "-c", NO_TORCH.format(words=words)])
        found = best([once([sys.executable, "-m", "advisor", *words]) for _ in range(repeat)])
        kept &= show(f"advisor {' '.join(words)}", found, f"{bar} s", found[1] <= bar)
    return kept


def decisions(repeat: int) -> bool:
    """Cold decisions against the bare libraries, and again from their cache."""
    bare = best([once([sys.executable, "-c", BARE]) for _ in range(repeat)])
    print(f"{'bare library work':<52} {bare[0]:6.2f} s wall {bare[1]:6.2f} s CPU")
    kept = True
    for task, hardware in QUESTIONS:
        cold, warm = [], []
        for _ in range(repeat):
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "advisor", "recommend", "--model", "meta-llama/Llama-2-70b", "--task"]
                command += [task, "--hardware", hardware, "--out", str(Path(folder) / "plan.json")]
                environment = {"ADVISOR_CACHE_DIR": f"{folder}/cache"}
                cold.append(once(command, environment))
                warm.append(once(command, environment))
        first, again = best(cold), best(warm)
        ratio = first[1] / bare[1]
        what = f"recommend 70B {task} {hardware}"
        kept &= show(f"{what}, cold", first, f"{RATIO:.0f} x bare, is {ratio:.2f} x", ratio <= RATIO)
        kept &= show(f"{what}, cached", again, f"{CACHED} s", again[1] <= CACHED)
    return kept


def main() -> None:
    """Measure everything; exit 1 when a bar is missed."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeat", type=int, default=3)
    repeat = arguments.parse_args().repeat
    results = [light(repeat), decisions(repeat)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
