"""The files that engines want as paths: written beside the plan, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.files import write_whole
from advisor.plan import PlanStep


def write_engine_files(
    step: PlanStep, folder: Path, learning_rate: float | None = None, known: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Write the step's DeepSpeed json, accelerate yaml, environment and device map; returns the places of a launch by name.

    ``learning_rate`` replaces the one of the DeepSpeed json's optimizer; ``known`` fills "{master_addr}" and its like
    in the accelerate yaml.
    """
    places: dict[str, str] = {}
    if step.deepspeed is not None:
        path = folder / f"{step.name}.deepspeed.json"
        config = json.loads(json.dumps(step.deepspeed))
        if learning_rate is not None and "optimizer" in config:
            config["optimizer"].setdefault("params", {})["lr"] = learning_rate
        write_whole(path, json.dumps(config, indent=2) + "\n")
        places["deepspeed_config"] = str(path.absolute())
    if step.accelerate is not None:
        import yaml

        path = folder / f"{step.name}.accelerate.yaml"
        values = _filled(step.accelerate, {**(known or {}), **places})
        write_whole(path, yaml.safe_dump(values, sort_keys=False))
        places["accelerate_config"] = str(path.absolute())
    if step.launch.launcher == "deepspeed" and step.job.nodes > 1:
        # The launcher hands other nodes only a few variables of its own choice, and those of this file.
        path = folder / f"{step.name}.deepspeed_env"
        write_whole(path, "".join(f"{key}={value}\n" for key, value in step.launch.environment.items()))
        places["deepspeed_env"] = str(path.absolute())
    if step.device_map is not None:
        path = folder / f"{step.name}.device_map.json"
        write_whole(path, json.dumps(step.device_map, indent=2) + "\n")
        places["device_map"] = str(path.absolute())
    return places


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _filled(inner, places) for key, inner in value.items()}
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace(f"{{{name}}}", place)
    return value
