"""What the search costs: the whole ``advisor recommend`` with its settings open, and with the same settings fixed.

Both run in fresh processes from an empty cache, imports and traces included. "Fixed" gives by flags what the search had
found (method, micro batch, checkpointing, optimizer, quantization), so nothing is left to be tried but the strategies. The bar
is twice the time, of all questions together.

    python benchmarks/search_cost.py [--repeat N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

BAR = 2.0
QUESTIONS = (
    ("meta-llama/Llama-2-7b-hf", "finetune", "a100-80g-x4"),
    ("Qwen/Qwen2.5-3B", "finetune", "rtx4090-x2"),
    ("meta-llama/Llama-3.1-8B", "finetune", "rtx4090-x1"),
    ("mistralai/Mistral-7B-v0.1", "inference", "rtx3090-x2"),
)


def recommend(question: tuple[str, str, str], flags: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """Seconds from start to exit with an empty cache, and the answer. Raises SystemExit when it fails."""
    model, task, hardware = question
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "advisor", "recommend", "--model", model, "--task", task]
        command += ["--hardware", hardware, "--json", "--out", str(Path(folder) / "plan.json"), *flags]
        start = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "ADVISOR_CACHE_DIR": f"{folder}/cache"}
        )
        taken = time.perf_counter() - start
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
    return taken, json.loads(done.stdout)


def fixed(answer: Mapping[str, Any], task: str) -> list[str]:
    """The flags that say what the search found."""
    decision = answer["decision"]
    settings = decision["settings"]
    flags = ["--batch-size", str(settings["micro_batch_size"])]
    if task == "inference":
        return [*flags, "--quantization", settings["quantization"] or "none"]
    samples = settings["micro_batch_size"] * settings["gradient_accumulation_steps"] * settings["gpus"]
    kept = "--gradient-checkpointing" if settings["gradient_checkpointing"] else "--no-gradient-checkpointing"
    flags += ["--method", decision["method"], kept, "--optimizer", settings["optimizer"]]
    return [*flags, "--global-batch-size", str(samples)]


def main() -> int:
    """A line a question and the ratio of the sums; 1 when it is over the bar."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=1, help="the least of so many runs counts")
    options = parser.parse_args()
    with_search = without = 0.0
    for question in QUESTIONS:
        runs = [recommend(question, ()) for _ in range(options.repeat)]
        answer = runs[0][1]
        if not answer["decision"].get("strategy"):
            raise SystemExit(f"{question}: nothing fits, there are no settings to fix")
        flags = fixed(answer, question[1])
        searched = min(taken for taken, _ in runs)
        settled = min(recommend(question, flags)[0] for _ in range(options.repeat))
        with_search, without = with_search + searched, without + settled
        print(
            f"{' '.join(question):60} {searched:5.1f} s, fixed {settled:5.1f} s: {searched / settled:.2f}", flush=True
        )
    ratio = with_search / without
    print(f"all: {with_search:.1f} s with search, {without:.1f} s without: {ratio:.2f} times (bar {BAR})")
    return 1 if ratio > BAR else 0


if __name__ == "__main__":
    raise SystemExit(main())
