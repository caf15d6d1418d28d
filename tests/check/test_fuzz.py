"""No input makes a reader or a rule fail, or run long: made-up text, made-up configs, and mutilated real ones."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.check.engine import Report, lint
from advisor.check.readers.notebook import cells
from advisor.check.readers.positioned import json_node, yaml_nodes
from advisor.check.readers.python import script_facts
from advisor.check.readers.shell import shell_facts
from advisor.check.settings import Hardware, Settings

pytestmark = pytest.mark.timeout(60)  # what hangs must not hang the suite
HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.glob("fixtures/*/bad*/**/*") if path.is_file())
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
KEYS = st.sampled_from(
    ["zero_optimization", "stage", "offload_param", "offload_optimizer", "device", "train_batch_size", "fp16",
     "bf16", "enabled",
     "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer", "type", "params", "lr",
     "distributed_type",
     "deepspeed_config", "zero_stage", "deepspeed_config_file", "num_processes", "mixed_precision", "max_memory",
     "device_map",
     "load_in_4bit", "load_in_8bit", "quantization_config", "deepspeed", "fsdp", "per_device_train_batch_size",
     "base_model",
     "model_name_or_path", "gradient_clipping", "scheduler", "stage3_gather_16bit_weights_on_model_save",
     "reduce_bucket_size"]
)  # fmt: skip
SCALARS = (
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=8)
    | st.sampled_from(["auto", "cpu", "none", "DEEPSPEED", "FSDP", "24gb", "NO", "3", "1e-5", "ds.json", "a.yaml", "true"])
)  # fmt: skip
CONFIGS = st.dictionaries(
    KEYS | st.text(max_size=4),
    st.recursive(
        SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
    ),
    max_size=8,
)
PYTHON = st.lists(
    st.sampled_from(
        ["from transformers import *\n", "from transformers import AutoModel as M, TrainingArguments\n",
         "import deepspeed\n",
         "M.from_pretrained(", "device_map=", "{'': 0}", "{", "}", "(", ")", "[", "]", ",", "=", ":", "\n",
         "\n    ", "def f(m=1)",
         "f", "m", "'auto'", "f'{m}'", "**", "*", "lambda m: m", "class A", "if m", "for m in m", "with m as m",
         "try", "except",
         "return m", "TrainingArguments('o', deepspeed=", "args", ".", "args.m", "os.environ['LOCAL_RANK']",
         "global m", "del m",
         "deepspeed.initialize(", "config=", "1", "-", "@", "import os\n", "match m", "case {'a': m, **m}",
         "yield", "await", "m := 1",
         "Accelerator()", "max_memory=", "{i: '2gb' for i in m}", "torch.load(m)", "m['a']['b'] = m",
         "m.update(a=1)", "async ", "é"]
    ),
    max_size=40,
).map("".join)  # fmt: skip
SHELL = st.lists(
    st.sampled_from(
        ["torchrun", "accelerate launch", "deepspeed", "python", "-m", "srun", "docker run", "bash -c",
         "--num_processes", "=", " ",
         "\n", "\\\n", "'", '"', "$", "${", "}", "$(", ")", "`", "#", "|", "&&", ";", "<<EOF\n", "EOF\n", "A=",
         "A+=", "A=(", "$A",
         "${A[@]}", "${A:-1}", "export", "for A in", "do", "done", "--deepspeed", "ds.json", "train.py", "4",
         "CUDA_VISIBLE_DEVICES=0,1",
         "#SBATCH --gres=gpu:v100:4\n", "--include localhost:0,1", "cd", "\x00", "é", "--config_file", "a.yaml"]
    ),
    max_size=40,
).map(" ".join)  # fmt: skip


def linted(folder: Path, files: dict[str, str]) -> Report:
    """A lint of these files alone."""
    for old in folder.iterdir():
        old.unlink()
    for name, text in files.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    hardware = Hardware(name="v100", compute_capability=(7, 0), gpus=2)
    return lint([folder], Settings(root=folder, strict=True, hardware=hardware))


@QUIET
@given(ds=CONFIGS, other=CONFIGS)
def test_no_config_makes_a_rule_fail(ds: dict[str, object], other: dict[str, object], tmp_path: Path) -> None:
    script = (HERE / "fixtures/ADV101/bad_trainer/train.py").read_text()
    accelerate = yaml.safe_dump(other, allow_unicode=True)
    launch = "accelerate launch --config_file a.yaml train.py --deepspeed ds.json\n"
    linted(tmp_path, {"ds.json": json.dumps(ds), "a.yaml": accelerate, "train.py": script, "run.sh": launch})


@QUIET
@given(script=PYTHON, launch=SHELL)
def test_no_script_or_launch_makes_anything_fail(script: str, launch: str, tmp_path: Path) -> None:
    linted(tmp_path, {"train.py": script, "run.sh": launch, "ds.json": '{"zero_optimization": {"stage": 3}}'})


@QUIET
@given(path=st.sampled_from(FILES), seed=st.integers(0, 2**32))
def test_no_mutilated_file_makes_anything_fail(path: Path, seed: int, tmp_path: Path) -> None:
    text, chance = path.read_text(), random.Random(seed)
    for _ in range(chance.randint(1, 6)):
        start = chance.randrange(len(text) + 1)
        end = min(len(text), start + chance.randint(0, 12))
        piece = chance.choice(["", "\x00", "(", "}", '"', "\n", "auto", text[end : end + 20], "é", "*", "- ", ": "])
        text = text[:start] + piece + text[end:]
    files = {other.name: other.read_text() for other in path.parent.iterdir() if other.is_file()}
    linted(tmp_path, files | {path.name: text})


@QUIET
@given(value=CONFIGS)
def test_json_and_yaml_say_what_their_libraries_say(value: dict[str, object]) -> None:
    text = json.dumps(value)
    found = json_node(text, "x.json")
    assert found is not None and repr(found.plain()) == repr(json.loads(text))
    text = yaml.safe_dump(value, allow_unicode=True)
    (document,) = yaml_nodes(text, "x.yaml")
    assert repr(document.plain()) == repr(yaml.safe_load(text))


@QUIET
@given(text=st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    json_node(text, "x.json")
    yaml_nodes(text, "x.yaml")
    script_facts(text + "\ntorch.load(x)", "x.py")
    shell_facts(text + "\ntorchrun x.py", "x.sh")
    cells(text, "x.ipynb")


BOMBS = {
    "aliases.yaml": "a: &a [x, x]\ndistributed_type: DEEPSPEED\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}]\n" for n in range(24)),
    "cycle.yaml": "deepspeed_config: &x\n  zero_stage: *x\n",
    "deep.yaml": "deepspeed: " + "[" * 20_000,
    "deep_block.yaml": "\n".join(" " * n + "deepspeed:" for n in range(400)),
    "merge.yaml": "a: &a {deepspeed: 1}\nb: &b {<<: [*a, *a]}\nc: {<<: *b}\n",
    "deep.json": '{"zero_optimization": ' * 50_000,
    "wide.json": '{"zero_optimization": [' + "1," * 300_000 + "1]}",
    "digits.json": '{"zero_optimization": ' + "9" * 10_000 + "}",
    "digits.yaml": "deepspeed: " + "9" * 10_000 + "\n",
    "unary.py": "import torch\nx = " + "-" * 50_000 + "1\n",
    "sum.py": "import torch\nx = " + "1+" * 30_000 + "1\ntorch.load(x)\n",
    "attributes.py": "import torch\ntorch" + ".a" * 30_000 + ".load(x)\n",
    "elifs.py": "import torch\nif a: pass\n" + "elif torch.load(x): pass\n" * 2_000,
    "calls.py": "import torch\n" + "torch.load(" * 90 + ")" * 90 + "\n",
    "functions.py": "import torch\n"
    + "".join(f"def f{n}():\n    return f{n + 1}()\n" for n in range(3_000))
    + "torch.load(f0())\n",
    "names.py": "import torch\na0 = {'k': 1}\n" + "".join(f"a{n + 1} = dict(x=a{n}, y=a{n})\n" for n in range(60))
    + "torch.load(a60)\n",
    "rebound.py": "import torch\nx = 1\n" + "x = [x, x]\n" * 3_000 + "torch.load(x)\n",
    "quotes.sh": "torchrun '" + "a\n" * 50_000,
    "variables.sh": "".join(f"A{n}=$A{n - 1}$A{n - 1}x\n" for n in range(200)) + "torchrun $A199 x.py\n",
    "substitution.sh": "torchrun " + "$(" * 20_000,
    "words.sh": "torchrun " + "a " * 200_000 + "\n",
    "nested.sh": "bash -c " + "\"bash -c '" * 50 + "torchrun x.py\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_do_not_go_off(name: str, tmp_path: Path) -> None:
    linted(tmp_path, {name: BOMBS[name]})
