"""Training under ZeRO with two ranks, the checkpoint as a model folder, and that folder served by a device map."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor.execute.apply import Result
from advisor.execute.convert import adapter as adapters
from advisor.execute.convert import shards
from advisor.execute.convert.folder import open_folder, weight_files
from advisor.execute.convert.run import ConvertError, Options, Report, convert
from advisor.execute.options import Hooks
from advisor.execute.options import Options as Apply
from advisor.execute.phases import apply_plan, check_output
from advisor.plan import read_plan, write_plan
from tests.execute.plans import TINY, finetune, inference, plan_of
from tests.execute.running import HERE, apply
from tests.execute.tiny import samples, tiny_model


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("base"))


def trained(folder: Path, base: Path, strategy: str, more: dict[str, Any] | None = None, **job: Any) -> Path:
    data = samples(folder / "data.jsonl")
    options = {
        "data": data,
        "output": folder / "out",
        "steps": 2,
        "save_every": 2,
        "learning_rate": 0.01,
        **(more or {}),
    }
    result = apply(folder, finetune(strategy, **job), path=base, options=options)
    assert result.outcome.ok, result.outcome
    return folder / "out"


@pytest.fixture(scope="module")
def zero3(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("zero3"), base, "zero3")


@pytest.fixture(scope="module")
def zero3_lora(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("lora"), base, "zero3", method="lora")


def tensors(folder: Path) -> dict[str, Any]:
    files = weight_files(folder) or [folder / adapters.WEIGHTS]
    return {name: entry.read(None) for name, entry in open_folder(files, folder).entries.items()}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    import torch

    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def logits(folder: Path, **options: Any) -> Any:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    with torch.no_grad():
        return model(input_ids=torch.arange(24).reshape(2, 12)).logits


def test_zero3_trains_converts_and_serves_spilled_with_the_same_logits(zero3: Path, base: Path, tmp_path: Path) -> None:
    import torch

    said: list[str] = []
    report = convert(zero3 / "checkpoint-2", tmp_path / "model", Options(shard=100_000), said.append)
    assert report.kind == "zero3" and report.files > 1
    assert "of host RAM" in said[0] and "wrote" in said[1]  # the need comes before the work
    # What rank 0 gathered while saving, and what the shards hold, are the same numbers; training changed them.
    assert same(tensors(tmp_path / "model"), tensors(zero3))
    assert not same(tensors(tmp_path / "model"), tensors(base))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["use_cache"] is True and (tmp_path / "model" / "tokenizer.json").is_file()

    whole = logits(tmp_path / "model")
    places = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu",
              "model.rotary_emb": "cpu", "lm_head": "cpu"}  # fmt: skip
    spilled = logits(tmp_path / "model", device_map=places, offload_folder=str(tmp_path / "spill"))
    assert torch.equal(whole, spilled)
    assert torch.equal(whole, logits(zero3))


def test_training_goes_on_from_a_zero3_checkpoint(zero3: Path, base: Path, tmp_path: Path) -> None:
    options = {
        "data": samples(tmp_path / "data.jsonl", count=30), "packed": True, "steps": 3, "save_every": 100,
        "learning_rate": 0.01, "resume": zero3 / "checkpoint-2",
    }  # fmt: skip
    result = apply(tmp_path / "run", finetune("zero3"), path=base, options=options)
    assert result.outcome.ok, result.outcome
    assert {event["step"] for event in result.outcome.events if event["event"] == "step"} == {3}


def test_a_staged_plan_trains_converts_and_serves(base: Path, tmp_path: Path) -> None:
    places = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk", "model.norm": "cpu",
              "model.rotary_emb": "cpu", "lm_head": "cpu"}  # fmt: skip
    plan = plan_of(finetune(), path=str(base))
    serve = plan_of(inference("device_map"), device_map=places, offload_folder="offload").main
    path = tmp_path / "plan.json"
    write_plan(plan.model_copy(update={"steps": (plan.main, serve)}), path)
    options = Apply(
        data=samples(tmp_path / "data.jsonl"), steps=2, learning_rate=0.01, output=tmp_path / "out", time_limit=900,
        prompts=("w1 w2 w3", "w4"), keep_record=False,
    )  # fmt: skip
    said: list[str] = []
    train, report, served = apply_plan(read_plan(path), path, options, HERE, Hooks(say=said.append))
    assert isinstance(train, Result) and isinstance(report, Report) and isinstance(served, Result)
    assert train.outcome.ok and served.outcome.ok, (train.outcome, served.outcome)
    assert report.out == tmp_path / "out-model" and "of host RAM" in said[0]
    assert same(tensors(report.out), tensors(tmp_path / "out"))
    events = served.outcome.events
    assert sum(event["event"] == "text" and event["end"] for event in events) == 2
    assert served.comparison.measurement.decode_tokens_per_second
    # The record says what really ran: the longest prompt, one at a time, from a checkpoint.
    work = served.record.workload
    assert (work.micro_batch_size, work.sequence_length, work.load_from) == (1, 4, str(report.out))
    with pytest.raises(InputError, match="trained model would go"):
        check_output(read_plan(path), options)


def test_zero2_shards_are_the_trained_model(base: Path, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=2\n")
    output = trained(tmp_path, base, "zero2", {"launcher": "deepspeed", "hostfile": hosts})
    report = convert(output / "checkpoint-2", tmp_path / "model")
    assert report.kind == "zero2"
    assert same(tensors(tmp_path / "model"), tensors(output))


def test_lora_under_zero3_is_kept_or_merged_as_peft_does(zero3_lora: Path, base: Path, tmp_path: Path) -> None:
    import peft
    import transformers

    kept = convert(zero3_lora, tmp_path / "adapter", Options(keep_adapters=True))
    assert kept.kind == "adapter"
    merged = convert(zero3_lora / "checkpoint-2", tmp_path / "model")
    assert merged.parameters > kept.parameters
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    whole = peft.PeftModel.from_pretrained(model, tmp_path / "adapter").merge_and_unload().state_dict()
    assert same(tensors(tmp_path / "model"), dict(whole))
    assert not same(tensors(tmp_path / "model"), tensors(base))


def test_adapters_that_came_out_empty_are_taken_from_the_shards(zero3_lora: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    broken = tmp_path / "checkpoint"
    shutil.copytree(zero3_lora / "checkpoint-2", broken)
    names = tensors(zero3_lora / "checkpoint-2")
    save_file({name: torch.empty(0) for name in names}, broken / adapters.WEIGHTS)
    convert(broken, tmp_path / "adapter", Options(keep_adapters=True))
    assert same(tensors(tmp_path / "adapter"), names)
    shutil.rmtree(broken / "global_step2")
    (broken / "latest").unlink()
    with pytest.raises(InputError, match="empty tensors"):
        convert(broken, tmp_path / "again", Options(keep_adapters=True))


class Foreign:
    """Runs a command when it is unpickled by a reader that trusts its file."""

    def __reduce__(self) -> Any:
        import os

        return os.system, ("touch ran",)


def test_a_pickle_that_is_not_deepspeeds_is_refused_and_not_run(
    zero3: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "checkpoint"
    shutil.copytree(zero3 / "checkpoint-2", copy)
    torch.save({"optimizer_state_dict": Foreign()}, next((copy / "global_step2").glob("*rank_1*_optim_states.pt")))
    with pytest.raises(InputError, match="system"):
        convert(copy, tmp_path / "model")
    assert not (tmp_path / "ran").exists() and not (tmp_path / "model").exists()
    assert not list(tmp_path.glob(".model*"))

    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(copy / "config.json", bare)
    (bare / "pytorch_model.bin").write_bytes(pickle.dumps(Foreign()))
    with pytest.raises(InputError, match="may run code"):
        convert(bare, tmp_path / "model")


def test_a_missing_rank_a_wrong_config_and_a_taken_folder_are_refused(zero3: Path, tmp_path: Path) -> None:
    copy = tmp_path / "checkpoint"
    shutil.copytree(zero3 / "checkpoint-2", copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(ConvertError, match=r"layers\.2"):
        convert(copy, tmp_path / "model")
    next((copy / "global_step2").glob("*rank_1*_optim_states.pt")).unlink()
    with pytest.raises(InputError, match="lacks the files of some ranks"):
        convert(copy, tmp_path / "model")
    with pytest.raises(InputError, match="not empty"):
        convert(zero3 / "checkpoint-2", copy)
    with pytest.raises(InputError, match="no checkpoint that is known"):
        empty = tmp_path / "empty"
        empty.mkdir()
        (empty / "config.json").write_text(json.dumps(config))
        convert(empty, tmp_path / "model")


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tied", tie_word_embeddings=True)
    report = convert(folder, tmp_path / "model", Options(dtype="bf16"))
    assert "lm_head.weight" not in tensors(tmp_path / "model")
    assert report.dtype == "bfloat16" and report.bytes == 2 * report.parameters


def test_no_more_ram_is_taken_than_was_stated(tmp_path: Path) -> None:
    """Sampled while 200 MB go through in files of 32 MB."""
    import threading

    from safetensors.torch import save_file

    from advisor.execute.convert.target import target_of

    folder = tmp_path / "wide"
    folder.mkdir()
    config = {**TINY, "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 2048,
              "num_hidden_layers": 6, "vocab_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16,
              "dtype": "float32"}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    _save_random(folder, target_of(folder).shapes, save_file)
    before, peak, over = _own_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.002):
            peak = max(peak, _own_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    report = convert(folder, tmp_path / "model", Options(shard=32 << 20))
    over.set()
    thread.join()
    assert report.bytes > 200 << 20
    assert peak - before < report.need.host_ram + (16 << 20)  # threads and buffers of the interpreter
    assert report.need.host_ram < report.bytes / 3


def _save_random(folder: Path, shapes: Any, save_file: Any) -> None:
    import torch

    save_file({name: torch.rand(shape) for name, shape in shapes.items()}, folder / "model.safetensors")


def _own_memory() -> int:
    """Bytes of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def test_pieces_of_a_parameter_are_cut_from_flat_groups_wherever_they_lie() -> None:
    import torch
    from hypothesis import given, settings
    from hypothesis import strategies as st

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.data())
    def check(sizes: list[int], data: Any) -> None:
        whole = torch.arange(sum(sizes))
        start = data.draw(st.integers(0, len(whole)))
        stop = data.draw(st.integers(start, len(whole)))
        pieces = shards._slices(whole.split(sizes), start, stop)
        assert [int(value) for piece in pieces for value in piece] == list(range(start, stop))

    check()
