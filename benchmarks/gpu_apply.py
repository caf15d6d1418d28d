"""Every strategy that one GPU allows, planned and rehearsed for real: predicted beside measured, in docs/applied.md.

    python benchmarks/gpu_apply.py plan PLANS --hardware PROFILE     on any machine: the plans, by the command line
    python benchmarks/gpu_apply.py run PLANS OUT [--only NAME …]     on the GPU: apply each, results in OUT/applied.json
    python benchmarks/gpu_apply.py docs OUT/applied.json …           the table, written into docs/applied.md

A case that the command line would not choose on one card (ZeRO without offload) is its plan with the job changed and
predicted anew; the table marks it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "applied.md"
SMALL, LARGE = "unsloth/Llama-3.2-1B", "NousResearch/Llama-2-7b-hf"
TRAIN = ["-t", "finetune", "--seq-len", "1024"]
SERVE = ["-t", "inference", "--seq-len", "1024", "--max-new-tokens", "64", "--batch-size", "2"]
NO_OFFLOAD = {"offload_optimizer": None, "offload_param": None, "zero_optimizer": "client"}

# name: (what it shows, recommend's arguments, what is changed in the job afterwards)
CASES: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "single-full": ("one card, full", ["-m", SMALL, *TRAIN, "--method", "full", "--strategy", "single"], {}),
    "single-lora": ("one card, LoRA", ["-m", LARGE, *TRAIN, "--method", "lora", "--strategy", "single"], {}),
    "single-qlora": ("one card, QLoRA", ["-m", LARGE, *TRAIN, "--method", "qlora", "--strategy", "single"], {}),
    "serve-fp16": ("one card, fp16", ["-m", LARGE, *SERVE, "--precision", "fp16", "--strategy", "single"], {}),
    "serve-int8": ("one card, int8", ["-m", LARGE, *SERVE, "--quantization", "int8", "--strategy", "single"], {}),
    "serve-nf4": ("one card, nf4", ["-m", LARGE, *SERVE, "--quantization", "nf4", "--strategy", "single"], {}),
    "map-cpu": (
        "device_map, rest on the CPU",
        ["-m", LARGE, *SERVE[:-4], "--max-new-tokens", "8", "--quantization", "none", "--strategy", "device_map",
         "--gpu-memory", "8GiB"], {},
    ),
    "map-disk": (
        "device_map, rest on CPU and disk",
        ["-m", LARGE, *SERVE[:-4], "--max-new-tokens", "4", "--quantization", "none", "--strategy", "device_map",
         "--gpu-memory", "8GiB", "--host-memory", "6GiB"], {},
    ),
    "zero2": ("ZeRO-2", ["-m", SMALL, *TRAIN, "--method", "full", "--strategy", "zero2"], NO_OFFLOAD),
    "zero2-offload": ("ZeRO-2, optimizer on the CPU", ["-m", SMALL, *TRAIN, "--method", "full", "--strategy", "zero2"], {}),
    "zero3": ("ZeRO-3", ["-m", SMALL, *TRAIN, "--method", "full", "--strategy", "zero3"], NO_OFFLOAD),
    "zero3-offload": ("ZeRO-3, optimizer on the CPU", ["-m", SMALL, *TRAIN, "--method", "full", "--strategy", "zero3"], {}),
    "zero3-params": (
        "ZeRO-3, optimizer and parameters on the CPU",
        ["-m", SMALL, *TRAIN, "--method", "full", "--strategy", "zero3"], {"offload_param": "cpu"},
    ),
    "zero3-lora": (
        "ZeRO-3, LoRA", ["-m", LARGE, *TRAIN, "--method", "lora", "--strategy", "zero3"], {"offload_param": None},
    ),
    "zero3-qlora": (
        "ZeRO-3, QLoRA", ["-m", SMALL, *TRAIN, "--method", "lora", "--strategy", "zero3"],
        {"method": "qlora", "quantization": "nf4", "offload_param": None, "qlora": True},
    ),
    "zero-inference": (
        "ZeRO-Inference, parameters on the CPU",
        ["-m", LARGE, *SERVE[:-4], "--max-new-tokens", "8", "--quantization", "none", "--strategy", "zero3"], {},
    ),
}  # fmt: skip
STAGED = Path(tempfile.gettempdir()) / "advisor-staged-model"
FLOWS = ("script-deepspeed", "script-accelerate", "staged", "fallback", "find-batch")


def advisor(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command line, as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "advisor", *words], capture_output=True, text=True, cwd=ROOT, check=False, **options
    )


def make_plans(folder: Path, hardware: str, only: list[str], workers: int) -> None:
    """Plans of every case, several at a time."""
    folder.mkdir(parents=True, exist_ok=True)

    def make(name: str) -> str:
        words, changes = CASES[name][1:] if name in CASES else (["-m", SMALL, *TRAIN, "--method", "full"], {})
        path = folder / f"{name}.json"
        # The machine shows its memory only as it is used; what it has stands in its description.
        host = [] if "--host-memory" in words else ["--host-memory", "110GiB"]
        done = advisor("recommend", *words, "--hardware", hardware, *host, "--out", str(path))
        if done.returncode != 0:
            return f"{name}: no plan ({done.returncode}): {done.stderr.strip()[-300:] or done.stdout.strip()[-600:]}"
        if changes:
            _change(path, changes)
        return f"{name}: {json.loads(path.read_text())['steps'][0]['job']['strategy']}"

    with ThreadPoolExecutor(workers) as pool:
        for line in pool.map(make, [name for name in (*CASES, "fallback") if not only or name in only]):
            print(line, flush=True)


def _change(path: Path, changes: dict[str, Any]) -> None:
    """The plan with another job, predicted and laid out anew by the same rooms."""
    from advisor.decide.types import Candidate
    from advisor.plan import read_plan, write_plan
    from advisor.planning import spec_of, step_of
    from advisor.strategies.registry import STRATEGIES

    plan = read_plan(path)
    job = plan.main.job
    changes = dict(changes)
    if changes.pop("qlora", False):
        assert job.lora is not None
        changes |= {"bnb_4bit_quant_storage": job.load_dtype, "lora": replace(job.lora, dtype=job.load_dtype)}
    wanted = replace(job, **changes)
    if wanted == job:
        return
    spec, machine, strategy = spec_of(plan), plan.hardware, STRATEGIES[job.strategy]
    candidate = Candidate(
        strategy=job.strategy, method=wanted.method, job=wanted, verdict="fits", reason="",
        budget=strategy.budget(spec, machine, wanted), time=strategy.time(spec, machine, wanted),
    )  # fmt: skip
    write_plan(plan.model_copy(update={"steps": (step_of(spec, machine, candidate),), "fallbacks": ()}), path)


def run(plans: Path, out: Path, only: list[str], limit: float) -> None:
    """Apply each plan; what came out is written after every case."""
    out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for name in only or (*CASES, *FLOWS):
        started = time.monotonic()
        try:
            found = _flow(name, plans, out) if name in FLOWS else _case(plans / f"{name}.json", limit)
        except subprocess.TimeoutExpired as error:
            found = [{"ending": "timeout", "sentence": f"ended after {error.timeout:.0f} s"}]
        for one in found:
            results.append({"case": name, "wall": round(time.monotonic() - started, 1), **one})
            print(json.dumps(results[-1])[:1500], flush=True)
        (out / "applied.json").write_text(json.dumps(results, indent=1) + "\n")


def _case(plan: Path, limit: float) -> list[dict[str, Any]]:
    if not plan.is_file():
        return [{"ending": "no plan"}]
    work = plan.parent / "work"
    done = advisor(
        "apply", str(plan), "--rehearse", "--force", "--json", "--time-limit", str(limit), "--output", str(work),
        timeout=limit + 60,
    )  # fmt: skip
    return _results(done)


def _results(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The JSON values on stdout, or what was said instead."""
    decoder, text, found = json.JSONDecoder(), done.stdout, []
    while text.strip():
        try:
            value, end = decoder.raw_decode(text.strip())
        except json.JSONDecodeError:
            break
        found.append(value)
        text = text.strip()[end:]
    return found or [{"ending": f"exit {done.returncode}", "sentence": done.stderr.strip()[-800:] or text[-800:]}]


def _flow(name: str, plans: Path, out: Path) -> list[dict[str, Any]]:
    if name == "fallback":
        return _fallback(plans / "fallback.json")
    if name == "find-batch":
        capped = _capped(plans / "single-lora.json", 30 << 30, plans / "find-batch.json")
        return _results(advisor("apply", str(capped), "--find-batch", "--json", "--steps", "2", timeout=150))
    if name == "staged":
        return _staged(plans)
    plan = plans / "zero3-offload.json"
    model = plans / "script-model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(json.loads(plan.read_text())["model"]["config"]))
    launcher = name.removeprefix("script-")
    job = json.loads(plan.read_text())["steps"][0]["job"]
    words = ["--model", str(model), "--output_dir", str(plans / "script-out"), "--max_steps", "3", "--bf16",
             "--per_device_train_batch_size", str(job["micro_batch_size"]), "--save_strategy", "no",
             "--gradient_accumulation_steps", str(job["gradient_accumulation_steps"]), "--length", "512"]  # fmt: skip
    if launcher == "deepspeed":
        words += ["--deepspeed", "{deepspeed_config}"]
    done = advisor(
        "apply", str(plan), "--force", "--json", "--launcher", launcher, "--time-limit", "100", "--",
        str(ROOT / "docs" / "examples" / "train.py"), *words, timeout=160,
    )  # fmt: skip
    return _results(done)


def _capped(plan: Path, limit: int, to: Path) -> Path:
    value = json.loads(plan.read_text())
    value["hardware"]["gpu_memory_limit"] = limit
    to.write_text(json.dumps(value))
    return to


def _fallback(plan: Path) -> list[dict[str, Any]]:
    """A cap between what the plan's first way needs and what its next way needs."""
    value = json.loads(plan.read_text())

    def need(step: dict[str, Any]) -> int:
        return max(gpu["required"] + gpu["runtime"] for gpu in step["promise"]["gpus"])

    if not value.get("fallbacks"):
        return [{"ending": "no fallback in the plan"}]
    first, second = need(value["steps"][0]), need(value["fallbacks"][0])
    capped = _capped(plan, (first + second) // 2, plan.with_name("fallback-capped.json"))
    return _results(advisor("apply", str(capped), "--rehearse", "--force", "--json", "--fallback", timeout=200))


def plan_staged(plans: Path, hardware: str) -> None:
    """The staged plan: its model is a folder, so it is planned for where :func:`_staged` makes it."""
    STAGED.mkdir(exist_ok=True)
    config = json.loads((plans / "zero3-offload.json").read_text())["model"]["config"]
    (STAGED / "config.json").write_text(json.dumps(config))
    done = advisor(
        "recommend", "-m", str(STAGED), *TRAIN, "--method", "full", "--strategy", "zero3", "--then", "inference",
        "--hardware", hardware, "--host-memory", "110GiB", "--out", str(plans / "staged.json"),
    )  # fmt: skip
    print("staged:", done.stderr.strip()[-300:] or "planned")


def _staged(plans: Path) -> list[dict[str, Any]]:
    """Train with ZeRO-3, convert, serve; the checkpoint's shards are converted, too."""
    _random_model(STAGED, json.loads((plans / "staged.json").read_text())["model"]["config"])
    data = plans / "data.jsonl"
    lines = (" ".join(f"w{n % 50}" for n in range(k, k + 200)) for k in range(200))
    data.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    output = plans / "staged-out"
    applied = advisor(
        "apply", str(plans / "staged.json"), "--force", "--json", "--data", str(data), "--packed", "--steps", "2",
        "--save-every", "2", "--output", str(output), "--prompt", "w1 w2 w3", "--time-limit", "140", timeout=300,
    )  # fmt: skip
    found = _results(applied)
    shards = advisor("convert", str(output / "checkpoint-2"), str(plans / "from-shards"), "--json", timeout=100)
    found += _results(shards)
    found[-1]["progress"] = shards.stderr.strip().splitlines()[:1]
    if (plans / "from-shards").is_dir():
        same = _same(plans / "from-shards", plans / "staged-out-model")
        found.append(
            {"ending": "the shards and what was gathered while saving are " + ("equal" if same else "DIFFERENT")}
        )
    shutil.rmtree(output, ignore_errors=True)
    return found


def _same(one: Path, other: Path) -> bool:
    import torch

    from advisor.execute.convert.folder import open_folder, weight_files

    a, b = (open_folder(weight_files(folder), folder).entries for folder in (one, other))
    return set(a) == set(b) and all(torch.equal(a[name].read(None), b[name].read(None)) for name in a)


def _random_model(folder: Path, config: dict[str, Any]) -> None:
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    values = {key: value for key, value in config.items() if key != "model_type"}
    made = transformers.AutoConfig.for_model(config["model_type"], **values)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    words = {word: index for index, word in enumerate(["<pad>", "</s>", "<unk>", *(f"w{n}" for n in range(50))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)


def write_docs(files: list[Path]) -> None:
    """The table between the marks of docs/applied.md; a later file's case replaces an earlier one's."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for path in files:
        fresh: dict[str, list[dict[str, Any]]] = {}
        for row in json.loads(path.read_text()):
            fresh.setdefault(row["case"], []).append(row)
        rows |= fresh
    lines = ["| plan | end | allocated GiB | used GiB | host RAM GiB | step or decode |", "|---|---|---|---|---|---|"]
    missing = []
    for name, (words, _, changes) in CASES.items():
        ended = [row for row in rows.get(name, []) if row["ending"] in ("ok", "oom")]
        lines += [_row(words + (" (changed by hand)" if changes else ""), row) for row in ended]
        missing += [] if ended else [words]
    for name in FLOWS:
        lines += [_row(f"{name}: {row['strategy']}", row) for row in rows.get(name, []) if row.get("figures")]
        missing += [] if name in rows else [name]
    if missing:
        lines += ["", f"Not measured yet: {'; '.join(missing)}."]
    text = DOCS.read_text(encoding="utf-8")
    for mark, body in (("table", "\n".join(lines)), ("flows", _flows(rows))):
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        _, _, after = rest.partition(f"<!-- end {mark} -->")
        text = f"{before}<!-- {mark} -->\n{body}\n<!-- end {mark} -->{after}"
    DOCS.write_text(text, encoding="utf-8")


def _row(words: str, row: dict[str, Any]) -> str:
    figures = row.get("figures", {})

    def pair(name: str, unit: float, suffix: str = "") -> str:
        figure = figures.get(name)
        if figure is None:
            return "-"
        shown = [f"{figure[key] / unit:.3g}" if figure[key] is not None else "-" for key in ("predicted", "measured")]
        error = f" ({figure['error']:+.0%})" if figure["error"] is not None else ""
        return f"{shown[0]} / {shown[1]}{suffix}{error}"

    speed = (
        pair("step_seconds", 1.0, " s")
        if "step_seconds" in figures
        else pair("decode_tokens_per_second", 1.0, " tok/s")
    )
    sizes = [pair(name, 1 << 30) for name in ("gpu_allocated", "gpu_used", "host_ram")]
    return f"| {words} | {row['ending']} | {' | '.join(sizes)} | {speed} |"


def _flows(rows: dict[str, list[dict[str, Any]]]) -> str:
    lines = []
    for name in FLOWS:
        for row in rows.get(name, []):
            lines.append(f"- {name}: {_flow_words(row)}")
    return "\n".join(lines)


def _flow_words(row: dict[str, Any]) -> str:
    if row.get("format") == "advisor-conversion":
        need = f"{row['host_ram_needed'] / (1 << 30):.1f} GiB of host RAM stated first"
        return f"converted {row['from']}: {row['tensors']} tensors, {row['bytes'] / 1e9:.2f} GB, verified; {need}"
    if row.get("format") == "advisor-batches":
        tried = ", ".join(f"{one['micro_batch_size']} {one['ending']}" for one in row["tried"])
        return f"micro batches {tried}; largest {row['largest']}, fastest {row['fastest']}"
    text = f"{row.get('strategy', '')} {row['ending']}: {row.get('sentence', '')}".strip()
    return text + (f" {row['next']}" if row.get("next") else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["plan", "run", "docs"])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--hardware", default="h200")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--workers", type=int, default=1, help="plans at a time")
    parser.add_argument("--limit", type=float, default=75.0)
    given = parser.parse_args()
    if given.what == "plan":
        make_plans(given.paths[0], given.hardware, given.only, given.workers)
        if not given.only or "staged" in given.only:
            plan_staged(given.paths[0], given.hardware)
    elif given.what == "run":
        run(given.paths[0], given.paths[1], given.only, given.limit)
    else:
        write_docs(given.paths)


if __name__ == "__main__":
    main()
