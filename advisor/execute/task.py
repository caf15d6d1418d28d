"""What a worker gets beside its command line: the task file, and the plan cut to the one step that it does."""

from __future__ import annotations

from pathlib import Path

from advisor.execute.options import Options
from advisor.execute.worker.main import Task
from advisor.plan import Plan, PlanStep, write_plan


def write_task(
    plan: Plan,
    path: Path,
    step: PlanStep,
    options: Options,
    folder: Path,
    deepspeed: str | None,
    load_from: Path | None,
) -> Path | None:
    """Write ``folder``/task.json and the step's own plan. Returns the file that prompts go to, if there are any."""
    prompts = folder / "prompts.jsonl" if (options.prompts or options.interactive) else None
    alone = folder / "plan.json"
    spill = step.offload_folder
    if spill is not None and not Path(spill).is_absolute():
        spill = str(path.absolute().with_suffix(".files") / spill)
    write_plan(
        plan.model_copy(update={"steps": (step.model_copy(update={"offload_folder": spill}),), "fallbacks": ()}), alone
    )
    task = Task(
        plan=str(alone),
        status=str(folder),
        rehearse=options.rehearse,
        steps=options.optimizer_steps,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        data=str(options.data.absolute()) if options.data else None,
        packed=options.packed,
        output=str(options.output.absolute()),
        resume=str(options.resume.absolute()) if options.resume else None,
        prompts=str(prompts) if prompts else None,
        load_from=str(load_from.absolute()) if load_from else None,
        deepspeed_config=deepspeed,
        trust_remote_code=options.trust_remote_code,
        allocator_cap=allocator_cap(plan, step),
        seed=options.seed,
        save_every=options.save_every,
    )
    (folder / "task.json").write_text(task.model_dump_json(), encoding="utf-8")
    return prompts


def allocator_cap(plan: Plan, step: PlanStep) -> int | None:
    """Bytes that torch's allocator may take on each card, when the plan limits the card (runtime bytes included)."""
    limit = plan.hardware.gpu_memory_limit
    if limit is None or not step.promise.gpus:
        return None
    return max(1, limit - max(gpu.runtime for gpu in step.promise.gpus))
