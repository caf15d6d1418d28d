"""How long until an answer, cold and warm, beside the bare library calls that answer less.

Every measurement is a fresh process; the middle of ``--repeat`` runs counts. "Cold" starts from an empty cache. The bare calls
are what one would type without this program: imports, ``infer_auto_device_map`` of the meta model for the same cards,
DeepSpeed's estimate of the same model's states.

    python benchmarks/start_speed.py [--repeat N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL, HARDWARE = "Qwen/Qwen2.5-7B", "h200-x8"
_META = f"""
from accelerate import init_empty_weights, infer_auto_device_map
from transformers import AutoConfig, AutoModelForCausalLM
from advisor.models.resolve import resolve
config = AutoConfig.for_model(**resolve({MODEL!r}).config)
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(config)
"""
BARE = {
    "python -c pass": "pass",
    "import torch, transformers": "import torch, transformers",
    "infer_auto_device_map, meta model": _META
    + "room = {i: 140 << 30 for i in range(8)}\n"
    + "infer_auto_device_map(model, max_memory=room, no_split_module_classes=model._no_split_modules)",
    "DeepSpeed's ZeRO-3 estimate": _META
    + "from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as e\n"
    "n = sum(p.numel() for p in model.parameters())\n"
    "e(n, max(sum(p.numel() for p in m.parameters(recurse=False)) for m in model.modules()), 8, 1)",
}


def _seconds(command: list[str], repeat: int, cold: bool) -> float:
    taken = []
    with tempfile.TemporaryDirectory() as shared:
        for _ in range(repeat):
            with tempfile.TemporaryDirectory() as own:
                folder = own if cold else shared
                environment = os.environ | {"ADVISOR_CACHE_DIR": str(Path(folder) / "cache")}
                if not cold and not taken:
                    subprocess.run(command, env=environment, capture_output=True, cwd=shared)
                start = time.perf_counter()
                ran = subprocess.run(command, env=environment, capture_output=True, cwd=folder, text=True)
                taken.append(time.perf_counter() - start)
                if ran.returncode not in (0, 1):
                    raise SystemExit(f"{' '.join(command)}: {ran.stderr}")
    return statistics.median(taken)


def main() -> None:
    """Measure and print a table; each row of ours names the bare call that it is held against."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    bare = {name: _seconds([sys.executable, "-c", code], repeat, cold=False) for name, code in BARE.items()}
    for name, seconds in bare.items():
        print(f"{name:44}{seconds:8.2f} s")
    us = [sys.executable, "-m", "advisor"]
    work = ["--model", MODEL, "--hardware", HARDWARE, "--quiet"]
    rows = (
        ("advisor --help", [*us, "--help"], False, "python -c pass"),
        ("advisor explain FIN060", [*us, "explain", "FIN060"], False, "python -c pass"),
        ("advisor models llama (catalogue)", [*us, "models", "llama"], False, "python -c pass"),
        (
            "recommend inference, cold",
            [*us, "recommend", "-t", "inference", *work],
            True,
            "infer_auto_device_map, meta model",
        ),
        (
            "recommend inference, warm",
            [*us, "recommend", "-t", "inference", *work],
            False,
            "import torch, transformers",
        ),
        ("recommend finetune, cold", [*us, "recommend", "-t", "finetune", *work], True, "DeepSpeed's ZeRO-3 estimate"),
        ("recommend finetune, warm", [*us, "recommend", "-t", "finetune", *work], False, "import torch, transformers"),
    )
    for name, command, cold, against in rows:
        seconds = _seconds(command, repeat, cold)
        print(f"{name:44}{seconds:8.2f} s {seconds / bare[against]:7.2f} x {against}")


if __name__ == "__main__":
    main()
