"""ADV208: an optimizer that is not DeepSpeed's, with its states offloaded."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import finding, place, shown
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import Called, truth


def check(project: Project) -> Iterator[Finding | Doubt]:
    """deepspeed.initialize(optimizer=torch's …) with a config that offloads the optimizer."""
    for run in project.runs:
        for zero in run.zeros:
            config = zero.config
            if config is None or zero.through != "initialize" or run.script is None:
                continue
            device = config.get("zero_optimization", "offload_optimizer", "device") or config.get(
                "zero_optimization", "cpu_offload"
            )
            if device is None or device.value not in ("cpu", "nvme", True):
                continue
            force = config.get("zero_force_ds_cpu_optimizer")
            if force is not None and truth(force.value) is not True:
                continue
            for call in run.script.named("initialize"):
                node = run.value(call.get("optimizer"))
                if "deepspeed" not in call.name or node is None or not isinstance(node.value, Called):
                    continue
                if node.value.name.startswith("torch.optim") or node.value.last in (
                    "AdamW",
                    "Adam",
                    "SGD",
                    "Adafactor",
                ):
                    yield finding(
                        RULE, node,
                        f"{shown(node)} is given to deepspeed.initialize, and its states are offloaded to {shown(device)} "
                        f"({place(device)}), which takes DeepSpeed's own optimizer alone",
                    )  # fmt: skip


RULE = Rule(
    code="ADV208",
    name="client-optimizer-offloaded",
    severity="error",
    what="offload_optimizer in the DeepSpeed config, with a torch optimizer given to deepspeed.initialize.",
    why='DeepSpeed stops: "You are using ZeRO-Offload with a client provided optimizer". Only its own '
    "DeepSpeedCPUAdam steps in host memory at speed. (accelerate and the Trainer replace torch's AdamW by it "
    "themselves.)",
    fix="deepspeed.ops.adam.DeepSpeedCPUAdam, or the optimizer in the DeepSpeed config; "
    '"zero_force_ds_cpu_optimizer": false keeps yours, slowly',
    since="DeepSpeed 0.8",
    check=check,
)
