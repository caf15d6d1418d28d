"""What changed since a plan was made: library versions, the model's config, the machine's profile. Each with values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from advisor.check.fit.codes import CONFIG_CHANGED, HARDWARE_CHANGED, VERSIONS_CHANGED, PlanFile
from advisor.check.types import Doubt, Finding
from advisor.errors import InputError
from advisor.units import format_bytes

if TYPE_CHECKING:
    from advisor.hardware.profile import HardwareProfile
    from advisor.models.spec import ModelSpec
    from advisor.plan import Plan

# Keys of config.json that say who wrote it, not what the model is.
_AUTHORSHIP = frozenset({"transformers_version", "_name_or_path", "_commit_hash"})
_SHOWN = 5  # changed values named in one finding
_MISSING = "nothing"


def renewed(planned: HardwareProfile) -> HardwareProfile:
    """The shipped profile of the plan's machine as it is now, narrowed as the plan narrowed it.

    The plan's own record where the machine was probed or described by a file: there is nothing newer to read here.
    """
    from advisor.hardware.load import load_profile, profile_paths, select

    if planned.here or planned.name not in profile_paths():
        return planned
    now = load_profile(planned.name)
    cards = len(planned.cards)
    if cards < len(now.cards):
        now = select(now, gpus=cards)
    changes: dict[str, Any] = {"nodes": planned.nodes, "gpu_memory_limit": planned.gpu_memory_limit}
    if planned.host.memory_limit_reason is not None:  # --host-memory
        changes["host"] = now.host.model_copy(
            update={
                "memory_available": planned.host.memory_available,
                "memory_limit_reason": planned.host.memory_limit_reason,
            }
        )
    return now.model_copy(update=changes)


def software(file: PlanFile, plan: Plan, target: HardwareProfile | None) -> Iterator[Finding]:
    """Packages whose version is another than the plan's: on the target if its profile lists them, else here."""
    versions, where = _versions(plan, target)
    changed = [
        (name, then, versions[name])
        for name, then in sorted(plan.software.items())
        if name in versions and _release(versions[name]) != _release(then)
    ]
    if changed:
        # A patch release is said and fails nothing; memory and defaults move with the others.
        large = any(_release(then)[:2] != _release(now)[:2] for _, then, now in changed)
        listed = ", ".join(f"{name} {then} -> {now}" for name, then, now in changed)
        yield VERSIONS_CHANGED.finding(
            str(file.path), file.line("software"), f"versions {where} are not the plan's: {listed}",
            severity="warning" if large else "info",
        )  # fmt: skip


def doubts(file: PlanFile, plan: Plan, target: HardwareProfile | None, now: ModelSpec | InputError) -> Iterator[Doubt]:
    """What of the drift cannot be told: packages that are nowhere, and a model that is not on this machine."""
    versions, where = _versions(plan, target)
    missing = [name for name in sorted(plan.software) if name not in versions]
    if missing:
        text = f"whether {', '.join(missing)} changed since the plan was made: not installed {where}"
        yield Doubt(code=VERSIONS_CHANGED.code, path=str(file.path), line=file.line("software"), message=text)
    if isinstance(now, InputError):
        text = f"whether the model changed since the plan was made ({now})"
        yield Doubt(code=CONFIG_CHANGED.code, path=str(file.path), line=file.line("model"), message=text)


def model_now(plan: Plan) -> ModelSpec | InputError:
    """The plan's model as disk, catalogue or Hugging Face cache have it now, never fetched; or why there is none."""
    from advisor.models.resolve import resolve

    name = plan.model.path if plan.model.source == "local" and plan.model.path else plan.model.loader_repo
    try:
        return resolve(name, trust_remote_code=plan.model.trust_remote_code)
    except InputError as error:
        return error


def model(file: PlanFile, plan: Plan, now: ModelSpec) -> Iterator[Finding]:
    """A config.json that is another now."""
    then = plan.model.config
    changed: list[tuple[str, object, object]] = [
        (key, then.get(key, _MISSING), now.config.get(key, _MISSING))
        for key in sorted((set(then) | set(now.config)) - _AUTHORSHIP)
        if then.get(key) != now.config.get(key)
    ]
    stored = (plan.model.quantization_config, dict(now.quantization_config) if now.quantization_config else None)
    if stored[0] != stored[1]:
        changed.append(("quantization_config", stored[0] or _MISSING, stored[1] or _MISSING))
    if changed:
        text = f"the config of {plan.model.name} ({now.source}) is not the plan's: {_listed(changed)}"
        yield CONFIG_CHANGED.finding(str(file.path), file.line("model"), text)


def hardware(file: PlanFile, plan: Plan, machine: HardwareProfile) -> Iterator[Finding]:
    """A profile of the plan's machine that says other things now; another machine is said, and fails nothing."""
    if machine.name != plan.hardware.name:
        text = f"the plan was made for {plan.hardware.name}; checked against {machine.name}"
        yield HARDWARE_CHANGED.finding(str(file.path), file.line("hardware"), text, fix="", severity="info")
        return
    then, now = _facts(plan.hardware), _facts(machine)
    changed = [
        (key, then.get(key, _MISSING), now.get(key, _MISSING)) for key in now | then if then.get(key) != now.get(key)
    ]
    if changed:
        text = f"the profile of {machine.name} is not the plan's: {_listed(changed)}"
        yield HARDWARE_CHANGED.finding(str(file.path), file.line("hardware"), text)


def _versions(plan: Plan, target: HardwareProfile | None) -> tuple[Mapping[str, str], str]:
    """Versions by package, and where they were read. A profile written by ``advisor probe`` lists them."""
    from advisor.cache import version_of

    if target is not None and target.software.packages:
        return target.software.packages, f"on {target.name}"
    found = {name: version for name in plan.software if (version := version_of(name)) is not None}
    return found, "here"


def _release(version: str) -> tuple[int | str, ...]:
    """Comparable parts without the build tag (+cu126)."""
    return tuple(int(part) if part.isdigit() else part for part in version.split("+")[0].split("."))


def _facts(machine: HardwareProfile) -> dict[str, object]:
    """What budgets and times depend on, by dotted name; what is free this minute is left out."""
    facts: dict[str, object] = {"nodes": machine.nodes}
    for number, gpu in enumerate(machine.gpus):
        card = gpu.model_dump(exclude={"memory_free", "uuids", "processes", "pcie"}, exclude_none=True)
        facts |= {f"gpus[{number}].{key}": value for key, value in card.items()}
    host = machine.host.model_dump(exclude={"memory_available", "memory_limit_reason"}, exclude_none=True)
    facts |= {f"host.{key}": value for key, value in host.items()}
    facts |= {f"links.{key}": value for key, value in machine.links.model_dump(exclude_none=True).items()}
    if machine.measured is not None:
        measured = machine.measured.model_dump(exclude={"date", "method"}, exclude_none=True)
        facts |= {f"measured.{key}": value for key, value in measured.items()}
    return facts


def _listed(changed: list[tuple[str, object, object]]) -> str:
    text = ", ".join(f"{key} {_shown(key, then)} -> {_shown(key, now)}" for key, then, now in changed[:_SHOWN])
    return f"{text} and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else text


def _shown(key: str, value: object) -> str:
    return format_bytes(value) if key.endswith("memory_total") and isinstance(value, int) else str(value)
