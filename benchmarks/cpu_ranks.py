"""What DeepSpeed really keeps on each of many ranks, beside what advisor says it keeps.

GPUs are not needed: partitioning is the same on CPU ranks that talk by gloo. Each rank builds a small random Llama, takes two
steps under ZeRO, and counts the bytes of its partition by part. Printed as ratios, advisor's figure over the engine's:

    python benchmarks/cpu_ranks.py [--ranks 2,4,8] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CONFIG: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "vocab_size": 2000,
    "tie_word_embeddings": False,
}
CASES: dict[str, dict[str, Any]] = {
    "zero2": {"stage": 2},
    "zero3": {"stage": 3, "stage3_param_persistence_threshold": 0},
}


def child(case: str, out: str) -> None:
    """One rank: two steps, then the bytes it holds, by part; rank 0 writes them all to ``out``."""
    import deepspeed  # type: ignore[import-untyped]
    import torch
    from torch import distributed
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).to(torch.bfloat16)
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
            "zero_optimization": CASES[case],
            "zero_force_ds_cpu_optimizer": False,
        },
    )
    ids = torch.randint(
        0, CONFIG["vocab_size"], (1, 32), generator=torch.Generator().manual_seed(distributed.get_rank())
    )
    for _ in range(2):
        engine.backward(engine(input_ids=ids, labels=ids).loss)
        engine.step()
    optimizer = engine.optimizer
    stage = CASES[case]["stage"]
    if stage == 3:
        weights = sum(p.ds_tensor.numel() * p.ds_tensor.element_size() for p in engine.module.parameters())
        masters = optimizer.fp32_partitioned_groups_flat
    else:
        weights = sum(p.numel() * p.element_size() for p in engine.module.parameters())
        masters = optimizer.single_partition_of_fp32_groups
    inner: Any = optimizer.optimizer
    found = {
        "parameters": sum(getattr(p, "ds_numel", p.numel()) for p in engine.module.parameters()),
        "weights": weights,
        "master and states": sum(t.numel() * t.element_size() for t in masters)
        + sum(
            value.numel() * value.element_size()
            for state in inner.state.values()
            for value in state.values()
            if torch.is_tensor(value) and value.dim() > 0
        ),
    }
    gathered: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(gathered, found)
    if distributed.get_rank() == 0:
        Path(out).write_text(json.dumps(gathered))
    distributed.barrier()  # a rank that leaves early makes the others abort
    distributed.destroy_process_group()


def predicted(case: str, ranks: int) -> dict[str, int]:
    """advisor's budget of the same job on cards of that number: weights, and master weights with states, a rank."""
    from advisor.hardware.load import load_profile
    from advisor.job import Job
    from advisor.memory.predict import predict_memory
    from advisor.models.spec import ModelSpec

    config = {"model_type": "llama", **CONFIG}
    model = ModelSpec(name="small", asked="small", loader_repo="small", source="local", kind="causal", config=config)
    stage = "zero2" if CASES[case]["stage"] == 2 else "zero3"
    job = Job(task="finetune", strategy=stage, method="full", precision="bf16-mixed", sequence_length=32, gpus=ranks)
    parts = predict_memory(model, load_profile("h200-x8"), job).fullest.parts
    return {"weights": parts["weights"], "master and states": parts["optimizer"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4,8", help="numbers of ranks, with commas between")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    rows = []
    for ranks in map(int, options.ranks.split(",")):
        for case in CASES:
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder, "ranks.json")
                torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
                subprocess.run(
                    [*torchrun, "--standalone", __file__, "--child", case, str(out)],
                    check=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
                    stdout=subprocess.DEVNULL,
                    stderr=None if os.environ.get("VERBOSE") else subprocess.DEVNULL,
                )
                held = json.loads(out.read_text())
            ours = predicted(case, ranks)
            fullest = {part: max(rank[part] for rank in held) for part in ours}
            rows.append(
                {
                    "case": case,
                    "ranks": ranks,
                    "parameters": held[0]["parameters"],
                    "fullest": fullest,
                    "ratio": {p: ours[p] / fullest[p] for p in ours},
                }
            )
            if not options.json:
                ratios = "  ".join(f"{part} {ratio:.4f}" for part, ratio in rows[-1]["ratio"].items())
                print(f"{ranks} ranks  {case:5s}  {ratios}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
