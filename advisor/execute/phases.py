"""A whole plan: its steps in turn, the hand-over between training and serving, and the next way when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from advisor.errors import InputError
from advisor.execute.apply import Result, apply_step
from advisor.execute.convert.run import Options as ConvertOptions
from advisor.execute.convert.run import Report, convert
from advisor.execute.options import Hooks, Options
from advisor.hardware.profile import HardwareProfile
from advisor.plan import Plan, PlanStep
from advisor.units import format_bytes


def apply_plan(
    plan: Plan, path: Path, options: Options, machine: HardwareProfile, hooks: Hooks | None = None
) -> Iterator[Result | Report]:
    """Run the plan's steps; yields each end, and the conversion between training and serving, as they come.

    Stops at the first step that does not end well. Out of GPU memory, with ``options.fallback``, the plan's next ways
    are run instead; without it :func:`offer` says what they are.
    """
    hooks = hooks or Hooks()
    folder: Path | None = None
    for number, step in enumerate(plan.steps):
        ways = (step, *(plan.fallbacks if number == 0 and options.fallback else ()))
        for way in ways:
            result = apply_step(plan, path, way, _options(options, way), machine, hooks, load_from=folder)
            yield result
            if result.outcome.ending != "oom":
                break
        if not result.outcome.ok:
            return
        if step.job.trains and number + 1 < len(plan.steps) and not options.rehearse and not options.script:
            folder = served_folder(options.output)
            yield convert(options.output, folder, ConvertOptions(base=_base(plan)), hooks.say)


def served_folder(output: Path) -> Path:
    """Where the model lies that a training into ``output`` hands over."""
    return output.with_name(f"{output.name}-model")


def check_output(plan: Plan, options: Options) -> None:
    """Raise InputError before a staged run whose hand-over would have nowhere to go."""
    folder = served_folder(options.output)
    staged = len(plan.steps) > 1 and not options.rehearse and not options.script
    if staged and folder.exists() and any(folder.iterdir()):
        raise InputError(str(folder), "exists and is not empty, and the trained model would go there", field="--output")


def offer(plan: Plan, result: Result, options: Options) -> str | None:
    """The next way in words, after a run that found too little GPU memory; None when there is none to offer."""
    if result.outcome.ending != "oom" or options.fallback:
        return None
    for way in plan.fallbacks:
        need = max((gpu.required + gpu.runtime for gpu in way.promise.gpus), default=0)
        return (
            f"Next way in this plan: {_words(way)}, {format_bytes(need)} of each GPU by the prediction. "
            "Run again with --fallback to take it."
        )
    return "The plan has no way that needs less of a GPU; `advisor recommend` with a lower --gpu-memory looks for one."


def _words(step: PlanStep) -> str:
    job = step.job
    offloads = [f"{what} on {where}" for what, where in (
        ("optimizer", job.offload_optimizer), ("parameters", job.offload_param),
    ) if where]  # fmt: skip
    return " ".join([job.method or job.quantization or "", job.strategy, *offloads]).strip()


def _options(options: Options, step: PlanStep) -> Options:
    """Prompts are for steps that generate, data for those that train."""
    return replace(options, prompts=(), interactive=False) if step.job.trains else options


def _base(plan: Plan) -> str | None:
    """What adapters merge into; a full training left its own config and tokenizer beside the weights."""
    return None if plan.main.job.method == "full" else plan.model.path or plan.model.loader_repo
