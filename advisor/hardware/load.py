"""Profiles by name or file, narrowed by flags; and this machine."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

from pydantic import ValidationError

from advisor.data import data_dir
from advisor.errors import InputError, explain_validation
from advisor.files import read_json
from advisor.hardware.profile import Gpu, HardwareProfile
from advisor.units import format_bytes


def profile_paths() -> dict[str, Path]:
    """Shipped profiles by name."""
    return {path.stem: path for path in sorted(data_dir("hardware_profiles").glob("*.toml"))}


def load_profile(name: str) -> HardwareProfile:
    """The shipped profile ``name``, or the profile in a file (.toml, or .json as ``advisor probe --json`` prints).

    Raises InputError for an unknown name (with the nearest ones) and for a file whose fields are missing or wrong.
    """
    shipped = profile_paths()
    path = shipped.get(name.lower())
    if path is None:
        path = Path(name).expanduser()
        if not path.is_file():
            near = difflib.get_close_matches(name.lower(), list(shipped), n=5, cutoff=0.3)
            raise InputError(
                "--hardware", "is no profile and no file", found=name,
                expected=f"one of {', '.join(near) or ', '.join(shipped)}, or a profile's path",
            )  # fmt: skip
    return read_profile(path)


def read_profile(path: Path) -> HardwareProfile:
    """One profile file. Raises InputError naming the file and the field."""

    if path.suffix == ".json":
        value = read_json(path)
    else:
        try:
            value = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(str(path), f"cannot be read ({error.strerror})") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(str(path), f"is not valid TOML ({error})") from error
    try:
        return HardwareProfile.model_validate(value)
    except ValidationError as error:
        raise explain_validation(str(path), error) from error


def this_machine() -> HardwareProfile:
    """The machine this runs on, read now."""
    from advisor.hardware.probe import probe

    return probe()


def select(
    profile: HardwareProfile,
    *,
    gpus: int | None = None,
    nodes: int | None = None,
    gpu_memory: int | None = None,
    host_memory: int | None = None,
) -> HardwareProfile:
    """The profile narrowed: ``gpus`` cards of each node, ``nodes`` alike nodes, ``gpu_memory`` bytes of each card
    (runtime included), ``host_memory`` bytes of RAM a node. Raises InputError when more is asked than there is."""
    changes: dict[str, object] = {}
    if gpus is not None:
        changes["gpus"] = _first_cards(profile, gpus)
    if nodes is not None:
        changes["nodes"] = nodes
    if gpu_memory is not None:
        largest = max((gpu.memory_total for gpu in profile.gpus), default=0)
        if gpu_memory > largest:
            raise InputError(
                "--gpu-memory", f"is more than a card of {profile.name} has ({format_bytes(largest)})",
                found=format_bytes(gpu_memory),
            )  # fmt: skip
        changes["gpu_memory_limit"] = gpu_memory
    if host_memory is not None:
        reason = "--host-memory"
        changes["host"] = profile.host.model_copy(
            update={"memory_available": host_memory, "memory_limit_reason": reason}
        )
    return profile.model_copy(update=changes)


def _first_cards(profile: HardwareProfile, count: int) -> tuple[Gpu, ...]:
    total = sum(gpu.count for gpu in profile.gpus)
    if count > total:
        raise InputError(
            "--gpus", f"is more than {profile.name} has in a node", found=count, expected=f"at most {total}"
        )
    kept: list[Gpu] = []
    for gpu in profile.gpus:
        take = min(gpu.count, count - sum(card.count for card in kept))
        if take > 0:
            kept.append(gpu.model_copy(update={"count": take, "uuids": gpu.uuids[:take]}))
    return tuple(kept)
