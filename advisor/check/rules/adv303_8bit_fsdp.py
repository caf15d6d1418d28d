"""ADV303: 8-bit weights under FSDP."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.check.judge import finding, loads, quantized
from advisor.check.project import Project
from advisor.check.types import Doubt, Finding, Rule
from advisor.check.values import truth


def check(project: Project) -> Iterator[Finding | Doubt]:
    """8-bit loads in runs with FSDP, in scripts and in argument files."""
    for run in project.runs:
        if run.fsdp is None:
            continue
        found = [how for load in loads(run) if (how := quantized(run, load)) is not None and how.bits == 8]
        for how in found:
            yield finding(RULE, how.node, "the model is loaded in 8 bits, and FSDP cannot shard int8 weights")
        patched = "base_model" in run.options  # axolotl brings its own sharding of int8 weights
        given = run.argument("load_in_8bit") if not found and not patched else None
        if given is not None and truth(given[0].value) is True:
            yield finding(RULE, given[0], "load_in_8bit is on, and FSDP cannot shard int8 weights")


RULE = Rule(
    code="ADV303",
    name="8bit-under-fsdp",
    severity="error",
    what="load_in_8bit together with FSDP.",
    why="FSDP flattens float tensors only, and 8-bit weights of bitsandbytes have no float storage as 4-bit ones have.",
    fix="4 bits with bnb_4bit_quant_storage, or 8 bits under DDP with device_map={'': local_rank}",
    since="every bitsandbytes",
    check=check,
)
