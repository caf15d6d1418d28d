import ast

import pytest

from advisor.check.values import UNKNOWN, evaluate, single_bindings


def last(source: str) -> object:
    body = ast.parse(source).body
    assert isinstance(body[-1], ast.Expr)
    return evaluate(body[-1].value, single_bindings(body))


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("m = 'auto'\nm", "auto"),
        ("d = {'device_map': {'': 0}}\n{**d, 'n': -1}", {"device_map": {"": 0}, "n": -1}),
        ("n = 3\nf'zero{n}.json'", "zero3.json"),
        ("{'': int(x)}", {"": UNKNOWN}),
        ("m: str = 'auto'\nm", "auto"),
    ],
)
def test_known(source: str, value: object) -> None:
    assert last(source) == value


@pytest.mark.parametrize(
    "source",
    [
        "m = 'auto'\nif x:\n    m = None\nm",
        "m = 'auto'\nm += 'x'\nm",
        "d = {}\nd['a'] = 1\nd",
        "d = {}\nd.update(a=1)\nd",
        "m = 'auto'\ndef f():\n    global m\n    m = None\nm",
        "m = 'auto'\nfor m in y: pass\nm",
        "{**x, 'a': 1}",
        "a = a\na",
        "a = b\nb = a\na",
        "f'{x}'",
    ],
)
def test_unknown_where_the_run_decides(source: str) -> None:
    assert last(source) is UNKNOWN


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
