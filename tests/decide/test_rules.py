"""The rule engine: what loads, what does not and what it says; the trees' cases; walks of every kind of input."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.data import data_dir
from advisor.decide.cases import complaint, missing, read_cases
from advisor.decide.conditions import ConditionError, compile_condition
from advisor.decide.facts import FACTS, NONE, WAYS, neutral
from advisor.decide.rules import TREES, all_nodes, load_tree
from advisor.decide.walk import describe, turning_point, walk
from advisor.errors import InputError

GOOD = """
[XX001]
ask = "one?"
when = ["single.fits"]
yes = "single"
no = "XX002"
because = "simple"

[XX002]
ask = "shard?"
when = ["gpus > 1", "zero3.fits"]
yes = "zero3"
no = "none"
because = "more room"
"""


@pytest.mark.parametrize("name", TREES)
def test_every_node_has_both_cases_and_does_what_they_say(name: str) -> None:
    tree = load_tree(name)
    cases = read_cases(data_dir("rules") / f"{name}.cases.toml")
    assert missing(tree, cases) == []
    assert [wrong for case in cases if (wrong := complaint(tree, case))] == []


def test_a_wrong_case_is_noticed() -> None:
    tree = load_tree("inference")
    first = read_cases(data_dir("rules") / "inference.cases.toml")[0]
    turned = type(first)(first.code, not first.answer, first.leaf, first.facts, first.file)
    elsewhere = type(first)(first.code, first.answer, "zero3", first.facts, first.file)
    assert "INF001 answers yes" in (complaint(tree, turned) or "")
    assert "ends at single, not zero3" in (complaint(tree, elsewhere) or "")
    assert missing(tree, (first,))[0] == "INF001 no"


def test_codes_are_unique_over_trees() -> None:
    assert len(all_nodes()) == sum(len(load_tree(name).nodes) for name in TREES)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("speed > 1", "no fact"),
        ("zero3.fit", "near: zero3.fits"),
        ("gpus", "is a number"),
        ("gpus == 'one'", "a text, where a number belongs"),
        ("card_memory > network", "compares B with B/s"),
        ("card_memory + 1 > single.speed", "compares B with tokens/s"),
        ("card_memory * single.speed > 1", "whose unit no fact has"),
        ("task < 'b'", "orders texts"),
        ("1 < gpus < 3", "one comparison at a time"),
        ("nvlink is True", "do not know"),
        ("__import__('os').system('true')", "do not know"),
        ("gpus.__class__.__name__ == 'x'", "no name of a fact"),
        ("[x for x in (1,)] == 1", "do not know"),
        ("(lambda: True)()", "do not know"),
        ("gpus ** 9 > 1", "do not know"),
        ("task in names", "wants constants"),
        ("task in (task,)", "no constant"),
        ("task in (1,)", "where a text belongs"),
        ("1 > 0", "asks about no fact"),
        ("gpus >", "no condition"),
        ("gpus > " + "1" * 200, "longer than"),
        ("not gpus", "where a flag belongs"),
        ("-nvlink", "where a number belongs"),
    ],
)
def test_conditions_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(ConditionError, match=says.replace("(", r"\(")):
        compile_condition(text)


@pytest.mark.parametrize(
    ("text", "facts", "holds"),
    [
        ("single.fits", {"single.fits": True}, True),
        ("not single.fits", {}, True),
        ("gpus >= 2 and nvlink", {"gpus": 2, "nvlink": True}, True),
        ("gpus >= 2 or nvlink", {"gpus": 1}, False),
        ("ddp.speed > margin * single.speed", {"ddp.speed": 13.0, "single.speed": 10.0, "margin": 1.25}, True),
        ("ddp.speed > margin * single.speed", {"ddp.speed": 12.0, "single.speed": 10.0, "margin": 1.25}, False),
        ("ddp.speed > single.speed", {"ddp.speed": 12.0}, False),  # unknown is never more
        ("not ddp.speed > single.speed", {"ddp.speed": 12.0}, True),  # and never known to be more
        ("weights / card_memory < 1", {"weights": 10, "card_memory": 0}, False),
        ("task in ('inference', 'finetune')", {"task": "inference"}, True),
        ("task not in ('inference',)", {"task": "inference"}, False),
        ("-gpus < 0", {"gpus": 1}, True),
        ("card_memory > 8 * 1073741824", {"card_memory": 16 << 30}, True),
    ],
)
def test_conditions_that_hold_or_not(text: str, facts: dict[str, object], holds: bool) -> None:
    assert compile_condition(text).evaluate(neutral() | facts).holds is holds  # type: ignore[operator]


def test_a_condition_shows_what_it_saw() -> None:
    seen = compile_condition("card_memory > 8 * 1073741824").evaluate(neutral() | {"card_memory": 16 << 30})
    assert seen.values == (("card_memory", "16.0 GiB"),)
    seen = compile_condition("single.speed > 1").evaluate(neutral())
    assert seen.values == (("single.speed", "unknown"),)


def overlay(folder: Path, text: str, name: str = "inference.toml") -> Path:
    (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("single.fits", "singel.fits"), r"INF002\.when: asks about singel\.fits"),
        (('yes     = "INF002"', 'yes = "INF404"'), r"INF001\.yes: leads to nothing, found 'INF404'"),
        (('no      = "none"', 'no = "INF001"'), r"leads in a circle: INF001 -> INF001"),
        (('because = "Every', 'becuse = "Every'), r"INF001\.because: is missing"),
        (("[INF001]", "[INF002]"), "INF002: stands there twice"),
        (('yes     = "tensor_parallel"', 'yes = "zero3"'), r"INF003\.yes: ends at zero3 without having asked"),
    ],
)
def test_a_broken_file_names_file_and_node(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    ours = (data_dir("rules") / "inference.toml").read_text()
    assert change[0] in ours
    with pytest.raises(InputError, match=says) as caught:
        load_tree("inference", overlay(tmp_path, ours.replace(*change, 1)))
    assert "inference.toml" in str(caught.value)


def test_an_unreachable_node_is_refused(tmp_path: Path) -> None:
    lost = '[LOST1]\nask = "?"\nwhen = ["nvlink"]\nyes = "none"\nno = "none"\nbecause = "b"\n'
    with pytest.raises(InputError, match="LOST1: cannot be reached from INF001"):
        load_tree("inference", overlay(tmp_path, lost))


def test_a_team_lays_its_rules_over_ours(tmp_path: Path) -> None:
    ours = load_tree("inference").nodes["INF002"]
    mine = (
        '[INF002]\nask = "Do we serve in 4 bits?"\nwhen = ["single_nf4.fits"]\nyes = "single_nf4"\nno = "TEAM1"\n'
        'because = "house rule"\n[TEAM1]\nask = "one?"\nwhen = ["single.fits"]\nyes = "INF003"\nno = "INF010"\n'
        'because = "as before"\n'
    )
    tree = load_tree("inference", overlay(tmp_path, mine))
    facts = neutral() | {"gpus": 1, "single.fits": True, "single_nf4.fits": True}
    assert walk(tree, facts).leaf == "single_nf4"
    assert walk(load_tree("inference"), facts).leaf == "single"
    assert tree.nodes["INF002"] != ours and tree.nodes["INF020"] == load_tree("inference").nodes["INF020"]
    assert walk(load_tree("finetune", tmp_path), neutral()).leaf == NONE  # the other tree stays ours


def test_a_rules_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no folder"):
        load_tree("inference", tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no rules"):
        load_tree("inference", tmp_path)
    with pytest.raises(InputError, match=r"train\.toml: is no tree"):
        load_tree("inference", overlay(tmp_path, GOOD, "train.toml"))


def test_why_not_walks_back_to_the_answer_that_led_elsewhere() -> None:
    facts = neutral() | {"gpus": 2, "margin": 1.35, "single_nf4.fits": True, "device_map.fits": True}
    facts |= {"single_nf4.speed": 42.0, "device_map.speed": 33.0}
    taken = walk(load_tree("inference"), facts)
    assert taken.leaf == "single_nf4"
    step = turning_point(taken, "device_map")
    assert step is not None and step.code == "INF012" and not step.answer
    assert "device_map.speed = 33 tokens/s" in describe(step)
    assert turning_point(taken, "single_nf4") is None
    assert turning_point(taken, "ddp") is None  # this tree has no such leaf


_FLAG = st.booleans()
_NUMBER = st.one_of(st.none(), st.floats(0, 1e6, allow_nan=False))


@given(
    st.fixed_dictionaries(
        {name: _FLAG if f.type == "flag" else _NUMBER for name, f in FACTS.items() if f.type != "text"}
    )
)
def test_every_input_reaches_a_leaf_that_fits(drawn: dict[str, object]) -> None:
    for name in TREES:
        taken = walk(load_tree(name), neutral() | drawn)  # type: ignore[operator]
        assert taken.leaf == NONE or (taken.leaf in WAYS and drawn[f"{taken.leaf}.fits"])


@pytest.mark.parametrize("name", TREES)
def test_nothing_that_fits_is_left_unseen(name: str) -> None:
    """With a GPU and one way that fits, alone, the walk finds it (where the tree serves that way)."""
    tree = load_tree(name)
    served = [way for way in WAYS if tree.reaches(tree.root.code, way)]
    assert served
    for way in served:
        nodes = 2 if "_nodes" in way else 1
        facts = neutral() | {"gpus": 2 * nodes, "cards": 2, "nodes": nodes, "margin": 1.25, f"{way}.fits": True}
        facts |= {f"{way}.speed": 10.0, f"{way}.headroom": 0.2, f"{way}.free": 8 << 30, f"{way}.step_free": 8 << 30}
        found = walk(tree, facts).leaf
        assert found == way, f"{way} fits, the tree ends at {found}"
