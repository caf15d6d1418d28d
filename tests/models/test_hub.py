"""The Hugging Face cache and the Hub, through huggingface_hub itself; its settings are read once a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.models.hub_stand_in import COMMIT, Repo, serve

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 256, "torch_dtype": "float16",
}  # fmt: skip
INDEX = {
    "metadata": {"total_size": 123456},
    "weight_map": {"model.embed_tokens.weight": "model-00001-of-00001.safetensors"},
}
INFO = {"id": "team/tiny", "gated": False, "safetensors": {"parameters": {"F16": 61728, "I64": 7}, "total": 61735}}
NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens

ASK = """
import json, sys
from advisor.errors import InputError
from advisor.models.resolve import resolve
try:
    spec = resolve(sys.argv[1], allow_download=sys.argv[2] == "yes", trust_remote_code=False)
except InputError as error:
    print(json.dumps({"error": str(error)}))
else:
    print(json.dumps({
        "name": spec.name, "loader_repo": spec.loader_repo, "source": spec.source, "dtype": spec.dtype,
        "parameters": spec.parameters, "checkpoint_bytes": spec.checkpoint_bytes, "gated": spec.gated,
        "path": str(spec.path) if spec.path else None, "layers": spec.layers, "notes": spec.notes,
        "heavy": sorted({"torch", "transformers"} & set(sys.modules)),
    }))
"""


def ask(name: str, home: Path, *, url: str = NOWHERE, download: bool = True, **environment: str) -> dict[str, Any]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    settings = {"HF_HOME": str(home), "HF_ENDPOINT": url, "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    done = subprocess.run(
        [sys.executable, "-c", ASK, name, "yes" if download else "no"],
        env={**kept, **settings}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def lay_in_cache(cache: Path, repo: str, files: dict[str, str]) -> Path:
    """A repository in the cache as huggingface_hub lays it out: blobs, snapshots with links to them, refs."""
    folder = cache / ("models--" + repo.replace("/", "--"))
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    for number, (name, text) in enumerate(files.items()):
        (folder / "blobs" / f"{number:040x}").write_text(text)
        (snapshot / name).symlink_to(Path("..") / ".." / "blobs" / f"{number:040x}")
    return snapshot


def test_config_index_and_metadata_are_fetched_and_no_weights(tmp_path: Path) -> None:
    files = {
        "config.json": json.dumps(CONFIG),
        "model.safetensors.index.json": json.dumps(INDEX),
        "model-00001-of-00001.safetensors": "weights",
    }
    with serve({"team/tiny": Repo(files, INFO)}) as hub:
        spec = ask("team/tiny", tmp_path, url=hub.url)
        asked = {path for _, path in hub.requests}
    assert (spec["source"], spec["name"], spec["loader_repo"]) == ("hub", "team/tiny", "team/tiny")
    assert (spec["parameters"], spec["checkpoint_bytes"], spec["dtype"], spec["layers"]) == (61728, 123456, "fp16", 2)
    assert not spec["gated"] and not spec["heavy"]
    assert any(path.endswith("/config.json") for path in asked)
    assert not any(path.endswith(".safetensors") for path in asked)
    # Fetched once, it is in the cache, and no network is asked for it again.
    again = ask("team/tiny", tmp_path, download=False)
    assert again["source"] == "cache" and again["checkpoint_bytes"] == 123456


def test_nothing_is_fetched_unless_allowed(tmp_path: Path) -> None:
    with serve({"team/tiny": Repo({"config.json": json.dumps(CONFIG)}, INFO)}) as hub:
        answer = ask("team/tiny", tmp_path, url=hub.url, download=False)
        assert hub.requests == []
    assert "--download" in answer["error"] and "config.json" in answer["error"] and "folder" in answer["error"]


def test_offline_is_respected(tmp_path: Path) -> None:
    with serve({"team/tiny": Repo({"config.json": json.dumps(CONFIG)}, INFO)}) as hub:
        answer = ask("team/tiny", tmp_path, url=hub.url, HF_HUB_OFFLINE="1")
        assert hub.requests == []
    assert "HF_HUB_OFFLINE is set" in answer["error"]


def test_gated_without_and_with_a_token(tmp_path: Path) -> None:
    repo = Repo({"config.json": json.dumps(CONFIG)}, {**INFO, "gated": "manual"}, gated=True, token="hf_secret")
    with serve({"team/tiny": repo}) as hub:
        refused = ask("team/tiny", tmp_path, url=hub.url)
        allowed = ask("team/tiny", tmp_path, url=hub.url, HF_TOKEN="hf_secret")
    assert "is gated on the Hub" in refused["error"] and "HF_TOKEN" in refused["error"]
    assert "\n" not in refused["error"]
    assert allowed["source"] == "hub" and allowed["gated"]
    assert allowed["checkpoint_bytes"] is None  # one file, no index


def test_a_model_that_the_hub_does_not_have(tmp_path: Path) -> None:
    with serve({"team/adapter": Repo({"adapter_config.json": "{}"}, INFO)}) as hub:
        unknown = ask("team/other", tmp_path, url=hub.url)
        no_config = ask("team/adapter", tmp_path, url=hub.url)
    assert "neither in the catalogue nor on the Hub" in unknown["error"]
    assert "has no config.json on the Hub" in no_config["error"]


def test_no_network(tmp_path: Path) -> None:
    answer = ask("team/tiny", tmp_path)
    assert f"{NOWHERE} does not answer" in answer["error"] and "\n" not in answer["error"]


def test_a_hub_without_metadata_is_noted(tmp_path: Path) -> None:
    with serve({"team/tiny": Repo({"config.json": json.dumps(CONFIG)}, info_status=501)}) as hub:
        spec = ask("team/tiny", tmp_path, url=hub.url)
    assert spec["parameters"] is None
    assert any("no parameter count" in note for note in spec["notes"])


def test_packed_weights_tell_no_parameter_count(tmp_path: Path) -> None:
    config = {**CONFIG, "quantization_config": {"quant_method": "gptq", "bits": 4}}
    info = {**INFO, "safetensors": {"parameters": {"I32": 7000, "F16": 900}, "total": 7900}}
    with serve({"team/tiny": Repo({"config.json": json.dumps(config)}, info)}) as hub:
        assert ask("team/tiny", tmp_path, url=hub.url)["parameters"] is None


def test_cache_by_hf_home_and_by_hf_hub_cache(tmp_path: Path) -> None:
    files = {"config.json": json.dumps(CONFIG), "model.safetensors.index.json": json.dumps(INDEX)}
    snapshot = lay_in_cache(tmp_path / "home" / "hub", "team/tiny", files)
    by_home = ask("team/tiny", tmp_path / "home", download=False)
    assert (by_home["source"], by_home["loader_repo"], by_home["path"]) == ("cache", "team/tiny", str(snapshot))
    assert by_home["checkpoint_bytes"] == 123456 and by_home["parameters"] is None  # the weights are not there
    elsewhere = lay_in_cache(tmp_path / "elsewhere", "team/other", {"config.json": json.dumps(CONFIG)})
    by_cache = ask("team/other", tmp_path, download=False, HF_HUB_CACHE=str(tmp_path / "elsewhere"))
    assert by_cache["source"] == "cache" and by_cache["path"] == str(elsewhere)


def test_the_cache_is_asked_before_the_hub(tmp_path: Path) -> None:
    lay_in_cache(tmp_path / "hub", "team/tiny", {"config.json": json.dumps(CONFIG)})
    with serve({"team/tiny": Repo({"config.json": json.dumps(CONFIG)}, INFO)}) as hub:
        assert ask("team/tiny", tmp_path, url=hub.url)["source"] == "cache"
        assert hub.requests == []


def test_a_broken_config_in_the_cache_names_its_file(tmp_path: Path) -> None:
    snapshot = lay_in_cache(tmp_path / "hub", "team/tiny", {"config.json": '{"model_type": "llama",'})
    error = ask("team/tiny", tmp_path, download=False)["error"]
    assert str(snapshot / "config.json") in error and "not valid JSON" in error
