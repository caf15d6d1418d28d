"""``advisor recommend``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from advisor.cli import complete


def recommend(
    model: Annotated[
        str, typer.Option("--model", "-m", help="Hub id, local folder or config.json.", autocompletion=complete.models)
    ],
    task: Annotated[str, typer.Option("--task", "-t", help="inference or finetune.")],
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware", help="A profile's name or file; default: this machine.", autocompletion=complete.hardware
        ),
    ] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="Use this many GPUs of each node.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", help="Number of alike nodes.")] = None,
    gpu_memory: Annotated[
        str | None,
        typer.Option(
            "--gpu-memory", metavar="SIZE", help="Use at most this much of each card, runtime bytes included."
        ),
    ] = None,
    host_memory: Annotated[
        str | None, typer.Option("--host-memory", metavar="SIZE", help="Use at most this much host RAM a node.")
    ] = None,
    method: Annotated[str, typer.Option("--method", help="auto, full, lora or qlora.")] = "auto",
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Micro batch size, a GPU.")] = None,
    global_batch_size: Annotated[
        int | None, typer.Option("--global-batch-size", help="Samples an optimizer step, over all GPUs.")
    ] = None,
    seq_len: Annotated[int | None, typer.Option("--seq-len", help="Tokens a sample (prompt, for inference).")] = None,
    max_new_tokens: Annotated[int | None, typer.Option("--max-new-tokens", help="Tokens to generate.")] = None,
    precision: Annotated[
        str | None, typer.Option("--precision", help="bf16, fp16, fp32, bf16-mixed or fp16-mixed.")
    ] = None,
    quantization: Annotated[str | None, typer.Option("--quantization", help="none, nf4 or int8.")] = None,
    optimizer: Annotated[str | None, typer.Option("--optimizer", help="By the Trainer's name.")] = None,
    gradient_checkpointing: Annotated[
        bool | None, typer.Option("--gradient-checkpointing/--no-gradient-checkpointing", help="Default: as needed.")
    ] = None,
    lora_rank: Annotated[int, typer.Option("--lora-rank", help="Rank of the adapters.")] = 16,
    lora_alpha: Annotated[
        int | None, typer.Option("--lora-alpha", help="Their scale; default: twice the rank.")
    ] = None,
    lora_target_modules: Annotated[
        str, typer.Option("--lora-target-modules", "--lora-target", help="Names, separated by commas, or all-linear.")
    ] = "all-linear",
    attention: Annotated[str | None, typer.Option("--attention", help="sdpa, eager or flash_attention_2.")] = None,
    strategy: Annotated[str | None, typer.Option("--strategy", help="Force one strategy.")] = None,
    then: Annotated[str | None, typer.Option("--then", help="inference: plan to serve the result, too.")] = None,
    rules: Annotated[Path | None, typer.Option("--rules", help="A folder of rules laid over ours.")] = None,
    download: Annotated[bool, typer.Option("--download", help="Allow config.json to be fetched from the Hub.")] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Allow the model's own code to run.")
    ] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the plan goes.")] = Path("plan.json"),
    json_output: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Decide how to run a model on a machine, say why, and write a plan.

    Exit code 0 when something fits, 1 when nothing does, 2 for bad input.
    """
    from advisor import advise, ask
    from advisor.plan import check_writable, write_plan
    from advisor.report.progress import working

    question = ask.ask(
        model,
        task,
        hardware=hardware,
        gpus=gpus,
        nodes=nodes,
        gpu_memory=gpu_memory,
        host_memory=host_memory,
        download=download,
        trust_remote_code=trust_remote_code,
        method=method,
        batch_size=batch_size,
        global_batch_size=global_batch_size,
        seq_len=seq_len,
        max_new_tokens=max_new_tokens,
        precision=precision,
        quantization=quantization,
        optimizer=optimizer,
        gradient_checkpointing=gradient_checkpointing,
        lora_rank=lora_rank,
        lora_alpha=lora_alpha,
        lora_target_modules=lora_target_modules,
        attention=attention,
        strategy=strategy,
        then=then,
    )
    # A plan that could not be written would waste the whole computation: look before.
    check_writable(out)
    with working(f"deciding for {question.model.name}"):
        advice = advise.recommend(question.model, question.machine, question.workload, rules_dir=rules)
    written: Path | None = None
    if advice.plan is not None:
        write_plan(advice.plan, out)
        written = out
    if json_output:
        from advisor.report.result import recommendation

        typer.echo(recommendation(advice, str(written) if written else None).model_dump_json(indent=2))
    else:
        from advisor.report.terminal import show_advice

        show_advice(advice, written)
    if advice.decision.chosen is None:
        raise typer.Exit(1)
