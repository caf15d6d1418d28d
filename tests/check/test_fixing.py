"""Fixes: edits made together or not at all, line ends and marks kept, diffs that git takes, files written whole."""

from __future__ import annotations

import contextlib
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.check.fixing import diff, fixed, write
from advisor.check.types import Edit, Finding
from advisor.errors import InputError


def edit(path: Path | str, start: int, end: int, text: str) -> Edit:
    return Edit(path=str(path), start=start, end=end, text=text)


def finding(*edits: Edit) -> Finding:
    return Finding(
        code="ADV101", severity="error", path=edits[0].path, line=1, column=1, message="wrong", fix=None, edits=edits
    )


def test_edits_of_several_findings(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("one = 1\ntwo = 2\nthree = 3\n")
    found = [finding(edit(file, 6, 7, "10")), finding(edit(file, 8, 8, "# "), edit(file, 24, 25, "30"))]
    (result,) = fixed(found)
    assert result.after == "one = 10\n# two = 2\nthree = 30\n"
    assert result.findings == tuple(found)


def test_a_finding_is_mended_whole_or_waits(tmp_path: Path) -> None:
    file, other = tmp_path / "a.py", tmp_path / "b.py"
    file.write_text("abcdef\n")
    other.write_text("abcdef\n")
    first = finding(edit(file, 1, 3, "XX"))
    overlapping = finding(edit(file, 2, 4, "ZZ"), edit(other, 0, 1, "Y"))
    (result,) = fixed([first, overlapping])
    assert (result.path, result.after, result.findings) == (str(file), "aXXdef\n", (first,))


def test_the_same_edit_twice_is_one(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("abc\n")
    (result,) = fixed([finding(edit(file, 0, 0, "X")), finding(edit(file, 0, 0, "X"))])
    assert (result.after, len(result.findings)) == ("Xabc\n", 2)


def test_a_place_that_is_not_there_is_left(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("abc\n")
    assert fixed([finding(edit(file, 3, 99, "X"))]) == ()
    assert fixed([finding(edit(tmp_path / "gone.py", 0, 0, "X"))]) == ()
    file.write_bytes(b"\xff\xfe\x00")
    assert fixed([finding(edit(file, 0, 1, "X"))]) == ()


def test_line_ends_and_marks_stay(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes("\ufeffone = 1\r\ntwo = 2\rthree = \u00e9\x0c3\r\n".encode())
    text = file.read_bytes().decode()
    (result,) = fixed([finding(edit(file, text.index("1"), text.index("1") + 1, "10"))])
    write(result)
    assert file.read_bytes() == "\ufeffone = 10\r\ntwo = 2\rthree = \u00e9\x0c3\r\n".encode()


def test_permissions_and_links_stay(tmp_path: Path) -> None:
    file, link = tmp_path / "launch.sh", tmp_path / "link.sh"
    file.write_text("run 1\n")
    file.chmod(0o750)
    link.symlink_to(file)
    (result,) = fixed([finding(edit(link, 4, 5, "2"))])
    write(result)
    assert link.is_symlink() and file.read_text() == "run 2\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o750


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("abc\n")
    (result,) = fixed([finding(edit(file, 0, 1, "X"))])
    file.write_text("something else\n")
    with pytest.raises(InputError, match="changed while it was checked"):
        write(result)
    assert file.read_text() == "something else\n"


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the patch")
@given(
    lines=st.lists(st.text("ab \t", max_size=5), min_size=1, max_size=12),
    end=st.sampled_from(["", "\n"]),
    cut=st.data(),
)
def test_git_applies_the_diff(
    lines: list[str], end: str, cut: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("repository")
    file = folder / "with space.py"
    before = "x" + "\n".join(lines) + end
    file.write_bytes(before.encode())
    start = cut.draw(st.integers(0, len(before)))
    stop = cut.draw(st.integers(start, len(before)))
    change = edit("with space.py", start, stop, cut.draw(st.text("yz\n", min_size=1, max_size=3)))
    with contextlib.chdir(folder):
        results = fixed([finding(change)])
        if results:  # else the text put there is what stood there
            subprocess.run(["git", "apply", "-"], input=diff(results).encode(), check=True)
    assert file.read_bytes().decode() == before[:start] + change.text + before[stop:]
