"""Training samples and prompts as files, in all their kinds, and what is wrong with them by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor.execute.prompts import read_prompts
from advisor.execute.worker.data import IGNORED, read_samples, rows, tokenize
from tests.execute.tiny import samples, tiny_tokenizer


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    tiny_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder)


def test_a_prompt_is_read_but_not_learned(words: Any) -> None:
    ids, labels = tokenize({"prompt": "w1 w2", "completion": "w3"}, words)
    assert words.convert_ids_to_tokens(ids) == ["w1", "w2", "w3", "</s>"]
    assert labels == [IGNORED, IGNORED, *ids[2:]]
    ids, labels = tokenize({"text": "w1 w2"}, words)
    assert words.convert_ids_to_tokens(ids) == ["w1", "w2", "</s>"] and labels == ids
    ids, _ = tokenize({"messages": [{"role": "w7", "content": "w8"}]}, words)
    assert words.convert_ids_to_tokens(ids) == ["w7", "w8"]


def test_padded_rows_have_one_sample_and_packed_rows_have_no_gap(words: Any, tmp_path: Path) -> None:
    read = read_samples(samples(tmp_path / "data.jsonl", count=3))
    padded = rows(read, words, 6, packed=False)
    assert len(padded) == 3 and all(len(row["input_ids"]) == 6 for row in padded)
    assert padded[1]["attention_mask"] == [1, 1, 1, 1, 1, 0] and padded[1]["labels"][-1] == IGNORED
    packed = rows(read, words, 6, packed=True)
    whole = [token for sample in read for token in tokenize(sample, words)[0]]
    assert [token for row in packed for token in row["input_ids"]] == whole[: len(whole) // 6 * 6]
    with pytest.raises(InputError, match="fewer than one packed row"):
        rows(read, words, 1000, packed=True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ('{"words": "x"}', "no training sample"),
        ('["x"]', "no training sample"),
        ('{"prompt": "x"}', "no training"),
    ],
)
def test_a_wrong_sample_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(json.dumps({"text": "x"}) + "\n" + line + "\n")
    with pytest.raises(InputError, match=rf"data.jsonl:2: .*{message}"):
        read_samples(path)


def test_prompts_are_lines_or_json_lines(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("one\n\ntwo words\n")
    assert read_prompts(tmp_path / "plain.txt") == ("one", "two words")
    (tmp_path / "lines.jsonl").write_text('{"prompt": "a\\nb"}\n{"prompt": "c"}\n')
    assert read_prompts(tmp_path / "lines.jsonl") == ("a\nb", "c")
    (tmp_path / "bad.jsonl").write_text('{"prompt": "a"}\n{"text": "c"}\n')
    with pytest.raises(InputError, match=r"bad\.jsonl:2"):
        read_prompts(tmp_path / "bad.jsonl")
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match="no prompt"):
        read_prompts(tmp_path / "empty.txt")
