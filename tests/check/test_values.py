"""Values of expressions: known where that is sound, unknown where the run decides, and never much work."""

from __future__ import annotations

import ast

import pytest

from advisor.check.readers.evaluate import Evaluator
from advisor.check.readers.python import script_facts
from advisor.check.readers.scopes import scopes
from advisor.check.values import ANY, UNKNOWN, Called, Dotted, Option, Rank, integer, number, truth


def last(source: str) -> object:
    """The plain value of the text's last expression."""
    tree = ast.parse(source)
    statement = tree.body[-1]
    assert isinstance(statement, ast.Expr)
    return Evaluator("x.py", source).node(statement.value, scopes(tree)[0]).plain()


def argument(source: str) -> object:
    """The plain value of `m=` in the call of `Model.from_pretrained`."""
    facts = script_facts(source, "x.py")
    assert facts is not None
    (call,) = facts.named("from_pretrained")
    node = call.get("m")
    assert node is not None
    return node.plain()


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("m = 'auto'\nm", "auto"),
        ("d = {'device_map': {'': 0}}\n{**d, 'n': -1}", {"device_map": {"": 0}, "n": -1}),
        ("n = 3\nf'zero{n}.json'", "zero3.json"),
        ("{'': int(x)}", {"": UNKNOWN}),
        ("m: str = 'auto'\nm", "auto"),
        ("dict(a=1, b='x')", {"a": 1, "b": "x"}),
        ("2 * 1024**3", 2 * 1024**3),
        ("'a' + 'b'", "ab"),
        ("x = 1\nx = 2\nx", 2),
        ("if __name__ == '__main__':\n    m = 'auto'\nm", "auto"),
        ("d = {'a': {'b': 1}, 'c': 2}\nd['a']['b'] = 3\nd", {"a": {"b": 3}, "c": 2}),
        ("d = {'a': 1}\nd['b'] = 2\nd['b']", 2),
        ("not True", False),
        ("'a' if False else 'b'", "b"),
        ("['x', 'y'][1]", "y"),
        ("import torch as t\nt.bfloat16", Dotted("torch.bfloat16")),
        ("import os\nint(os.environ.get('LOCAL_RANK', 0))", Rank("LOCAL_RANK")),
        ("import os\nos.environ['RANK']", Rank("RANK")),
    ],
)
def test_known(source: str, value: object) -> None:
    assert last(source) == value


@pytest.mark.parametrize(
    "source",
    [
        "m = 'auto'\nif x:\n    m = None\nm",
        "m = 'auto'\nm += 'x'\nm",
        "d = {}\nd.update(a=1)\nd",
        "m = 'auto'\ndef f():\n    global m\n    m = None\nm",
        "d = {}\ndef f():\n    d['a'] = 1\nd",
        "m = 'auto'\nfor m in y: pass\nm",
        "m = 'auto'\nexec(code)\nm",
        "m = 'auto'\nfrom settings import *\nm",
        "{**x, 'a': 1}",
        "a = a\na",
        "a = b\nb = a\na",
        "f'{x}'",
        "1 / 0",
        "'a' if x else 'b'",
    ],
)
def test_unknown_where_the_run_decides(source: str) -> None:
    found = last(source)
    assert found is UNKNOWN or isinstance(found, (Dotted, Called))


def test_a_store_in_a_branch_makes_its_entry_unknown() -> None:
    assert last("d = {'a': 1, 'b': 2}\nif x:\n    d['a'] = 3\nd") == {"a": UNKNOWN, "b": 2}


def test_a_store_under_a_computed_key_may_be_any_entry() -> None:
    assert last("d = {'a': 1}\nfor k in x:\n    d[k] = 2\nd") == {"a": UNKNOWN, ANY: 2}


HEAD = "from transformers import Model, HfArgumentParser\nimport argparse\nfrom dataclasses import dataclass, field\n"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("def f(m):\n    Model.from_pretrained(m=m)\nf('auto')\n", "auto"),
        ("def f(m='auto'):\n    Model.from_pretrained(m=m)\nf()\n", "auto"),
        ("def g():\n    return 'auto'\nModel.from_pretrained(m=g())\n", "auto"),
        ("kw = {'m': 'auto'}\nModel.from_pretrained(**kw)\n", "auto"),
        ("kw = dict(m='auto')\nkw['n'] = 1\nModel.from_pretrained(**kw)\n", "auto"),
    ],
)
def test_followed_through_functions_and_keywords(source: str, value: object) -> None:
    assert argument(HEAD + source) == value


@pytest.mark.parametrize(
    "source",
    [
        "def f(m):\n    Model.from_pretrained(m=m)\nf('auto')\nf(None)\n",
        "def f(m='auto'):\n    Model.from_pretrained(m=m)\n",
        "def g(x):\n    if x:\n        return 1\n    return 2\nModel.from_pretrained(m=g(y))\n",
    ],
)
def test_not_followed_where_callers_decide(source: str) -> None:
    assert not isinstance(argument(HEAD + source), (str, int))


@pytest.mark.parametrize(
    "source",
    [
        "p = argparse.ArgumentParser()\np.add_argument('--m', default='auto')\nargs = p.parse_args()\n"
        "Model.from_pretrained(m=args.m)\n",
        "@dataclass\nclass A:\n    m: str = field(default='auto')\n"
        "(args,) = HfArgumentParser(A).parse_args_into_dataclasses()\nModel.from_pretrained(m=args.m)\n",
        "import fire\ndef main(m='auto'):\n    Model.from_pretrained(m=m)\nfire.Fire(main)\n",
    ],
)
def test_options_of_the_command_line_keep_their_default(source: str) -> None:
    found = argument(HEAD + source)
    assert isinstance(found, Option)
    assert (found.flag, found.default.value) == ("m", "auto")


def test_calls_stand_in_the_order_of_running() -> None:
    facts = script_facts(
        "from transformers import Model, TrainingArguments\n"
        "def load():\n    return Model.from_pretrained('m')\n"
        "def main():\n    args = TrainingArguments('o')\n    load()\n"
        "main()\n",
        "x.py",
    )
    assert facts is not None
    assert [call.last for call in facts.calls] == ["TrainingArguments", "from_pretrained"]
    assert {call.flow for call in facts.calls} == {0}


def test_doubling_names_cost_bounded_work() -> None:
    lists = "a0 = [1, 1]\n" + "".join(f"a{n + 1} = [a{n}, a{n}]\n" for n in range(50)) + "a50"
    texts = "a0 = 'xy'\n" + "".join(f"a{n + 1} = f'{{a{n}}}{{a{n}}}'\n" for n in range(50)) + "a50"
    assert isinstance(last(lists), list)
    assert last(texts) is UNKNOWN


def test_deep_nesting_and_huge_ints_are_unknown() -> None:
    found = last("[" * 80 + "]" * 80)
    for _ in range(61):
        assert isinstance(found, list)
        found = found[0]
    assert found is UNKNOWN
    assert last("n = 0x" + "f" * 6000 + "\nf'{n}'") is UNKNOWN
    assert last("9**64**64") is UNKNOWN


def test_numbers_and_switches_as_configs_write_them() -> None:
    assert [number(value) for value in ("1e-5", 3, True, "x", None)] == [1e-5, 3, None, None, None]
    assert [integer(value) for value in ("8", 8.5, "auto")] == [8, None, None]
    assert [truth(value) for value in ("True", "off", 1, None, "maybe", UNKNOWN)] == [
        True,
        False,
        True,
        False,
        None,
        None,
    ]
