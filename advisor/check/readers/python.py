"""A Python script to facts: its calls in the order of running, with the values of their arguments."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections import Counter
from collections.abc import Sequence

from advisor.check.facts import Call, ScriptFacts
from advisor.check.readers.evaluate import Evaluator
from advisor.check.readers.scopes import Scope, scopes
from advisor.check.readers.trees import walk
from advisor.check.values import UNKNOWN, Called, Dotted, Node, Option

# A file without any of these words has nothing that a rule looks at, and is not even parsed.
RELEVANT = re.compile(
    r"from_pretrained|TrainingArg|deepspeed|[Aa]ccelerat|torch\.load|DataParallel|max_memory|device_map|SFT|DPO|"
    r"Trainer|load_in_[48]bit|NCCL_|weights_only|fully_shard|transformers|torch"
)
_INTERESTING = re.compile(
    r"from_pretrained|from_config|pipeline|Accelerator|PartialState|initialize|init_inference|init_distributed|"
    r"init_process_group|Init|DataParallel|DistributedDataParallel|load|prepare|train|fit|save_model|save_pretrained|save|"
    r"save_state|save_16bit_model|state_dict|get_state_dict|infer_auto_device_map|get_balanced_memory|get_max_memory|"
    r"dispatch_model|load_checkpoint_and_dispatch|load_checkpoint_in_model|disk_offload|cpu_offload|get_peft_model|"
    r"prepare_model_for_kbit_training|prepare_model_for_int8_training|to|bfloat16|half|float|cuda|parse_\w+|setdefault|"
    r"_save|_zero3_consolidated_16bit_state_dict|is_deepspeed_zero3_enabled|notebook_launcher|spawn|GatheredParameters|FullyShardedDataParallel|FSDP|fully_shard|DummyOptim|DeepSpeedCPUAdam|"
    r"backward|optimum|set_device|\w*Adam\w*|SGD|Adafactor|\w*(?:Config|Arguments|Args|Trainer|Plugin|Kwargs)"
)
_MAIN_FLOWS = ("Fire", "run")


def script_facts(text: str, path: str, lines: Sequence[int] | None = None) -> ScriptFacts | None:
    """The facts of a script; None when it is no Python. ``lines`` gives a notebook's own line for each line of ``text``."""
    if not RELEVANT.search(text):
        return ScriptFacts(path=path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a string's bad escape in the code under test is its own matter
            tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _Reader(text, path, tree, lines).facts()


def refusal(text: str) -> tuple[str, int, int]:
    """Why a text is no Python for the Python that checks, with line and column from 1 (0: not known); "" when it is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text.removeprefix("\ufeff"))
        return "", 0, 0
    except SyntaxError as error:
        said = f"cannot be parsed by Python {sys.version_info.major}.{sys.version_info.minor}: {error.msg}"
        return said, error.lineno or 1, max(error.offset or 0, 0)
    except (ValueError, RecursionError, MemoryError):
        pass
    return "cannot be parsed: it holds a NUL character, or is nested too deep", 1, 0


class _Reader:
    def __init__(self, text: str, path: str, tree: ast.Module, lines: Sequence[int] | None) -> None:
        self.tree = tree
        self.path = path
        self.scopes = scopes(tree)
        self.evaluator = Evaluator(path, text, lines)
        self.found: list[Call] = []
        self.given: dict[int, tuple[str, ...]] = {}
        self.statements: set[int] = set()  # calls that stand alone
        self.prepare()

    def prepare(self) -> None:
        """What the evaluator must know of the whole file before it evaluates anything."""
        evaluator = self.evaluator
        loads: Counter[str] = Counter()
        for node in walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                loads[node.id] += 1
            elif isinstance(node, ast.ClassDef):
                evaluator.classes[node.name] = node
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                self.statements.add(id(node.value))
        functions: Counter[str] = Counter()
        for scope in self.scopes:
            if scope.node is not None:
                evaluator.functions[id(scope.node)] = scope
                if not isinstance(scope.node, ast.Lambda):
                    functions[scope.node.name] += 1
            for target, _ in scope.assigned:
                if isinstance(target, ast.Attribute):
                    base = target.value.id if isinstance(target.value, ast.Name) else "?"
                    evaluator.attributes.setdefault(base, set()).add(target.attr)
        for scope in self.scopes:
            for call, _ in scope.calls:
                self.site(call, scope, loads, functions)
        for scope in self.scopes:
            for call, _ in scope.calls:
                if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
                    self.option(call, scope)

    def site(self, call: ast.Call, scope: Scope, loads: Counter[str], functions: Counter[str]) -> None:
        """A function that is mentioned once, where it is called or given to a command line maker."""
        name: str | None = None
        if isinstance(call.func, ast.Name):
            name = call.func.id
        if isinstance(call.func, ast.Attribute) and call.func.attr in _MAIN_FLOWS and call.args:
            name = call.args[0].id if isinstance(call.args[0], ast.Name) else None
        if name is None or loads[name] != 1 or functions[name] != 1:
            return
        found = scope.find(name)
        if found is not None and found[1].defined is not None and found[1].times == 1:
            self.evaluator.arguments[id(found[1].defined)] = (call, scope)

    def option(self, call: ast.Call, scope: Scope) -> None:
        evaluator = self.evaluator
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if not flags:
            return
        long = next((flag for flag in flags if flag.startswith("--")), flags[0])
        given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}
        dest = given.get("dest")
        name = dest.value if isinstance(dest, ast.Constant) and isinstance(dest.value, str) else long
        name = name.lstrip("-").replace("-", "_")
        action = given.get("action")
        switch = action.value if isinstance(action, ast.Constant) else None
        if "default" in given:
            default = evaluator.node(given["default"], scope)
        else:
            default = evaluator.at(call, {"store_true": False, "store_false": True}.get(str(switch)))
        node = evaluator.at(call, Option(name, default))
        known = evaluator.options.get(name, node)
        same = known is not None and isinstance(known.value, Option) and known.value.default.value == default.value
        evaluator.options[name] = node if same else None

    def facts(self) -> ScriptFacts:
        self.flows()
        parsed: list[str] = []
        for call in self.found:
            if call.last == "parsed":
                parsed += [kind.value.name for kind in call.called.args if isinstance(kind.value, Dotted)]
        return ScriptFacts(
            path=self.path,
            calls=tuple(self.found),
            given=self.given,
            options={name: node for name, node in self.evaluator.options.items() if node is not None},
            dataclasses=tuple(dict.fromkeys(parsed)),
            environment=self.environment(),
            imports=self.imports(),
            bases=self.bases(),
        )

    def flows(self) -> None:
        """The module's calls in order, going into the file's own functions where they are called; then those never gone
        into, each as a flow of its own."""
        entered: set[int] = set()
        flow = 0
        for scope in self.scopes:
            if scope.node is not None and id(scope.node) in entered:
                continue
            if isinstance(scope.node, ast.Lambda):
                continue
            self.given[flow] = self.parameters(scope)
            self.run(scope, flow, entered)
            flow += 1

    def parameters(self, scope: Scope) -> tuple[str, ...]:
        if scope.node is None:
            return ()
        arguments = scope.node.args
        return tuple(a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs])

    def run(self, start: Scope, flow: int, entered: set[int]) -> None:
        order = 0
        stack: list[tuple[Scope, int, bool]] = [(start, 0, False)]  # scope, next call, whether entered in a branch
        entered.add(id(start.node))
        while stack:
            scope, at, branch = stack.pop()
            while at < len(scope.calls):
                node, maybe = scope.calls[at]
                at += 1
                inner = self.inner(node, scope)
                if inner is not None and id(inner.node) not in entered and len(stack) < 50:
                    entered.add(id(inner.node))
                    stack.append((scope, at, branch))
                    stack.append((inner, 0, branch or maybe))
                    break
                call = self.call(node, scope, maybe or branch, flow, order)
                if call is not None:
                    self.found.append(call)
                    order += 1

    def inner(self, node: ast.Call, scope: Scope) -> Scope | None:
        """The file's own function that a call goes into."""
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if isinstance(node.func, ast.Attribute) and node.func.attr in _MAIN_FLOWS and node.args:
            name = node.args[0].id if isinstance(node.args[0], ast.Name) else None
        found = scope.find(name) if name is not None else None
        defined = found[1].defined if found is not None and found[1].times == 1 else None
        return self.evaluator.functions.get(id(defined)) if defined is not None else None

    def call(self, node: ast.Call, scope: Scope, maybe: bool, flow: int, order: int) -> Call | None:
        match node.func:
            case ast.Name(id=word) | ast.Attribute(attr=word):
                pass
            case _:
                return None
        bound = scope.find(word) if isinstance(node.func, ast.Name) else None
        dotted = bound[1].imported if bound is not None else None  # an alias hides the name that counts
        if not _INTERESTING.fullmatch(dotted.rpartition(".")[2] if dotted else word):
            return None
        found = self.evaluator.made(node, scope)
        if not isinstance(found.value, Called):
            return None
        function = scope.node.name if isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef)) else ""
        kept = id(node) not in self.statements
        return Call(found.value, found, maybe, flow, order, function, scope.owner, kept)

    def environment(self) -> dict[str, Node]:
        """What ``os.environ["X"] = …`` and ``os.environ.setdefault`` set; unknown when set twice."""
        found: dict[str, Node] = {}

        def put(key: object, node: Node) -> None:
            if isinstance(key, str):
                found[key] = node if key not in found else Node(UNKNOWN, node.path, node.line, node.column)

        for scope in self.scopes:
            for target, value in scope.assigned:
                if isinstance(target, ast.Subscript) and self.is_environment(target.value, scope):
                    node = self.evaluator.node(value, scope)
                    place = self.evaluator.at(target, node.value)
                    put(self.evaluator.node(target.slice, scope).value, place)
            for call, _ in scope.calls:
                if isinstance(call.func, ast.Attribute) and call.func.attr in ("setdefault", "update"):
                    if not self.is_environment(call.func.value, scope):
                        continue
                    if call.func.attr == "setdefault" and len(call.args) == 2:
                        node = self.evaluator.node(call.args[1], scope)
                        place = self.evaluator.at(call, node.value)
                        put(self.evaluator.node(call.args[0], scope).value, place)
                    for argument in call.args if call.func.attr == "update" else ():
                        for key, item in self.evaluator.node(argument, scope).items.items():
                            put(key, item)
        return found

    def is_environment(self, node: ast.expr, scope: Scope) -> bool:
        found = self.evaluator.node(node, scope).value
        return isinstance(found, Dotted) and found.name in ("os.environ", "environ")

    def imports(self) -> frozenset[str]:
        found: set[str] = set()
        for scope in self.scopes:
            for binding in scope.names.values():
                if binding.imported is not None:
                    found.add(binding.imported)
        return frozenset(found)

    def bases(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name, definition in self.evaluator.classes.items():
            if definition.bases:
                base = self.evaluator.node(definition.bases[0], self.scopes[0]).value
                if isinstance(base, Dotted):
                    found[name] = base.name
        return found
