"""The page's numbers, drawings and file."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from advisor.advise import Advice
from advisor.cli import app
from advisor.curves import Curve, curves
from advisor.decide.rules import TREES, load_tree
from advisor.errors import InputError
from advisor.plan import Plan, TraceStep, write_plan
from advisor.planning import spec_of
from advisor.record import Measurement, RunRecord
from advisor.report.page.answer import of_advice, of_plan
from advisor.report.page.bars import rows
from advisor.report.page.charts import chart
from advisor.report.page.page import render
from advisor.report.page.strip import strip
from advisor.report.page.tree import Drawing, drawing
from advisor.strategies.registry import STRATEGIES
from advisor.units import format_bytes


def _plan(advice: Advice) -> Plan:
    assert advice.plan is not None
    return advice.plan


def test_bars_split_each_need_and_end_where_it_ends(mapped: Advice, sharded: Advice) -> None:
    for advice in (mapped, sharded):
        shown = rows(of_advice(advice))
        assert shown[0].candidate.chosen
        scale = next(100 * bar.limit / bar.mark for row in shown for bar in row.bars)
        for row in shown:
            assert (not row.bars) == (not row.candidate.gpus)
            for bar in row.bars:
                assert sum(segment.size for segment in bar.segments) == bar.needed
                drawn = sum(segment.width for segment in bar.segments)
                assert drawn == pytest.approx(100 if bar.beyond else 100 * bar.needed / scale)
                assert f"{bar.needed:,}" in bar.spoken
        chosen = advice.decision.chosen
        assert chosen is not None and chosen.budget is not None
        assert max(bar.needed for bar in shown[0].bars) == chosen.budget.fullest.needed


def test_a_plan_read_back_shows_what_the_advice_showed(mapped: Advice, tmp_path: Path) -> None:
    from advisor.plan import read_plan

    write_plan(_plan(mapped), tmp_path / "plan.json")
    again = replace(of_plan(read_plan(tmp_path / "plan.json")), notes=of_advice(mapped).notes)
    assert render(again) == render(of_advice(mapped))


def test_the_strip_of_a_device_map_is_the_device_map(mapped: Advice) -> None:
    step = _plan(mapped).main
    assert step.device_map is not None
    drawn = strip(of_advice(mapped), step)
    names = {"0": "GPU 0", "1": "GPU 1", "cpu": "host RAM", "disk": "disk"}
    for device, cells in drawn.devices:
        held = {cell.module for cell in cells if cell.share}
        assert held == {module for module, where in step.device_map.items() if names[str(where)] == device}
    assert "model.layers.0 to " in dict(drawn.spans)["GPU 0"]


def test_shards_of_a_layer_make_a_whole(sharded: Advice) -> None:
    drawn = strip(of_advice(sharded), _plan(sharded).main)
    assert len(drawn.devices) == 2 and len(drawn.modules) == 6 + 2
    for column in zip(*(cells for _, cells in drawn.devices), strict=True):
        assert sum(cell.share for cell in column) == pytest.approx(1)
        assert [cell.start for cell in column] == [0, 0.5]


def _trace(name: str, answers: dict[str, bool]) -> tuple[TraceStep, ...]:
    tree, here, trace = load_tree(name), load_tree(name).root.code, []
    while here in tree.nodes:
        node, answer = tree.nodes[here], answers.get(here, False)
        step = TraceStep(code=here, ask=node.ask, answer=answer, to=node.to(answer), conditions=())
        trace.append(step)
        here = step.to
    return tuple(trace)


@pytest.mark.parametrize("name", TREES)
def test_the_whole_tree_is_drawn_without_boxes_on_top_of_each_other(name: str) -> None:
    tree = load_tree(name)
    trace = _trace(name, {tree.root.code: True})
    drawn = drawing(name, trace)
    assert isinstance(drawn, Drawing)
    questions = [box.text for box in drawn.boxes if box.kind == "ask"]
    assert sorted(questions) == sorted(tree.nodes)
    assert len(drawn.edges) == 2 * len(tree.nodes)
    for one, other in combinations(drawn.boxes, 2):
        beside = one.x + one.width <= other.x or other.x + other.width <= one.x
        above = one.y + one.height <= other.y or other.y + other.height <= one.y
        assert beside or above, (one.text, other.text)
    lit = [edge for edge in drawn.edges if edge.lit]
    assert len(lit) == len(trace) and [edge.answer for edge in lit].count("yes") == sum(step.answer for step in trace)
    assert {box.text for box in drawn.boxes if box.lit and box.kind == "ask"} == {step.code for step in trace}


def test_a_trace_through_other_rules_is_told_but_not_drawn() -> None:
    other = TraceStep(code="TEAM01", ask="Ours?", answer=True, to="single", conditions=())
    assert drawing("inference", (other,)) is None


def test_curves_are_the_budgets_and_cross_where_they_say(mapped: Advice) -> None:
    plan = _plan(mapped)
    model, job = spec_of(plan), plan.main.job
    found = curves(model, plan.hardware, job)
    assert [curve.setting for curve in found] == ["micro_batch_size", "sequence_length"]
    for curve in found:
        own = dict(curve.points)[curve.now]
        assert own == max(gpu.required + gpu.runtime for gpu in plan.main.promise.gpus)
        assert all(before < after for (_, before), (_, after) in pairwise(curve.points))
        drawn = chart(curve)
        if drawn.meets is not None:
            size = {curve.setting: max(1, drawn.meets - 8 if drawn.meets > 64 else drawn.meets)}
            budget = STRATEGIES[job.strategy].budget(model, plan.hardware, replace(job, **size))
            assert budget.fullest.needed <= curve.limit * 1.01
    assert max(size for size, _ in found[1].points) <= 2048 - job.max_new_tokens  # the model's own context


@pytest.mark.parametrize(
    ("points", "meets"),
    [(((1, 50), (2, 60)), None), (((1, 50), (3, 150)), 2), (((1, 200), (2, 300)), 0), (((1, 100), (2, 101)), 1)],
)
def test_where_a_line_meets_the_limit(points: tuple[tuple[int, int], ...], meets: int | None) -> None:
    drawn = chart(Curve("micro_batch_size", 1, 100, points))
    assert drawn.meets == meets
    assert all(44 <= dot.x <= 352 and 14 <= dot.y <= 196 for dot in drawn.dots)


def test_runs_of_the_same_job_stand_beside_the_promise(sharded: Advice) -> None:
    plan = _plan(sharded)
    step = plan.main
    allocated = max(gpu.allocated for gpu in step.promise.gpus)
    measured = Measurement(outcome="ok", gpu_allocated=(allocated * 2,), step_seconds=1.0)
    record = RunRecord.of(step.job, measured, id="run-of-it", model=plan.model.name, hardware="desk")
    other = record.model_copy(update={"id": "another-model", "model": "other"})
    batch = replace(step.job, micro_batch_size=step.job.micro_batch_size + 1)
    third = RunRecord.of(batch, measured, id="another-batch", model=plan.model.name, hardware="desk")
    text = render(of_plan(plan), records=[record, other, third])
    assert "run-of-it on desk" in text and format_bytes(allocated * 2) in text and "-50.0%" in text
    assert "another-model" not in text and "another-batch" not in text


def test_where_nothing_fits_the_page_says_what_would_help(hopeless: Advice) -> None:
    assert hopeless.plan is None
    text = render(of_advice(hopeless))
    assert "Nearest ways out" in text and "advisor apply" not in text
    assert hopeless.decision.ways_out


def test_a_plan_for_the_cpu_has_a_page_too(mapped: Advice) -> None:
    plan = _plan(mapped)
    job = replace(plan.main.job, strategy="single", gpus=0, device_map=None, max_memory=None)
    promise = plan.main.promise.model_copy(update={"gpus": ()})
    step = plan.main.model_copy(update={"job": job, "promise": promise, "device_map": None})
    machine = plan.hardware.model_copy(update={"gpus": (), "name": "desk"})
    text = render(of_plan(plan.model_copy(update={"steps": (step,), "hardware": machine, "candidates": ()})))
    assert "The whole model lies in host RAM" in text and "<dt>fullest GPU</dt>" not in text
    assert curves(spec_of(plan), machine, job) == ()


def test_what_to_do_when_memory_runs_out_stands_among_the_commands(sharded: Advice) -> None:
    plan = _plan(sharded)
    assert ("--fallback" in render(of_plan(plan))) == bool(plan.fallbacks)
    assert "--fallback" in render(of_plan(plan.model_copy(update={"fallbacks": (plan.main,)})))


def test_a_plan_without_candidates_still_has_a_page(mapped: Advice) -> None:
    """Plans of earlier versions keep the decision alone."""
    value = json.loads(_plan(mapped).model_dump_json(exclude={"candidates", "workload", "changes", "given_up"}))
    for step in value["trace"]:
        del step["because"]
    text = render(of_plan(Plan.model_validate(value)))
    assert 'id="memory"' not in text and "How it was decided" in text


def test_a_staged_plan_shows_both_steps_and_the_hand_over(sharded: Advice, mapped: Advice) -> None:
    handover = {
        "summary": "the checkpoint takes <1> GiB",
        "how": "gather on rank 0",
        "serving": "Generate with device_map.",
    }
    serving = _plan(mapped).main
    plan = _plan(sharded).model_copy(update={"steps": (_plan(sharded).main, serving), "handover": handover})
    text = render(of_plan(plan))
    assert "Then serve" in text and "&lt;1&gt; GiB" in text and "gather on rank 0" in text
    assert text.count('<dl class="figures">') == 2
    assert "Where each layer goes: serve" in text


def test_the_command_writes_one_file_that_needs_no_other(mapped: Advice, tmp_path: Path) -> None:
    write_plan(_plan(mapped), tmp_path / "plan.json")
    ran = CliRunner().invoke(app, ["report", str(tmp_path / "plan.json"), "--no-sizes"])
    assert ran.exit_code == 0, ran.output
    page = tmp_path / "plan.html"
    assert ran.stdout.strip() == str(page)
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", text)
    assert "url(" not in text and "@import" not in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.html", "plan.json"]


@pytest.mark.parametrize("output", ["plan.json", "."])
def test_the_command_leaves_the_plan_and_folders_alone(mapped: Advice, tmp_path: Path, output: str) -> None:
    plan = tmp_path / "plan.json"
    write_plan(_plan(mapped), plan)
    before = plan.read_bytes()
    ran = CliRunner().invoke(app, ["report", str(plan), "--no-sizes", "-o", str(tmp_path / output)])
    assert isinstance(ran.exception, InputError) and "--output" in str(ran.exception)
    assert plan.read_bytes() == before


def test_what_is_no_plan_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[]", encoding="utf-8")
    ran = CliRunner().invoke(app, ["report", str(path)])
    assert isinstance(ran.exception, InputError) and "is not an advisor plan" in str(ran.exception)
    assert not (tmp_path / "x.html").exists()
