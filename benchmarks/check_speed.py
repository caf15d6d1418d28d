"""How long ``advisor check`` takes on a repository of 200 files, beside bare ``ast.parse`` of the same Python files.

    python benchmarks/check_speed.py [--files 200] [--keep FOLDER]

Makes the repository, runs the command in a fresh process with sockets forbidden, and prints the best of five, the ratio,
and whether torch was imported. Exit code 1 above a second of CPU for 200 files, or with torch or a socket.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR = 1.0  # seconds for 200 files
ROUNDS = 5

# Runs in the child: no socket may be opened, and what was imported is told at the end on stderr.
_CHILD = """
import socket, sys
def refuse(*args, **kwargs):
    raise OSError("a check opens no socket")
socket.socket.connect = refuse
from advisor.cli import app
code = 0
try:
    app(["check", sys.argv[1], "--format", "json", "--exit-zero"], standalone_mode=False)
except SystemExit as end:
    code = int(end.code or 0)
heavy = [name for name in ("torch", "transformers", "accelerate", "deepspeed", "numpy") if name in sys.modules]
sys.stderr.write("imported: " + (", ".join(heavy) or "none of the heavy libraries"))
sys.exit(code)
"""
_PARSE = """
import ast, pathlib, sys
for path in pathlib.Path(sys.argv[1]).rglob("*.py"):
    ast.parse(path.read_bytes())
"""

_SCRIPT = '''"""Fine-tune number {number}."""

import argparse
import logging
from dataclasses import dataclass, field

import torch
from datasets import load_dataset
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

logger = logging.getLogger(__name__)


@dataclass
class Options:
    """What the script takes."""

    model: str = field(default="meta-llama/Llama-2-7b-hf", metadata={{"help": "Model to train."}})
    rank: int = field(default={number} % 64 + 1)
    dataset: str = "wikitext"
    blocks: int = 1024


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", default="out/{number}")
    parser.add_argument("--micro-batch", type=int, default=2)
    parser.add_argument("--epochs", type=float, default=1.0)
    return parser.parse_args()


def tokenize(examples, tokenizer, length):
    rows = tokenizer(examples["text"], truncation=True, max_length=length)
    rows["labels"] = [list(row) for row in rows["input_ids"]]
    return rows


def build(options: Options):
    kwargs = {{"torch_dtype": torch.bfloat16, "attn_implementation": "sdpa"}}
    model = AutoModelForCausalLM.from_pretrained(options.model, **kwargs)
    config = LoraConfig(r=options.rank, lora_alpha=2 * options.rank, target_modules="all-linear")
    return get_peft_model(model, config)


class Callback:
    """Counts steps."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step_end(self, state) -> None:
        self.steps += 1
        if self.steps % 100 == 0:
            logger.info(f"step {{self.steps}} of {{state.max_steps}}")


def main() -> None:
    arguments = parse()
    options = Options()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    rows = load_dataset(options.dataset, split="train").map(lambda batch: tokenize(batch, tokenizer, options.blocks))
    training = TrainingArguments(
        output_dir=arguments.output,
        per_device_train_batch_size=arguments.micro_batch,
        gradient_accumulation_steps=8,
        num_train_epochs=arguments.epochs,
        bf16=True,
        learning_rate=2e-4,
        logging_steps=10,
    )
    trainer = Trainer(
        model=build(options),
        args=training,
        train_dataset=rows,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
'''
_LIBRARY = "\n\n".join(
    f"def step_{number}(values, scale={number}):\n"
    f"    total = 0\n"
    f"    for index, value in enumerate(values):\n"
    f"        if value > scale and index % 2:\n"
    f"            total += value * {number} - index\n"
    f"    return {{'total': total, 'mean': total / max(1, len(values))}}\n"
    for number in range(25)
)
_DEEPSPEED = {
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": True},
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
}
_ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
_LAUNCH = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
set -euo pipefail
export OMP_NUM_THREADS=8
torchrun --nproc_per_node 8 train_{number}.py --output out/{number} --micro-batch 2
"""


def make_repository(folder: Path, files: int) -> int:
    """Of ten files: five scripts, two modules without any training, a launch line, a config, a notebook. Their bytes."""
    for number in range(files):
        kind = number % 10
        room = folder / f"room_{number // 20}"
        room.mkdir(parents=True, exist_ok=True)
        if kind < 5:
            (room / f"train_{number}.py").write_text(_SCRIPT.format(number=number))
        elif kind < 7:
            (room / f"steps_{number}.py").write_text(_LIBRARY)
        elif kind == 7:
            (room / f"launch_{number}.sh").write_text(_LAUNCH.format(number=number - kind))
        elif kind == 8 and number % 20 == 8:
            (room / f"ds_{number}.json").write_text(json.dumps(_DEEPSPEED, indent=2))
        elif kind == 8:
            (room / f"accelerate_{number}.yaml").write_text(_ACCELERATE)
        else:
            cells = [
                {"cell_type": "code", "metadata": {}, "outputs": [], "source": text.splitlines(keepends=True)}
                for text in _SCRIPT.format(number=number).split("\n\n\n")
            ]
            notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
            (room / f"explore_{number}.ipynb").write_text(json.dumps(notebook, indent=1))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def best(script: str, folder: Path) -> tuple[float, float, str, str]:
    """Wall and CPU seconds of the fastest of ``ROUNDS`` fresh processes, its stdout and stderr. Raises on a failed run."""
    fastest = (float("inf"), float("inf"), "", "")
    for _ in range(ROUNDS):
        before, start = _cpu(), time.perf_counter()
        done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, check=True)
        wall = time.perf_counter() - start
        fastest = min(fastest, (wall, _cpu() - before, done.stdout, done.stderr))
    return fastest


def _cpu() -> float:
    """CPU seconds of all children so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Measure and print; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="Make the repository here and keep it.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch) / "repository"
        size = make_repository(folder, options.files)
        wall, cpu, out, err = best(_CHILD, folder)
        bare, bare_cpu, _, _ = best(_PARSE, folder)
    summary = json.loads(out)["summary"]
    print(f"{options.files} files, {size / 1000:.0f} kB; {summary['files']} read, {summary['errors']} errors, "
          f"{summary['warnings']} warnings")  # fmt: skip
    print(f"advisor check     {wall:.2f} s, {cpu:.2f} s of CPU ({err.strip()})")
    print(f"bare ast.parse    {bare:.2f} s, {bare_cpu:.2f} s of CPU; ratio {cpu / bare_cpu:.1f}")
    # One thread does it all, so on a machine that does nothing else the CPU seconds are the wall's.
    bar = BAR * options.files / 200
    met = cpu < bar and "torch" not in err
    print(f"bar               {bar:.2f} s of CPU, {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
