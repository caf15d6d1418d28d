"""The whole of a check: settings, lint, fit, one list of findings. What the command line calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.check.checked import Checked
from advisor.check.codes import all_rules, expanded
from advisor.check.configured import Configured, configured
from advisor.check.engine import lint
from advisor.check.settings import Hardware, Settings
from advisor.check.types import Doubt, Finding
from advisor.errors import InputError

if TYPE_CHECKING:
    from advisor.check.fit.recompute import Fit
    from advisor.hardware.profile import HardwareProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be checked. A flag that is None leaves the word to pyproject.toml.

    ``question`` holds what ``advisor.ask.ask`` takes beside the machine (model, task, …), empty without ``--model``;
    ``machine`` what narrows the target (gpus, gpu_memory, …). Paths are linted when there are any, and this folder when
    there is nothing else to check. ``min_headroom`` is a share of 1.
    """

    paths: Sequence[Path] = ()
    select: Sequence[str] | None = None
    ignore: Sequence[str] = ()
    exclude: Sequence[str] = ()
    strict: bool | None = None
    plan: Path | None = None
    hardware: str | None = None
    min_headroom: float | None = None
    question: Mapping[str, Any] = field(default_factory=dict)
    machine: Mapping[str, Any] = field(default_factory=dict)


def check(request: Request) -> Checked:
    """Lint, then fit. Raises InputError for paths, codes, settings and plans that are wrong."""
    asks_fit = request.plan is not None or bool(request.question)
    paths = list(request.paths)
    for path in paths:
        _there(path)
    if not paths and not asks_fit:
        paths = [Path()]
    settings = configured(paths)
    wanted = _wanted(request, settings)
    strict = settings.strict if request.strict is None else request.strict
    hardware = request.hardware or _configured_hardware(settings)
    findings: list[Finding] = []
    doubts: list[Doubt] = []
    files = 0
    if paths:
        report = lint(paths, _lint_settings(request, settings, wanted, strict, hardware))
        findings += report.findings
        doubts += report.doubts
        files = report.files
    fits: list[Fit] = []
    if asks_fit:
        fits = _fit(request, settings, hardware)
        findings += [finding for fit in fits for finding in fit.findings if finding.code in wanted]
        doubts += [doubt for fit in fits for doubt in fit.doubts if doubt.code in wanted]
    return Checked(
        findings=tuple(sorted(findings, key=_order)),
        files=files,
        doubts=tuple(doubts) if strict else (),
        strict=strict,
        rules={code: rule for code, rule in all_rules().items() if code in wanted},
        fits=tuple(sentence for fit in fits for sentence in fit.sentences),
    )


def _order(finding: Finding) -> tuple[bool, str, int, int, str]:
    """By place; what no file holds comes last."""
    return finding.path == "", finding.path, finding.line, finding.column, finding.code


def _there(path: Path) -> None:
    try:
        path.stat()
    except OSError as error:
        raise InputError(str(path), f"cannot be checked ({error.strerror})", expected="a file or folder") from error
    except ValueError as error:  # a NUL in the name
        raise InputError(repr(str(path)), f"is no path ({error})", expected="a file or folder") from error


def _wanted(request: Request, settings: Configured) -> frozenset[str]:
    """The codes that are asked for: ``--select`` replaces the configured ones, ``--ignore`` adds to them."""
    file = str(settings.root / "pyproject.toml")
    if request.select is not None:
        selected = expanded("--select", request.select)
    else:
        selected = expanded(f"{file}: select", settings.select) or frozenset(all_rules())
    return selected - expanded("--ignore", request.ignore) - expanded(f"{file}: ignore", settings.ignore)


def _lint_settings(
    request: Request, settings: Configured, wanted: frozenset[str], strict: bool, hardware: str | None
) -> Settings:
    file = str(settings.root / "pyproject.toml")
    return Settings(
        select=wanted,
        strict=strict,
        exclude=(*settings.exclude, *request.exclude),
        per_file_ignores={
            pattern: expanded(f'{file}: per-file-ignores."{pattern}"', codes)
            for pattern, codes in settings.per_file_ignores.items()
        },
        root=settings.root,
        hardware=_lint_hardware(request, hardware) if hardware is not None else None,
    )


def _lint_hardware(request: Request, hardware: str) -> Hardware:
    """What lint rules ask about the target: its least able card, and how many there are."""
    from advisor.ask import machine

    target = machine(hardware, **request.machine)
    capabilities = [card.capability for card in target.gpus if card.capability is not None]
    known = bool(capabilities) and len(capabilities) == len(target.gpus)
    return Hardware(
        name=target.name, compute_capability=min(capabilities) if known else None, gpus=target.gpu_count or None
    )


def _fit(request: Request, settings: Configured, hardware: str | None) -> list[Fit]:
    """The fit half. Raises InputError where only what linting needs is installed."""
    try:
        with redirect_stdout(sys.stderr):  # libraries greet on stdout when imported; a report must stay alone there
            return list(_fits(request, settings, hardware))
    except ModuleNotFoundError as error:
        flag = "--plan" if request.plan is not None else "--model"
        raise InputError(
            flag, f"needs {error.name}, which is not installed", expected="advisor with all it asks for"
        ) from error


def _fits(request: Request, settings: Configured, hardware: str | None) -> Iterator[Fit]:
    """The plan's and the question's, each on its target."""
    from advisor.check.fit.codes import PlanFile
    from advisor.check.fit.recompute import check_plan, check_question

    headroom = settings.min_headroom if request.min_headroom is None else request.min_headroom
    if request.plan is not None:
        yield check_plan(PlanFile.read(request.plan), _target(request, hardware), headroom)
    if request.question:
        if hardware is None:
            raise InputError(
                "--hardware", "is missing", expected="the machine that will run it, a profile's name or file"
            )
        from advisor.ask import ask

        yield check_question(ask(hardware=hardware, **request.machine, **request.question), headroom)


def _target(request: Request, hardware: str | None) -> HardwareProfile | None:
    """The machine that was named; None leaves it to the plan. Never this machine."""
    from advisor.ask import machine

    if hardware is not None:
        return machine(hardware, **request.machine)
    if any(value is not None for value in request.machine.values()):
        raise InputError("--hardware", "is missing", expected="the machine that the other flags narrow")
    return None


def _configured_hardware(settings: Configured) -> str | None:
    """A file named in pyproject.toml lies beside it; anything else is a profile's name."""
    if settings.hardware is None:
        return None
    file = settings.root / settings.hardware
    return str(file) if file.is_file() else settings.hardware
