"""The published figures for large models on few cards, with ours beside them, as docs/published-scenarios.md.

Ours are computed here by the code that ``advisor recommend`` runs; the published ones are given, and whether they can
hold is arithmetic over the 16-bit weights. GB are 10^9 bytes on both sides.

    python benchmarks/published_scenarios.py [--write]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from advisor.ask import ask
from advisor.decide.types import Candidate
from advisor.strategies.search import candidates, exact

PAGE = Path(__file__).parents[1] / "docs" / "published-scenarios.md"
TWO_A100, SEVENTY = "a100-40g-x2", "meta-llama/Llama-2-70b"
GB = 1e9
SIXTEEN_BIT = 2 * 68_976_648_192  # bytes of the 70B's weights


def look(model: str, task: str, hardware: str, label: str, **flags: object) -> Candidate:
    """The candidate of that label (one that fits, if any), replayed where it fits. Raises LookupError when there is none."""
    question = ask(model, task, hardware=hardware, **flags)  # type: ignore[arg-type]
    found = [c for c in candidates(question.model, question.machine, question.workload) if c.label == label]
    if not found:
        raise LookupError(f"{label} is no candidate for {model} on {hardware}")
    candidate = max(found, key=lambda candidate: candidate.fits)  # one label for a whole map and one that spills
    return exact(candidate, question.model, question.machine) if candidate.fits else candidate


def gb(amount: int | float | None) -> str:
    """Bytes in GB."""
    return "-" if amount is None else f"{amount / GB:.0f} GB" if amount >= 10 * GB else f"{amount / GB:.1f} GB"


def ours(found: Candidate) -> tuple[str, str, str]:
    """GPU, host RAM and verdict of a candidate."""
    if found.budget is None or not found.budget.gpus:
        return "-", "-", found.verdict.replace("_", " ")
    cards = " + ".join(gb(gpu.needed) for gpu in found.budget.gpus)
    if len({gpu.needed for gpu in found.budget.gpus}) == 1:
        cards = f"{gb(found.budget.fullest.needed)} each" if len(found.budget.gpus) > 1 else cards
    return cards, gb(found.budget.host_ram), found.verdict.replace("_", " ")


def loading() -> Iterator[tuple[str, str, Candidate, str]]:
    """(scenario, published, ours, in words) of the four ways to bring a 70B onto two cards of 40 GB."""
    weights = SIXTEEN_BIT / GB
    flags = {"quantization": "none", "seq_len": 512, "max_new_tokens": 64, "precision": "fp16"}
    yield (
        "loaded plainly", "out of memory; 120 GB RAM", look(SEVENTY, "inference", TWO_A100, "single", **flags),
        f"Agreed on the card: 16-bit weights are {weights:.0f} GB. 120 GB of RAM is a checkpoint that is read into "
        "memory before it goes to a card; our figure is the process alone, since safetensors files are mapped.",
    )  # fmt: skip
    plain = look(SEVENTY, "finetune", TWO_A100, "zero3+cpu-optimizer/full")
    yield (
        "ZeRO-3, optimizer offloaded", "38 GB GPU, 90 GB RAM, 8 min", plain,
        f"Cannot hold for 16-bit weights: sharded over two cards they are {weights / 2:.0f} GB each, more than a card "
        f"of 40 GB, and the offloaded states alone are 16 bytes a parameter, {16 * weights / 2:.0f} GB of RAM. With "
        "parameters in host RAM as well the weights fit the cards, and the RAM grows further.",
    )  # fmt: skip
    yield (
        "device_map auto", "36 GB GPU, 45 GB RAM, 6 min",
        look(SEVENTY, "inference", TWO_A100, "device_map", gpu_memory="36GB", **flags),
        f"Cannot hold for 16-bit weights: 2 x 36 + 45 = 117 GB are less than {weights:.0f} GB. It would hold for 8-bit "
        "weights (69 GB), or with part of the model on disk. Ours is held to 36 GB a card, as published.",
    )  # fmt: skip
    yield (
        "device_map with CPU offload", "28 GB GPU, 80 GB RAM, 9 min",
        look(SEVENTY, "inference", TWO_A100, "device_map", gpu_memory="28GB", **flags),
        f"Near: 2 x 28 + 80 = 136 GB, and 16-bit weights are {weights:.0f} GB. Ours is held to 28 GB a card, of which "
        "cache, activations and the runtime take their part; unheld, it fills the cards first.",
    )  # fmt: skip


def others() -> Iterator[tuple[str, str, Candidate, str]]:
    """(scenario, published, ours, in words) of the other three."""
    adapters = {"method": "qlora", "lora_rank": 8, "lora_alpha": 32, "lora_target_modules": "q_proj,k_proj"}
    small = {"seq_len": 512, "batch_size": 1}
    yield (
        "QLoRA of a 65B (r=8, alpha=32, q_proj and k_proj), one card of 48 GB", "fits one card of 48 GB",
        look("huggyllama/llama-65b", "finetune", "rtxa6000", "single/qlora", **adapters, **small),
        "Holds, at 512 tokens and micro batch 1.",
    )  # fmt: skip
    yield (
        "70B in fp16 over four A100-40GB, `balanced`", "fits",
        look(SEVENTY, "inference", "a100-40g-x4", "device_map", precision="fp16", quantization="none"),
        "Holds; 2048 tokens in and 256 out.",
    )  # fmt: skip
    yield (
        "70B in fp16 over two A100-80GB, `balanced`", "fits",
        look(SEVENTY, "inference", "a100-80g-x2", "device_map", precision="fp16", quantization="none"),
        "Holds; 2048 tokens in and 256 out.",
    )  # fmt: skip
    yield (
        "a 40B fine-tuned on one card of 24 GB, 4-bit", "22 GB",
        look("tiiuae/falcon-40b", "finetune", "rtx4090-x1", "single/qlora", method="qlora", lora_rank=8,
             lora_target_modules="query_key_value", **small),
        "Holds, barely: Falcon-40B, adapters on its fused attention projection, 512 tokens, micro batch 1. 22 GB is what "
        "41.8B parameters take in 4 bits with their scales; the 16-bit embedding, activations and 0.8 GB outside torch's "
        "allocator come on top.",
    )  # fmt: skip


def page() -> str:
    """The page as Markdown."""
    lines = [
        "# Published scenarios, with our figures beside them",
        "",
        "Written by `python benchmarks/published_scenarios.py --write`. GB are 10^9 bytes; ours are what each GPU needs",
        "for the run to survive, runtime bytes included, and host RAM in the run. No run stands behind ours on this page:",
        "they are predictions.",
        "",
    ]
    for title, rows in (("A 70B model on two A100 of 40 GB", loading()), ("Others", others())):
        lines += [f"## {title}", "", "| scenario | published | our GPUs | our host RAM | our verdict | in words |"]
        lines.append("|---|---|---|---|---|---|")
        for scenario, published, found, words in rows:
            cards, host, verdict = ours(found)
            lines.append(f"| {scenario} | {published} | {cards} | {host} | {verdict} | {words} |")
        lines.append("")
        if title.startswith("A 70B"):
            rates = " to ".join(f"{SIXTEEN_BIT / (minutes * 60) / 1e6:.0f}" for minutes in (9, 6))
            lines += [
                f"The published load times, 6 to 9 minutes for {gb(SIXTEEN_BIT)}, are {rates} MB/s: the rate of the disk",
                "or network that the checkpoint came from. The profile names no disk, so we give none.",
                "",
            ]
    return "\n".join(lines)


def main() -> None:
    """Print the page, or write it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    text = page()
    if arguments.parse_args().write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
