"""Settings from pyproject.toml: where they are looked for, which table comes first, and one clear error for what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.check.configured import configured, share
from advisor.errors import InputError


def written(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_both_tables_and_the_check_table_first(tmp_path: Path) -> None:
    root = written(
        tmp_path,
        """
        [tool.advisor]
        ignore = ["ADV105"]
        hardware = "h200-x8"
        strict = false
        [tool.advisor.check]
        strict = true
        select = ["ADV1"]
        exclude = ["third_party"]
        min-headroom = "10%"
        [tool.advisor.check.per-file-ignores]
        "tests/**" = ["ADV1"]
        """,
    )
    found = configured([root])
    assert (found.root, found.select, found.ignore, found.strict) == (root, ("ADV1",), ("ADV105",), True)
    assert (found.hardware, found.min_headroom, found.exclude) == ("h200-x8", 0.1, ("third_party",))
    assert found.per_file_ignores == {"tests/**": ("ADV1",)}


def test_the_nearest_file_with_our_table_counts(tmp_path: Path) -> None:
    written(tmp_path, "[tool.advisor]\nignore = ['ADV9']")
    inner = written(tmp_path / "a" / "b", "[tool.ruff]\nline-length = 100")
    script = inner / "train.py"
    script.write_text("")
    assert configured([script]).root == tmp_path
    assert configured([script, tmp_path / "a"]).ignore == ("ADV9",)


def test_the_repository_is_the_border(tmp_path: Path) -> None:
    written(tmp_path, "[tool.advisor]\nignore = ['ADV9']")
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    assert configured([tmp_path / "repository"]).ignore == ()


def test_no_file_is_the_defaults(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    found = configured([tmp_path])
    assert (found.select, found.strict, found.min_headroom) == ((), False, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.advisor.check]\nselects = []", "tool.advisor.check.selects: is not known; expected select?"),
        ("[tool.advisor]\nmin_headroom = 0.1", "tool.advisor.min_headroom: is not known; expected min-headroom?"),
        ("[tool.advisor]\nzzz = 1", "expected one of select, ignore"),
        ("[tool]\nadvisor = 3", "tool.advisor: is no table"),
        ("[tool.advisor]\ncheck = 3", "tool.advisor.check: is no table"),
        ("[tool.advisor]\nselect = 'ADV1'", "select: is no list of texts, found 'ADV1'"),
        ("[tool.advisor]\nignore = [1]", "ignore: is no list of texts"),
        ("[tool.advisor]\nstrict = 'yes'", "strict: is neither true nor false"),
        ("[tool.advisor]\nhardware = 8", "hardware: is no text"),
        ("[tool.advisor]\nmin-headroom = '110%'", "min-headroom: is no share of memory"),
        ("[tool.advisor]\nper-file-ignores = ['a']", "per-file-ignores: is no table"),
        ("[tool.advisor.per-file-ignores]\n'a' = 'ADV1'", 'per-file-ignores."a": is no list'),
        ("[tool.advisor", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_one_clear_error(tmp_path: Path, text: str, said: str) -> None:
    root = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        configured([root])
    assert said in str(caught.value) and str(root / "pyproject.toml") in str(caught.value)
    assert "\n" not in str(caught.value).replace(text, "")


@pytest.mark.parametrize(("text", "amount"), [("10%", 0.1), (" 7.5 % ", 0.075), ("0.2", 0.2), (0.25, 0.25), (0, 0.0)])
def test_shares(text: object, amount: float) -> None:
    assert share("--min-headroom", text) == pytest.approx(amount)


@pytest.mark.parametrize("text", ["ten", "100%", "-1%", 1, True, "nan", "", "10GiB", None])
def test_no_shares(text: object) -> None:
    with pytest.raises(InputError):
        share("--min-headroom", text)
