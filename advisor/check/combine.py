"""Runs: launcher to script to config, each joined only by a file that is really there under the name that is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import PurePath

from advisor.check.facts import Call, ConfigFacts, Launch, ScriptFacts
from advisor.check.project import Arguments, Finder, Ranks, Run, Zero, stage_of
from advisor.check.ranks import ranks_of
from advisor.check.settings import Settings
from advisor.check.sources import Read
from advisor.check.types import Doubt
from advisor.check.values import UNKNOWN, Called, Lost, Node, Option, integer, truth

# Classes that hold the Trainer's arguments: transformers' own, and TRL's, which extend it.
TRL_CONFIGS = frozenset(
    {"SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "PPOConfig", "RLOOConfig", "RewardConfig",
     "PRMConfig", "BCOConfig", "OnlineDPOConfig", "XPOConfig", "NashMDConfig", "GKDConfig", "IterativeSFTConfig"}
)  # fmt: skip
_SETS_UP = frozenset(
    {"Accelerator", "initialize", "HfDeepSpeedConfig", "HfTrainerDeepSpeedConfig", "DeepSpeedPlugin", "fully_shard", "FSDP",
     "FullyShardedDataParallelPlugin", "FullyShardedDataParallel", "parsed", "notebook_launcher"}
)  # fmt: skip
_TOOLS = frozenset({"axolotl", "llamafactory-cli", "trl"})
_AXOLOTL = {"micro_batch_size": "per_device_train_batch_size"}


def is_arguments(kind: str, script: ScriptFacts | None = None) -> bool:
    """Whether a class holds the Trainer's arguments; classes of the script count by what they extend."""
    last = kind.rpartition(".")[2]
    if last.endswith("TrainingArguments") or last in TRL_CONFIGS:
        base = script.bases.get(last) if script is not None else None
        return base is None or base.endswith("Arguments") or is_arguments(base, script) if base != last else True
    base = script.bases.get(last) if script is not None else None
    return base is not None and base != last and is_arguments(base)


class Combiner:
    """Joins what was read. ``used`` collects the configs that some run is given."""

    def __init__(self, read: Read, settings: Settings) -> None:
        self.read = read
        self.settings = settings
        self.finder = Finder(read, settings.root)
        self.used: set[int] = set()
        self.launched: set[str] = set()
        self.doubts: list[Doubt] = []

    def runs(self) -> tuple[list[Run], list[ConfigFacts]]:
        """Every launch as a run, then scripts that nothing launches, then argument files that nothing reads."""
        launches = [launch for shell in list(self.read.shells.values()) for launch in shell.launches]
        found = [run for launch in launches for run in self.launched_runs(launch)]
        alone = [script for path, script in list(self.read.scripts.items()) if path not in self.launched]
        single = self.single(alone, launches)
        found += [self.script_run(part, single) for script in alone if script.calls for part in _parts(script)]
        orphans = [
            fact for facts in list(self.read.configs.values()) for fact in facts if id(fact.root) not in self.used
        ]
        found += [self.config_run(fact) for fact in orphans if fact.kind == "arguments"]
        return found, orphans

    def single(self, alone: list[ScriptFacts], launches: list[Launch]) -> ConfigFacts | None:
        """The one config that lies beside the one script, when nothing says how the script is started: they belong together."""
        scripts = [script for script in alone if any(_starts(call) for call in script.calls)]
        configs = [
            fact for facts in self.read.configs.values() for fact in facts if fact.kind in ("deepspeed", "accelerate")
        ]
        if launches or len(scripts) != 1 or len(configs) != 1:
            return None
        script, config = scripts[0], configs[0]
        near = PurePath(config.path).parent
        folder = PurePath(script.path).parent
        return config if near == folder or folder in near.parents or near in folder.parents else None

    def launched_runs(self, launch: Launch) -> Iterator[Run]:
        script = self.script_of(launch)
        options = self.options_of(launch, script)
        accelerate = self.accelerate_of(launch)
        for part in _parts(script) if script is not None else (None,):
            ranks = ranks_of(launch, accelerate, part, self.settings.hardware)
            yield self.run(part, launch, accelerate, options, ranks)

    def script_run(self, script: ScriptFacts, single: ConfigFacts | None) -> Run:
        starts = any(_starts(call) for call in script.calls)
        accelerate = single.root if single is not None and starts and single.kind == "accelerate" else None
        deepspeed = single.root if single is not None and starts and single.kind == "deepspeed" else None
        if single is not None and starts:
            self.used.add(id(single.root))
        ranks = ranks_of(None, accelerate, script, self.settings.hardware)
        return self.run(script, None, accelerate, {}, ranks, deepspeed)

    def config_run(self, fact: ConfigFacts) -> Run:
        options = {_AXOLOTL.get(str(key), str(key)): node for key, node in fact.root.items.items()}
        ranks = Ranks(count=None, stated=False, node=None, words="")
        return self.run(None, None, None, options, ranks, origin=fact.root)

    def run(
        self, script: ScriptFacts | None, launch: Launch | None, accelerate: Node | None, options: Mapping[str, Node],
        ranks: Ranks, deepspeed: Node | None = None, origin: Node | None = None,
    ) -> Run:  # fmt: skip
        arguments = tuple(self.arguments_of(script, launch, options, origin))
        bare = Run(script=script, launch=launch, accelerate=accelerate, options=options, arguments=arguments, zeros=(),
                   fsdp=None, ranks=ranks)  # fmt: skip
        zeros = tuple(self.zeros(bare, deepspeed))
        return Run(script=script, launch=launch, accelerate=accelerate, options=options, arguments=arguments, zeros=zeros,
                   fsdp=None if zeros else _fsdp(bare), ranks=ranks)  # fmt: skip

    # From a launch to its files.

    def script_of(self, launch: Launch) -> ScriptFacts | None:
        named = launch.script.value if launch.script is not None else None
        if launch.launcher in _TOOLS:
            return None
        lost = isinstance(named, Lost)
        name = named.suffix.lstrip("/") if isinstance(named, Lost) and named.suffix.startswith("/") else named
        if launch.module and isinstance(name, str):
            name = name.replace(".", "/") + ".py"
        path = self.finder.find(name, launch.path, launch.folder, suffix_only=lost)
        if path is None:
            self.doubts.append(
                Doubt(
                    path=launch.path, line=launch.node.line,
                    message="the script that this starts was not found under the given paths, so the two were "
                        "not checked together",
                )
            )  # fmt: skip
            return None
        self.launched.add(path)
        return self.read.scripts.get(path)

    def options_of(self, launch: Launch, script: ScriptFacts | None) -> Mapping[str, Node]:
        """The script's options, with those of a YAML or JSON file that it is given beneath them."""
        files = [node for node in launch.arguments if _ends(node, (".yaml", ".yml", ".json"))]
        if "config" in launch.options and _ends(launch.options["config"], (".yaml", ".yml", ".json")):
            files.append(launch.options["config"])
        found: dict[str, Node] = {}
        reads_files = script is None or bool(script.dataclasses)
        for node in files if reads_files else ():
            fact = self.fact(node, launch.path, launch.folder)
            if fact is not None and fact.kind == "arguments":
                self.used.add(id(fact.root))
                found.update({_AXOLOTL.get(str(key), str(key)): item for key, item in fact.root.items.items()})
        return {**found, **launch.options}

    def accelerate_of(self, launch: Launch) -> Node | None:
        node = launch.flags.get("config_file") if launch.launcher == "accelerate" else None
        if node is None and launch.launcher == "trl":
            node = launch.options.get("accelerate_config")
        fact = self.fact(node, launch.path, launch.folder) if node is not None else None
        if fact is None or fact.kind != "accelerate":
            return None
        self.used.add(id(fact.root))
        return fact.root

    def fact(self, node: Node, beside: str, folder: str | None = None) -> ConfigFacts | None:
        """The config file that a node names."""
        value = node.value
        if isinstance(value, Lost):
            name, lost = (value.suffix.lstrip("/") if value.suffix.startswith("/") else None), True
        else:
            name, lost = _named_path(node), False
        path = self.finder.find(name, beside, folder, suffix_only=lost)
        facts = self.read.configs.get(path, []) if path is not None else []
        return facts[0] if facts else None

    # DeepSpeed.

    def arguments_of(
        self, script: ScriptFacts | None, launch: Launch | None, options: Mapping[str, Node], origin: Node | None
    ) -> Iterator[Arguments]:
        for call in script.calls if script is not None else ():
            if is_arguments(call.name, script):
                yield Arguments(
                    kind=call.last, values=call.called.kwargs, whole=call.called.whole, node=call.node, call=call
                )
        parsed = script is None or any(is_arguments(kind, script) for kind in script.dataclasses)
        node = origin or (launch.node if launch is not None else None)
        if parsed and options and node is not None:
            own = next((kind for kind in script.dataclasses if is_arguments(kind, script)), "") if script else ""
            base = script.bases.get(own, own) if script is not None else own
            whole = script is not None and base.rpartition(".")[2] in ("TrainingArguments", "Seq2SeqTrainingArguments")
            yield Arguments(kind=base.rpartition(".")[2], values=options, whole=whole, node=node)

    def zeros(self, run: Run, deepspeed: Node | None) -> Iterator[Zero]:
        """Every use of DeepSpeed in a run, the surest first."""
        found = list(self.from_arguments(run))
        found += self.from_accelerate(run)
        found += self.from_calls(run)
        if not found and deepspeed is not None:
            stage, node = stage_of(deepspeed)
            through = "initialize" if run.script is not None and run.script.calls_any("initialize") else "arguments"
            found.append(Zero(stage=stage, node=node, config=deepspeed, through=through))
        yield from found

    def from_arguments(self, run: Run) -> Iterator[Zero]:
        seen: set[int] = set()
        for arguments in run.arguments:
            node = run.value(arguments.values.get("deepspeed"))
            zero = self.zero(node, run, "arguments") if node is not None else None
            if zero is not None and (arguments.call is not None or id(zero.config) not in seen):
                seen.add(id(zero.config))
                yield replace(zero, call=arguments.call)
        for name in ("deepspeed", "deepspeed_config"):
            given = run.options.get(name)
            if given is not None and not seen and isinstance(given.value, (str, Lost)):
                initialize = name == "deepspeed_config" or bool(run.script and run.script.calls_any("initialize"))
                zero = self.zero(given, run, "initialize" if initialize else "arguments")
                if zero is not None:
                    seen.add(id(zero.config))
                    yield zero

    def from_accelerate(self, run: Run) -> Iterator[Zero]:
        root, launch = run.accelerate, run.launch
        section = root.get("deepspeed_config") if root is not None else None
        flags = launch.flags if launch is not None and launch.launcher == "accelerate" else {}
        listed = section.items if section is not None else {}
        uses = (
            (root is not None and str(root.plain("distributed_type")).upper() == "DEEPSPEED")
            or "use_deepspeed" in flags or "zero_stage" in flags
        )  # fmt: skip
        wants = flags.get("zero3_init_flag") or listed.get("zero3_init_flag")
        init = wants is None or truth(wants.value) is not False
        environment = launch.environment if launch is not None else {}
        if (
            truth(_plain(environment.get("ACCELERATE_USE_DEEPSPEED")))
            and "ACCELERATE_DEEPSPEED_ZERO_STAGE" in environment
        ):
            node = environment["ACCELERATE_DEEPSPEED_ZERO_STAGE"]
            yield Zero(stage=integer(node.value), node=node, config=None, through="accelerate")
            return
        if not uses:
            return
        file = flags.get("deepspeed_config_file") or listed.get("deepspeed_config_file")
        beside = launch.path if launch is not None and "deepspeed_config_file" in flags else file.path if file else ""
        if file is not None and file.value not in (None, "none", ""):
            fact = self.fact(file, beside, launch.folder if launch is not None else None)
            if fact is None and launch is not None:
                fact = self.fact(file, launch.path, launch.folder)
            if fact is not None and fact.kind == "deepspeed":
                self.used.add(id(fact.root))
                stage, node = stage_of(fact.root)
                yield Zero(stage=stage, node=node, config=fact.root, through="accelerate", init=init)
            return
        said = flags.get("zero_stage") or listed.get("zero_stage")
        if said is not None:
            yield Zero(stage=integer(said.value), node=said, config=None, through="accelerate", init=init)

    def from_calls(self, run: Run) -> Iterator[Zero]:
        """deepspeed.initialize, zero.Init, HfDeepSpeedConfig and DeepSpeedPlugin with a config that can be read."""
        names = {"initialize": ("config", "config_params"), "HfDeepSpeedConfig": ("config_file_or_dict",),
                 "HfTrainerDeepSpeedConfig": ("config_file_or_dict",), "DeepSpeedPlugin": ("hf_ds_config",),
                 "Init": ("config_dict_or_path", "config")}  # fmt: skip
        through = {"initialize": "initialize", "DeepSpeedPlugin": "plugin"}
        for call in run.script.calls if run.script is not None else ():
            if call.last not in names or (call.last in ("initialize", "Init") and "deepspeed" not in call.name):
                continue
            node: Node | None = run.value(call.get(*names[call.last]))
            if node is None and call.last.startswith("Hf") and call.called.args:
                node = run.value(call.called.args[0])
            made = self.zero(node, run, through.get(call.last, "hf")) if node is not None else None
            if made is not None:
                yield replace(made, call=call)
            elif call.last == "DeepSpeedPlugin" and node is None:
                stage = run.value(call.get("zero_stage"))
                if stage is not None:
                    yield Zero(stage=integer(stage.value), node=stage, config=None, through="plugin", call=call)

    def zero(self, node: Node, run: Run, through: str) -> Zero | None:
        """The DeepSpeed config that a value is or names."""
        if isinstance(node.value, dict):
            stage, place = stage_of(node)
            return Zero(stage=stage, node=place, config=node, through=through)
        launch = run.launch
        beside = [node.path, *([launch.path] if launch is not None else []), *([run.script.path] if run.script else [])]
        for path in beside:
            fact = self.fact(node, path, launch.folder if launch is not None else None)
            if fact is not None and fact.kind == "deepspeed":
                self.used.add(id(fact.root))
                stage, place = stage_of(fact.root)
                return Zero(stage=stage, node=place, config=fact.root, through=through)
        name = _named_path(node)
        if name is not None and name.endswith(".json"):
            self.doubts.append(
                Doubt(
                    path=node.path, line=node.line,
                    message=f"{name} was not found under the given paths, so what DeepSpeed does here was not checked",
                )
            )  # fmt: skip
        return None


def _fsdp(run: Run) -> Node | None:
    """Where FSDP is turned on."""
    if run.accelerate is not None and str(run.accelerate.plain("distributed_type")).upper() == "FSDP":
        return run.accelerate.get("distributed_type")
    flags = run.launch.flags if run.launch is not None and run.launch.launcher == "accelerate" else {}
    if "use_fsdp" in flags:
        return flags["use_fsdp"]
    found = run.argument("fsdp")
    if found is not None and found[0].plain() not in (None, "", [], False, UNKNOWN):
        return found[0]
    for call in run.script.calls if run.script is not None else ():
        if call.last in ("FullyShardedDataParallelPlugin", "fully_shard", "FullyShardedDataParallel", "FSDP"):
            return call.node
    return None


def _plain(node: Node | None) -> object:
    return None if node is None else node.plain()


def _ends(node: Node, endings: tuple[str, ...]) -> bool:
    value = node.value.suffix if isinstance(node.value, Lost) else node.value
    return isinstance(value, str) and value.endswith(endings)


def _named_path(node: Node) -> str | None:
    """A file's name out of a text, os.path.join, Path(…), or json.load(open(…)); the parts that are not known are left out
    only when they come first."""
    value = node.value
    if isinstance(value, str):
        return value
    if isinstance(value, Option):
        return None
    if not isinstance(value, Called):
        return None
    if value.last == "join":
        names: list[str] = []
        for part in value.args:
            name = _named_path(part)
            if name is None and names:
                return None
            names += [name] if name is not None else []
        return "/".join(names) if names else None
    if value.last in ("Path", "open", "load", "loads", "abspath", "str", "expanduser", "safe_load") and value.args:
        return _named_path(value.args[0])
    return None


def _parts(script: ScriptFacts) -> list[ScriptFacts]:
    """The script whole; or, when several of its functions set up a run of their own (tests, a library), one part for each
    of them, with what the module does itself: what one function sets up says nothing about a load in another."""
    flows = {call.flow for call in script.calls}
    setting_up = {call.flow for call in script.calls if is_arguments(call.name, script) or call.last in _SETS_UP}
    if len(setting_up) < 2 or len(flows) < 2:
        return [script]
    return [
        replace(script, calls=tuple(call for call in script.calls if call.flow in (0, flow)))
        for flow in sorted(flows | {0})
    ]


def _starts(call: Call) -> bool:
    """Whether a call is what a run of training or inference consists of."""
    return call.last.endswith(("Trainer", "TrainingArguments")) or call.last in (
        "Accelerator", "initialize", "init_inference", "from_pretrained", "parsed", *TRL_CONFIGS
    )  # fmt: skip
