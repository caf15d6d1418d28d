"""Names, folders and config files, on real checkpoints that transformers itself wrote."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.errors import InputError
from advisor.models.resolve import resolve

TINY: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 64,
}  # fmt: skip


def write(folder: Path, config: object, name: str = "config.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return path


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small Llama with random weights in bf16, in several files."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    values = {key: value for key, value in TINY.items() if key != "model_type"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**values)).to(torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="15KB")
    assert (folder / "model.safetensors.index.json").is_file()
    return folder


def count(checkpoint: Path) -> int:
    import transformers

    return int(transformers.AutoModelForCausalLM.from_pretrained(checkpoint).num_parameters())


def test_sharded_checkpoint(checkpoint: Path) -> None:
    spec = resolve(str(checkpoint))
    assert (spec.source, spec.name, spec.loader_repo, spec.path) == (
        "local", "tiny-llama", str(checkpoint), checkpoint,
    )  # fmt: skip
    assert spec.parameters == count(checkpoint) and spec.dtype == "bf16" and spec.kind == "causal"
    assert spec.checkpoint_bytes == sum(path.stat().st_size for path in checkpoint.glob("*.safetensors"))
    assert (spec.layers, spec.hidden_size, spec.vocab_size, spec.context_length) == (2, 32, 100, 64)


def test_missing_shard_leaves_the_size_of_the_index(checkpoint: Path, tmp_path: Path) -> None:
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    next(tmp_path.glob("*.safetensors")).unlink()
    spec = resolve(str(tmp_path))
    index = json.loads((checkpoint / "model.safetensors.index.json").read_text())
    assert spec.parameters is None and spec.checkpoint_bytes == index["metadata"]["total_size"]


def test_dtype_of_the_files_where_the_config_names_none(checkpoint: Path, tmp_path: Path) -> None:
    for path in checkpoint.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write(tmp_path, TINY)
    assert resolve(str(tmp_path)).dtype == "bf16"


def test_a_config_file_alone(tmp_path: Path) -> None:
    spec = resolve(str(write(tmp_path, {**TINY, "torch_dtype": "float16"}, "mine.json")))
    assert (spec.name, spec.dtype, spec.parameters, spec.checkpoint_bytes) == ("mine", "fp16", None, None)


def test_older_weight_files_count_as_bytes(tmp_path: Path) -> None:
    write(tmp_path, TINY)
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 1000)
    assert resolve(str(tmp_path)).checkpoint_bytes == 1000


def test_files_in_other_formats_do_not_count(checkpoint: Path, tmp_path: Path) -> None:
    """Mistral's repositories hold the weights twice, adapters lie beside models."""
    write(tmp_path, TINY)
    shard = next(checkpoint.glob("*.safetensors")).read_bytes()
    (tmp_path / "consolidated.safetensors").write_bytes(shard)
    (tmp_path / "adapter_model.safetensors").write_bytes(shard)
    spec = resolve(str(tmp_path))
    assert spec.parameters is None and spec.checkpoint_bytes is None


def test_quantized_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    quantization = {"quant_method": "awq", "bits": 4, "group_size": 128}
    for path in checkpoint.glob("*.safetensors*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write(tmp_path, {**TINY, "dtype": "float16", "quantization_config": quantization})
    spec = resolve(str(tmp_path))
    assert spec.quantization_config == quantization and "quantization_config" not in spec.config
    assert spec.parameters is None and spec.checkpoint_bytes is not None


def test_text_model_of_a_composite(tmp_path: Path) -> None:
    """Gemma 3's files name few sizes of the text model: the others are its class's defaults."""
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "sliding_window": 1024, "dtype": "bfloat16"}  # fmt: skip
    outer = {"model_type": "gemma3", "text_config": text, "vision_config": {"model_type": "siglip_vision_model"}}
    spec = resolve(str(write(tmp_path, outer)))
    assert (spec.model_type, spec.layers, spec.vocab_size, spec.dtype) == ("gemma3_text", 34, 262208, "bf16")
    assert any("text model" in note for note in spec.notes)


def test_own_code(tmp_path: Path) -> None:
    path = write(tmp_path, {**TINY, "model_type": "team_llm", "auto_map": {"AutoConfig": "configuration_team.Config"}})
    with pytest.raises(InputError, match=r"needs the model's own code.*--trust-remote-code"):
        resolve(str(path))
    assert resolve(str(path), trust_remote_code=True).trust_remote_code
    # An auto_map of an architecture that transformers has meanwhile is no obstacle.
    native = write(tmp_path / "native", {**TINY, "auto_map": {"AutoConfig": "configuration_llama.Config"}})
    assert not resolve(str(native)).trust_remote_code


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{", ["not valid JSON", "line 1"]),
        ("[]", ["is no model config", "'list'", "a JSON object"]),
        ({}, ["model_type", "is missing"]),
        ({**TINY, "model_type": 3}, ["model_type", "found 3"]),
        ({**TINY, "model_type": "nosuchllm"}, ["model_type", "is no architecture of transformers", "'nosuchllm'"]),
        ({**TINY, "num_hidden_layers": "two"}, ["num_hidden_layers", "positive whole number", "'two'"]),
        ({**TINY, "hidden_size": -4}, ["hidden_size", "positive whole number", "-4"]),
        ({**TINY, "vocab_size": True}, ["vocab_size", "positive whole number"]),
        ({key: value for key, value in TINY.items() if key != "num_hidden_layers"}, ["num_hidden_layers: is missing"]),
        ({key: value for key, value in TINY.items() if key != "vocab_size"}, ["vocab_size: is missing"]),
        ({**TINY, "quantization_config": "nf4"}, ["quantization_config", "'nf4'"]),
        (
            {"model_type": "gemma3", "text_config": {**TINY, "num_hidden_layers": 0}},
            ["text_config.num_hidden_layers", "found 0"],
        ),
    ],
)
def test_broken_configs(tmp_path: Path, config: object, words: list[str]) -> None:
    path = write(tmp_path, config)
    for asked in (path, tmp_path):
        with pytest.raises(InputError) as caught:
            resolve(str(asked))
        message = str(caught.value)
        assert message.startswith(str(path)) and "\n" not in message
        assert all(word in message for word in words), message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.safetensors", "no header at all", "no safetensors file"),
        ("model.safetensors", b"\x02\0\0\0\0\0\0\0[]", "no safetensors file"),
        ("model.safetensors", b"\xff\0\0\0\0\0\0\0{", "no safetensors file"),
        ("model.safetensors.index.json", "{}", "weight_map"),
        ("model.safetensors.index.json", '{"weight_map": {"a": 1}}', "weight_map"),
        ("model.safetensors.index.json", "{", "not valid JSON"),
    ],
)
def test_broken_weight_files(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    write(tmp_path, TINY)
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=words) as caught:
        resolve(str(tmp_path))
    assert name in str(caught.value)


def test_folders_that_hold_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no config\.json"):
        resolve(str(tmp_path))
    write(tmp_path, {"base_model_name_or_path": "team/base"}, "adapter_config.json")
    with pytest.raises(InputError, match=r"is an adapter.*team/base"):
        resolve(str(tmp_path))


@pytest.mark.parametrize("name", ["./missing", "/no/such/folder", "missing.json", "~/missing", "", "  "])
def test_paths_that_are_not_there(name: str) -> None:
    with pytest.raises(InputError, match="is no such file or folder"):
        resolve(name)


@pytest.mark.parametrize("name", ["~nobody-of-that-name/model", "x" * 5000])
def test_names_that_the_system_refuses(name: str) -> None:
    with pytest.raises(InputError, match="cannot be looked up"):
        resolve(name)


def test_original_weights_repository() -> None:
    spec = resolve("meta-llama/Llama-2-70b")
    assert (spec.name, spec.loader_repo, spec.asked) == (
        "meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b",
    )  # fmt: skip
    assert spec.gated and spec.parameters == 68_976_648_192
    assert any("original weights" in note and "Llama-2-70b-hf" in note for note in spec.notes)
    assert not any("original weights" in note for note in resolve("meta-llama/Llama-2-70b-hf").notes)


def test_a_variant_is_loaded_from_its_own_repository() -> None:
    spec = resolve("huggingfaceh4/ZEPHYR-7b-beta")
    assert spec.loader_repo == "HuggingFaceH4/zephyr-7b-beta"
    assert spec.config == resolve("mistralai/Mistral-7B-v0.1").config


def test_the_checkpoint_s_own_quantization_is_known() -> None:
    quantization = resolve("openai/gpt-oss-20b").quantization_config
    assert quantization is not None and quantization["quant_method"] == "mxfp4"


def test_a_local_folder_goes_before_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "gpt2", TINY)
    monkeypatch.chdir(tmp_path)
    spec = resolve("gpt2")
    assert spec.source == "local" and spec.model_type == "llama"


def test_an_unknown_name_tells_the_nearest_and_the_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError) as caught:
        resolve("meta-llama/Llama-2-70b-hff")
    message = str(caught.value)
    assert "meta-llama/Llama-2-70b-hf" in message and "'meta-llama/Llama-2-70b-hff'" in message
    assert all(way in message for way in ("local model folder", "config.json", "--download"))


def test_the_catalogue_needs_no_heavy_library() -> None:
    code = (
        "import sys\nfrom advisor.models.resolve import resolve\nresolve('llama-2-7b')\n"
        "print(*{'torch', 'transformers', 'huggingface_hub'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
