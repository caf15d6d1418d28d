"""The fit half: budgets computed again for the target, head-room, and what changed since the plan was made."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from advisor.advise import recommend
from advisor.ask import ask
from advisor.check.fit.codes import FIT_RULES, PlanFile
from advisor.check.fit.recompute import Fit, check_plan, check_question
from advisor.errors import InputError
from advisor.hardware.load import load_profile
from advisor.plan import write_plan

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A plan to train GPT-2 on one 24 GiB card, as ``recommend`` writes it."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    question = ask("openai-community/gpt2", "finetune", hardware="rtx4090-x2", batch_size=4, seq_len=256)
    advice = recommend(question.model, question.machine, question.workload)
    assert advice.plan is not None
    write_plan(advice.plan, path)
    return json.loads(path.read_text())  # type: ignore[no-any-return]


@pytest.fixture
def checked(plan: dict[str, Any], tmp_path: Path) -> Callable[..., Fit]:
    """Checks the plan after a change to it."""

    def check(change: Edit | None = None, hardware: str | None = None, min_headroom: float | None = None) -> Fit:
        value = json.loads(json.dumps(plan))
        if change is not None:
            change(value)
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(value, indent=2))
        file = PlanFile(path, path.read_text())
        return check_plan(file, load_profile(hardware) if hardware else None, min_headroom)

    return check


def codes(fit: Fit) -> list[tuple[str, str]]:
    return [(finding.code, finding.severity) for finding in fit.findings]


def test_a_fresh_plan_is_clean_and_says_what_it_needs(checked: Callable[..., Fit]) -> None:
    fit = checked()
    assert codes(fit) == [] and fit.doubts == ()
    assert len(fit.sentences) == 1
    assert "on rtx4090-x2): needs" in fit.sentences[0] and "of the fullest card free" in fit.sentences[0]


def test_headroom_is_a_threshold_on_what_is_free(checked: Callable[..., Fit]) -> None:
    said = checked().sentences[0]
    free = int(said.rsplit(", ", 1)[1].split("%")[0]) / 100
    assert codes(checked(min_headroom=max(0.0, free - 0.02))) == []
    tight = checked(min_headroom=min(0.99, free + 0.02))
    assert codes(tight) == [("ADV902", "warning")]
    assert "less than the" in tight.findings[0].message and "of 24.0 GiB" in tight.findings[0].message


def test_headroom_holds_for_host_ram(checked: Callable[..., Fit]) -> None:
    def small_host(value: dict[str, Any]) -> None:
        need = max(value["steps"][0]["promise"]["host_ram"], value["steps"][0]["promise"]["host_ram_load"])
        value["hardware"]["host"] |= {"memory_available": int(need * 1.05), "memory_limit_reason": "--host-memory"}

    assert codes(checked(small_host, min_headroom=0.1)) == [("ADV902", "warning")]
    assert "of host RAM free" in checked(small_host, min_headroom=0.1).findings[0].message


def test_does_not_fit_on_a_smaller_card(checked: Callable[..., Fit]) -> None:
    def large(value: dict[str, Any]) -> None:
        value["steps"][0]["job"] |= {"micro_batch_size": 512, "gradient_checkpointing": False}

    fit = checked(large)
    assert codes(fit) == [("ADV901", "error"), ("ADV914", "warning")]
    assert "GiB of the card" in fit.findings[0].message
    assert fit.sentences == ()


def test_the_named_machine_is_the_target(checked: Callable[..., Fit]) -> None:
    fit = checked(hardware="rtx4090-x1")
    found = codes(fit)
    assert ("ADV913", "info") in found  # another machine is said, and fails nothing by itself
    other = [finding for finding in fit.findings if finding.code != "ADV913"]
    assert [finding.code for finding in other] in ([], ["ADV903"])
    gone = checked(lambda value: value["steps"][0]["job"].update(gpus=2, strategy="ddp"), hardware="rtx4090-x1")
    refused = next(finding for finding in gone.findings if finding.code == "ADV903")
    assert "uses 2 GPUs, rtx4090-x1 has 1" in refused.message


def test_a_card_without_bf16_refuses(checked: Callable[..., Fit]) -> None:
    fit = checked(lambda value: value["steps"][0]["job"].update(gpus=1, strategy="single", precision="bf16"), "t4")
    assert ("ADV903", "error") in codes(fit)
    assert any("has no bf16" in finding.message for finding in fit.findings)


def test_versions_that_changed(checked: Callable[..., Fit]) -> None:
    fit = checked(lambda value: value["software"].update(transformers="4.30.1"))
    assert codes(fit) == [("ADV911", "warning")]
    assert "transformers 4.30.1 -> " in fit.findings[0].message
    assert fit.findings[0].line > 1


def test_a_patch_version_is_information_and_a_build_tag_nothing(
    checked: Callable[..., Fit], plan: dict[str, Any]
) -> None:
    major, minor, _ = plan["software"]["accelerate"].split(".", 2)
    assert codes(checked(lambda value: value["software"].update(accelerate=f"{major}.{minor}.99"))) == [
        ("ADV911", "info")
    ]
    torch = plan["software"]["torch"].split("+")[0]
    assert codes(checked(lambda value: value["software"].update(torch=f"{torch}+cu999"))) == []


def test_a_package_that_is_nowhere_is_a_doubt(checked: Callable[..., Fit]) -> None:
    fit = checked(lambda value: value["software"].update({"not-a-package-of-ours": "1.0"}))
    assert codes(fit) == []
    assert ["not-a-package-of-ours" in doubt.message for doubt in fit.doubts] == [True]


def test_the_targets_own_versions_count_before_the_runners(plan: dict[str, Any], tmp_path: Path) -> None:
    profile = load_profile("rtx4090-x2")
    packages = plan["software"] | {"torch": "1.13.1"}
    target = profile.model_copy(update={"software": profile.software.model_copy(update={"packages": packages})})
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    fit = check_plan(PlanFile(path, path.read_text()), target, None)
    assert codes(fit) == [("ADV911", "warning")]
    assert "on rtx4090-x2" in fit.findings[0].message and "-> 1.13.1" in fit.findings[0].message


def test_a_config_that_changed_names_keys_and_values(checked: Callable[..., Fit]) -> None:
    fit = checked(lambda value: value["model"]["config"].update(n_layer=6))
    # What would run is the model as it is now, with twice the layers: its budget is the one that counts.
    assert codes(fit) == [("ADV912", "warning")]
    assert "n_layer 6 -> 12" in fit.findings[0].message
    assert fit.sentences == checked().sentences


def test_who_wrote_a_config_is_no_change(checked: Callable[..., Fit]) -> None:
    assert codes(checked(lambda value: value["model"]["config"].update(transformers_version="4.1"))) == []


def test_a_model_that_is_not_here_is_a_doubt(checked: Callable[..., Fit]) -> None:
    fit = checked(lambda value: value["model"].update(source="local", path="/nowhere/at/all"))
    assert codes(fit) == []
    assert len(fit.doubts) == 1 and "model changed" in fit.doubts[0].message


def test_a_profile_that_changed(checked: Callable[..., Fit]) -> None:
    def older(value: dict[str, Any]) -> None:
        value["hardware"]["gpus"][0]["memory_total"] = 20 << 30
        value["hardware"]["links"]["host_to_gpu"] = 1e9

    fit = checked(older)
    assert codes(fit) == [("ADV913", "warning")]
    assert "gpus[0].memory_total 20.0 GiB -> " in fit.findings[0].message
    assert "links.host_to_gpu 1000000000.0 -> " in fit.findings[0].message


def test_flags_that_narrowed_the_machine_are_no_change(checked: Callable[..., Fit]) -> None:
    assert codes(checked(lambda value: value["hardware"].update(gpu_memory_limit=20 << 30))) == []
    limited = checked(lambda value: value["hardware"].update(gpu_memory_limit=1 << 30))
    assert codes(limited) == [("ADV901", "error")]


def test_a_budget_that_changed_has_both_numbers(checked: Callable[..., Fit]) -> None:
    def promised(share: float) -> Edit:
        def change(value: dict[str, Any]) -> None:
            for gpu in value["steps"][0]["promise"]["gpus"]:
                gpu["required"] = int(gpu["required"] * share)

        return change

    more = checked(promised(0.5))
    assert codes(more) == [("ADV914", "warning")]
    assert "the plan promised" in more.findings[0].message and "(+" in more.findings[0].message
    assert codes(checked(promised(2.0))) == [("ADV914", "info")]
    assert codes(checked(promised(1.01))) == []


def test_what_is_no_plan_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="is not an advisor plan"):
        check_plan(PlanFile(path, "{}"), None, None)


def test_a_question_is_decided_as_recommend_decides() -> None:
    fits = check_question(ask("openai-community/gpt2", "inference", hardware="t4", seq_len=256), None)
    assert fits.findings == () and "on 1 GPU of t4" in fits.sentences[0]
    tight = check_question(ask("openai-community/gpt2", "inference", hardware="t4", seq_len=256), 0.99)
    assert codes(tight) == [("ADV902", "warning")] * 2  # the card and host RAM


def test_a_question_that_nothing_answers_names_what_is_missing() -> None:
    asked = ask(
        "openai-community/gpt2", "finetune", hardware="t4", gpu_memory="1GiB", host_memory="1GiB", method="full",
        batch_size=8, seq_len=512,
    )  # fmt: skip
    fit = check_question(asked, None)
    assert codes(fit) == [("ADV901", "error")] and fit.findings[0].path == ""
    assert "GiB" in fit.findings[0].message or "MiB" in fit.findings[0].message


def test_lines_are_those_of_the_file() -> None:
    file = PlanFile(Path("plan.json"), '{\n  "a": 1,\n  "software": {}\n}')
    assert (file.line("software"), file.line("nothing"), file.line("software", 1)) == (3, 1, 1)
    assert PlanFile(Path("plan.json"), '"a": 1\n"a": 2').line("a", 1) == 2


def test_codes_have_all_their_words() -> None:
    assert len({rule.code for rule in FIT_RULES}) == len(FIT_RULES)
    for rule in FIT_RULES:
        assert rule.code.startswith("ADV9") and rule.what.endswith((".", "…")) and rule.why and rule.fix
