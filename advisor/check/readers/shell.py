"""Shell and Slurm scripts: the lines that start Python, through whichever launcher, and the containers around them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import PurePosixPath

from advisor.check.facts import Launch, Pin, ShellFacts
from advisor.check.readers.pins import pin
from advisor.check.readers.words import Command, commands
from advisor.check.values import UNKNOWN, Lost, Node

RELEVANT = re.compile(r"python|torchrun|accelerate|deepspeed|srun|NCCL_|docker|podman|axolotl|llamafactory|trl ")
_SBATCH = re.compile(r"^#SBATCH\s+(.*)$", re.MULTILINE)
_PYTHON = re.compile(r"(?:python(?:\d(?:\.\d+)?)?|pypy3?)$")
# Flags of the launchers that take no value; every other flag takes one.
_SWITCHES = {
    "torchrun": {"standalone", "no_python", "module", "m", "use_env", "run_path", "no_run_path"},
    "accelerate": {
        "multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "use_tp", "use_parallelism_config", "cpu", "tpu", "mps",
        "ipex", "use_xpu", "quiet", "q", "debug", "no_python", "module", "m", "same_network", "use_mps_device",
        "tpu_use_cluster",
        "no_tpu_cluster", "tpu_use_sudo", "main_training_function_not_used", "aws_access_not_used", "enable_cpu_affinity",
    },
    "deepspeed": {
        "no_python", "no_local_rank", "module", "m", "force_multi", "save_pid", "elastic_training", "bind_cores_to_rank",
        "no_ssh", "no_ssh_check",
    },
    "python": {"u", "O", "OO", "B", "E", "I", "s", "S", "v", "q", "i", "d", "x", "b", "P"},
}  # fmt: skip
_SRUN_SWITCHES = frozenset(
    {
        "exclusive",
        "l",
        "label",
        "u",
        "unbuffered",
        "overlap",
        "pty",
        "K",
        "kill_on_bad_exit",
        "Q",
        "quiet",
        "v",
        "verbose",
        "O",
    }
)
_SRUN_NAMES = {"n": "ntasks", "N": "nodes", "G": "gpus", "C": "constraint", "p": "partition", "c": "cpus_per_task"}
_MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun", "torch.distributed.elastic": "torchrun",
    "accelerate.commands.launch": "accelerate", "accelerate.commands.accelerate_cli": "accelerate",
    "deepspeed.launcher.runner": "deepspeed", "deepspeed": "deepspeed",
}  # fmt: skip
# Commands that only speak of others, or do something else with their names; and words that may stand before a command.
_SPEAKING = frozenset(
    {"echo", "printf", "cat", "which", "type", "whereis", "man", "grep", "rg", "sed", "awk", "ls", "rm", "cp", "mv", "touch",
     "mkdir", "cd", "tar", "chmod", "git", "pip", "pip3", "pipx", "conda", "mamba", "apt", "apt-get", "kill", "pkill",
     "killall", "alias", "unalias", "test", "[", "[[", ":", "true", "false", "read", "tee", "sleep", "pgrep", "ps"}
)  # fmt: skip
_BEFORE = frozenset(
    {"sudo", "exec", "nohup", "time", "env", "command", "then", "do", "else", "if", "while", "until", "!"}
)
_DOCKER_SWITCHES = frozenset(
    {"rm", "it", "i", "t", "d", "detach", "init", "privileged", "ti", "interactive", "tty", "dit", "itd"}
)


def shell_facts(text: str, path: str, lines: Sequence[int] | None = None) -> tuple[ShellFacts, list[Pin]]:
    """The facts of a shell text, and what its ``pip install`` lines pin."""
    if not RELEVANT.search(text):
        return ShellFacts(path=path), []
    slurm = _directives(text, path)
    launches: list[Launch] = []
    containers: list[Mapping[str, Node]] = []
    pins: list[Pin] = []
    environment: dict[str, Node] = {}
    for command in commands(text, path, lines):
        environment.update(command.environment)
        reader = _Line(command, path, slurm)
        launch = reader.launch()
        containers += reader.containers
        if launch is not None:
            launches.append(launch)
        pins += _installed(command)
    environment.update(_trailing(text, path, lines))
    facts = ShellFacts(
        path=path, launches=tuple(launches), containers=tuple(containers), environment=environment, slurm=slurm
    )
    return facts, pins


def _trailing(text: str, path: str, lines: Sequence[int] | None) -> dict[str, Node]:
    """What is exported after the last command, which no command carries."""
    found: dict[str, Node] = {}
    for command in commands(text + "\n:\n", path, lines):
        found = command.environment
    return found


def _directives(text: str, path: str) -> dict[str, Node]:
    """``#SBATCH`` lines as flags."""
    found: dict[str, Node] = {}
    for match in _SBATCH.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        words = [Node(word, path, line, 9) for word in match.group(1).split("#")[0].split()]
        flags, _ = _flags(words, 0, _SRUN_SWITCHES, stop=False)
        found.update({_SRUN_NAMES.get(name, name): node for name, node in flags.items()})
    return found


def _flags(words: Sequence[Node], at: int, switches: Set[str], stop: bool = True) -> tuple[dict[str, Node], int]:
    """Flags from ``at`` on, up to the first word that is none; with ``stop`` False other words are passed over."""
    found: dict[str, Node] = {}
    while at < len(words):
        word = words[at]
        text = word.value.prefix if isinstance(word.value, Lost) else word.value
        if not isinstance(text, str) or not text.startswith("-") or text == "--":
            if stop:
                break
            at += 1
            continue
        name, mark, value = text.partition("=")
        long = name.startswith("--")
        key = name.lstrip("-").replace("-", "_")
        at += 1
        if mark:
            found[key] = replace(word, value=UNKNOWN if isinstance(word.value, Lost) else value)
        elif key in switches or (not long and key[:1] in switches and len(key) == 1):
            found[key] = replace(word, value=True)
        elif at < len(words):
            follows = words[at]
            if isinstance(follows.value, str) and follows.value.startswith("--"):
                found[key] = replace(word, value=True)
            else:
                found[key] = _seen(follows, word)
                at += 1
        else:
            found[key] = replace(word, value=True)
    return found, at


class _Line:
    """One command, read from the left: wrappers, launcher with its flags, script with its options."""

    def __init__(self, command: Command, path: str, slurm: Mapping[str, Node]) -> None:
        self.command = command
        self.path = path
        self.slurm = dict(slurm)
        self.words = command.words
        self.containers: list[dict[str, Node]] = []
        self.through_srun: dict[str, Node] | None = None

    def launch(self) -> Launch | None:
        at = 0
        while at < len(self.words):
            word = self.words[at].value
            name = PurePosixPath(word).name if isinstance(word, str) and "\0" not in word else ""
            if name in _SPEAKING and (at == 0 or self.value(at - 1) in _BEFORE):
                return None
            if name == "srun":
                flags, at = _flags(self.words, at + 1, _SRUN_SWITCHES)
                self.through_srun = {_SRUN_NAMES.get(key, key): node for key, node in flags.items()}
                continue
            if name in ("docker", "podman", "nvidia-docker") and self.value(at + 1) == "run":
                flags, at = _flags(self.words, at + 2, _DOCKER_SWITCHES)
                self.containers.append({**flags, "": self.words[0]})
                at += 1
                continue
            if name in ("mpirun", "mpiexec"):
                return None  # its ranks are not followed
            if name in ("bash", "sh") and self.value(at + 1) in ("-c", "-lc"):
                return self.nested(at + 2)
            if name == "torchrun":
                return self.started("torchrun", at, at + 1)
            if name == "deepspeed":
                return self.started("deepspeed", at, at + 1)
            if name == "accelerate" and self.value(at + 1) == "launch":
                return self.started("accelerate", at, at + 2)
            if name in ("axolotl", "llamafactory-cli", "trl"):
                return self.tool(name, at)
            if _PYTHON.match(name):
                return self.python(at)
            at += 1
        return None

    def value(self, at: int) -> object:
        return self.words[at].value if at < len(self.words) else None

    def nested(self, at: int) -> Launch | None:
        """``bash -c "…"``: the first launch of the text in quotes."""
        text = self.value(at)
        if not isinstance(text, str):
            return None
        for inner in commands(text, self.path):
            here = self.words[at]
            words = tuple(replace(node, line=here.line, column=here.column, start=-1, end=-1) for node in inner.words)
            line = _Line(Command(words, {**self.command.environment, **inner.environment}), self.path, self.slurm)
            line.through_srun = self.through_srun
            found = line.launch()
            if found is not None:
                return found
        return None

    def python(self, at: int) -> Launch | None:
        stop = next((i for i in range(at, len(self.words)) if self.words[i].value in ("-m", "-c")), len(self.words))
        _, after = _flags(self.words[:stop], at + 1, _SWITCHES["python"])
        if after < stop or stop + 1 >= len(self.words):
            return self.script("python", at, {}, after, False) if after < stop else None
        if self.words[stop].value == "-c":
            return None
        module = self.words[stop + 1].value
        launcher = _MODULES.get(module) if isinstance(module, str) else None
        if launcher is not None:
            is_cli = module == "accelerate.commands.accelerate_cli"
            return self.started(launcher, at, stop + (3 if is_cli else 2))
        return self.script("python", at, {}, stop + 1, True)

    def started(self, launcher: str, at: int, begin: int) -> Launch | None:
        flags, after = _flags(self.words, begin, _SWITCHES[launcher])
        return self.script(launcher, at, flags, after, "m" in flags or "module" in flags)

    def tool(self, name: str, at: int) -> Launch | None:
        """``axolotl train x.yaml``, ``llamafactory-cli train x.yaml``, ``trl sft --config x.yaml``."""
        return self.script(name, at, {}, at + 1, True)

    def script(self, launcher: str, at: int, flags: dict[str, Node], after: int, module: bool) -> Launch | None:
        script = self.words[after] if after < len(self.words) else None
        if script is None:
            return None
        options, arguments = _options(self.words[after + 1 :])
        if launcher == "python" and self.through_srun is not None:
            launcher, flags = "srun", self.through_srun
        slurm = {**self.slurm, **(self.through_srun or {})}
        return Launch(
            path=self.path, node=replace(self.words[at], value=launcher), launcher=launcher, flags=flags, script=script,
            options=options, arguments=arguments, environment=self.command.environment, slurm=slurm, module=module,
            folder=self.command.folder,
        )  # fmt: skip


def _options(words: Sequence[Node]) -> tuple[dict[str, Node], tuple[Node, ...]]:
    """A script's options by name, and its other words. ``key=value`` (Hydra) is an option, too."""
    found: dict[str, Node] = {}
    others: list[Node] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        text = word.value.prefix if isinstance(word.value, Lost) else word.value
        if not isinstance(text, str):
            others.append(word)
            continue
        if text in (">", ">>", "<", "2>", "2>&1", "&>", "|"):
            break
        if not text.startswith("--") or text == "--":
            key, mark, value = text.partition("=")
            if mark and re.fullmatch(r"\+{0,2}[A-Za-z_][\w.]*", key):
                found[key.lstrip("+").rpartition(".")[2]] = _given(word, value)
            else:
                others.append(word)
            continue
        key, mark, value = text[2:].partition("=")
        key = key.replace("-", "_")
        if mark:
            found[key] = _given(word, value)
        elif at < len(words) and not (isinstance(words[at].value, str) and str(words[at].value).startswith("--")):
            found[key] = _seen(words[at], word)
            at += 1
        else:
            found[key] = replace(word, value=True)
    return found, tuple(others)


def _given(word: Node, value: str) -> Node:
    """The value in ``--key=value``; what follows a part that cannot be told is kept (a path's end)."""
    return replace(word, value=Lost(value, word.value.suffix) if isinstance(word.value, Lost) else value)


def _seen(value: Node, flag: Node) -> Node:
    """A flag's value in the next word, with the place of the flag."""
    return replace(value, key_line=flag.line, key_start=flag.start)


def _installed(command: Command) -> list[Pin]:
    """Requirements that a ``pip install`` line names."""
    words = [word.value for word in command.words]
    if "install" not in words or not any(
        isinstance(w, str) and PurePosixPath(w).name in ("pip", "pip3", "uv") for w in words
    ):
        return []
    found = [pin(word, word.value) for word in command.words if isinstance(word.value, str)]
    return [one for one in found if one is not None and one.specifier]
