"""The Python API: the command line's commands as functions, with its names; answers show themselves in a notebook.

``import advisor`` and use ``advisor.recommend`` and the rest; this module is what stands behind them. Every function
raises :class:`advisor.errors.InputError` for what is wrong in its arguments, as the command line does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import escape
from pydantic import PrivateAttr

from advisor import plan as plans
from advisor.advise import Advice
from advisor.check.checked import Checked
from advisor.errors import InputError
from advisor.validate.validation import Validation

if TYPE_CHECKING:
    from advisor.execute.apply import Result
    from advisor.execute.convert.run import Report
    from advisor.report.page.answer import Answer


class Plan(plans.Plan):
    """A plan that can be saved, shown and run."""

    _path: Path | None = PrivateAttr(default=None)

    @classmethod
    def of(cls, plan: plans.Plan, path: Path | None = None) -> Plan:
        """The same plan; ``path`` is where it lies as a file."""
        made = cls.model_construct(**{name: getattr(plan, name) for name in plans.Plan.model_fields})
        made._path = path
        return made

    def save(self, path: str | Path) -> Path:
        """Write plan.json whole; never over a file that is no plan."""
        target = Path(path)
        plans.write_plan(self, target)
        self._path = target
        return target

    def apply(self, script: Sequence[str] = (), **options: Any) -> tuple[Result | Report, ...]:
        """Run the plan, as ``advisor apply`` does, and return each step's end with predicted beside measured.

        ``options`` are the command's flags by their names in :class:`advisor.execute.options.Options` (``rehearse``,
        ``data``, ``steps``, ``prompts``, ``fallback``, ``force``, …). A plan that was never saved runs from a temporary
        folder. Raises RefusedError when this machine does not hold what the plan needs.
        """
        from advisor.execute.options import Options
        from advisor.execute.phases import apply_plan, check_output
        from advisor.hardware.load import this_machine

        known = {field.name for field in fields(Options)}
        for name in options:
            if name not in known:
                raise InputError("apply", "is no option", found=name, expected=f"one of {', '.join(sorted(known))}")
        for name in ("data", "resume", "output", "log", "hostfile"):
            if isinstance(options.get(name), str):
                options[name] = Path(options[name])
        chosen = Options(script=tuple(script), **options)
        check_output(self, chosen)
        if self._path is not None:
            return tuple(apply_plan(self, self._path, chosen, this_machine()))
        with tempfile.TemporaryDirectory(prefix="advisor-plan-") as folder:
            path = Path(folder) / "plan.json"
            plans.write_plan(self, path)
            return tuple(apply_plan(self, path, chosen, this_machine()))

    def page(self) -> str:
        """The report as one HTML page."""
        from advisor.report.page.answer import of_plan

        return _page(of_plan(self))

    def _repr_html_(self) -> str:
        return _framed(self.page())


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation(Advice):
    """The whole answer; ``plan`` is None when nothing fits."""

    plan: Plan | None

    @property
    def fits(self) -> bool:
        """Whether something fits."""
        return self.plan is not None

    @property
    def sentence(self) -> str:
        """The decision in a sentence."""
        return self.decision.sentence

    def as_json(self) -> dict[str, Any]:
        """What ``advisor recommend --json`` prints."""
        from advisor.report.result import recommendation

        return recommendation(self, None).model_dump(mode="json")

    def page(self) -> str:
        """The report as one HTML page."""
        from advisor.report.page.answer import of_advice

        return _page(of_advice(self))

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        return _framed(self.page())


def recommend(
    model: str,
    task: str,
    *,
    hardware: str | None = None,
    gpus: int | None = None,
    nodes: int | None = None,
    gpu_memory: str | int | None = None,
    host_memory: str | int | None = None,
    method: str = "auto",
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    seq_len: int | None = None,
    max_new_tokens: int | None = None,
    precision: str | None = None,
    quantization: str | None = None,
    optimizer: str | None = None,
    gradient_checkpointing: bool | None = None,
    lora_rank: int = 16,
    lora_alpha: int | None = None,
    lora_target_modules: str | tuple[str, ...] = "all-linear",
    attention: str | None = None,
    strategy: str | None = None,
    then: str | None = None,
    rules: str | Path | None = None,
    download: bool = False,
    trust_remote_code: bool = False,
) -> Recommendation:
    """Decide how to run ``model`` on a machine, and plan it; nothing is written. Flags as of ``advisor recommend``.

    Sizes are text with a unit ("24GiB") or bytes.
    """
    from advisor import advise
    from advisor.ask import ask

    question = ask(
        model, task, hardware=hardware, gpus=gpus, nodes=nodes, gpu_memory=gpu_memory, host_memory=host_memory,
        download=download, trust_remote_code=trust_remote_code, method=method, batch_size=batch_size,
        global_batch_size=global_batch_size, seq_len=seq_len, max_new_tokens=max_new_tokens, precision=precision,
        quantization=quantization, optimizer=optimizer, gradient_checkpointing=gradient_checkpointing,
        lora_rank=lora_rank, lora_alpha=lora_alpha, lora_target_modules=lora_target_modules, attention=attention,
        strategy=strategy, then=then,
    )  # fmt: skip
    advice = advise.recommend(
        question.model, question.machine, question.workload, rules_dir=None if rules is None else Path(rules)
    )
    values = {field.name: getattr(advice, field.name) for field in fields(Advice) if field.name != "plan"}
    return Recommendation(plan=None if advice.plan is None else Plan.of(advice.plan), **values)


def read_plan(path: str | Path) -> Plan:
    """Read and validate a plan.json."""
    return Plan.of(plans.read_plan(Path(path)), Path(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated(Validation):
    """Predicted beside measured; ``met`` says whether every bar is."""

    def __repr__(self) -> str:
        from advisor.report.validation import markdown

        return markdown(self)

    def _repr_html_(self) -> str:
        from markdown_it import MarkdownIt

        from advisor.report.validation import markdown

        return str(MarkdownIt("js-default").render(markdown(self)))


def validate(*files: str | Path) -> Validated:
    """Predict the runs in ``files`` (run records, a JSON line each) and hold both against each other."""
    from advisor.record import read_records
    from advisor.validate.runs import Predictor
    from advisor.validate.validation import read_reasons, score_runs

    if not files:
        raise InputError("validate", "has no file", expected="run records, such as measurements/h200.jsonl")
    paths = [Path(path) for path in files]
    predictor = Predictor.ours()
    found = score_runs([predictor.run(record) for path in paths for record in read_records(path)], read_reasons(paths))
    return Validated(**{field.name: getattr(found, field.name) for field in fields(Validation)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings(Checked):
    """What a check found; ``failed`` says whether errors or warnings are among it."""

    def __repr__(self) -> str:
        lines = [f"{found.path}:{found.line}: {found.code} {found.message}" for found in self.findings]
        return "\n".join(lines) or f"nothing found in {self.files} files"

    def _repr_html_(self) -> str:
        from advisor.report.page.page import environment

        return environment().get_template("findings.html.j2").render(checked=self)


def check(
    *paths: str | Path,
    select: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    exclude: Sequence[str] = (),
    strict: bool | None = None,
    plan: str | Path | None = None,
    hardware: str | None = None,
    min_headroom: float | None = None,
    gpus: int | None = None,
    nodes: int | None = None,
    gpu_memory: str | int | None = None,
    host_memory: str | int | None = None,
    **question: Any,
) -> Findings:
    """Find what will crash or not fit before it runs; the code under test is never run. As ``advisor check``.

    ``question`` (``model``, ``task``, ``seq_len``, …) asks whether a job fits, ``plan`` whether a plan still does.
    ``min_headroom`` is a share of 1.
    """
    from advisor.check.checking import Request
    from advisor.check.checking import check as look

    request = Request(
        paths=tuple(Path(path) for path in paths), select=select, ignore=tuple(ignore), exclude=tuple(exclude),
        strict=strict, plan=None if plan is None else Path(plan), hardware=hardware, min_headroom=min_headroom,
        question=question,
        machine={"gpus": gpus, "nodes": nodes, "gpu_memory": gpu_memory, "host_memory": host_memory},
    )  # fmt: skip
    found = look(request)
    return Findings(**{field.name: getattr(found, field.name) for field in fields(Checked)})


def _page(answer: Answer) -> str:
    from advisor.report.page.page import render

    return render(answer)


def _framed(page: str) -> str:
    """A page inside a notebook's cell, apart from the notebook: its style and script stay in the frame."""
    style = "width:100%;height:720px;border:1px solid #8888;border-radius:8px"
    return f'<iframe srcdoc="{escape(page)}" style="{style}" sandbox="allow-scripts" title="advisor"></iframe>'
