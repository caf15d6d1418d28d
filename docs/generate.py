"""Pages made from the thing itself: trees and their rules, lint rules, facts, commands, formats. Nothing is said twice.

``write(folder)`` lays them below ``folder``; Sphinx calls it before it reads the sources. Only pages that changed are
written, so that a second build is quick.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from advisor.check.codes import all_rules
from advisor.data import data_dir
from advisor.decide.cases import Case, read_cases
from advisor.decide.facts import FACTS, NONE, WAYS
from advisor.decide.rules import TREES, Node, Tree, load_tree
from advisor.report.page.tree import draw
from advisor.strategies.registry import STRATEGIES

SCHEMAS = Path(__file__).parent / "schemas"
_TITLES = {"inference": "Inference", "finetune": "Fine-tuning"}


def write(folder: Path) -> None:
    """All pages; what an earlier run left and this one does not make is deleted."""
    made = {folder / name: text for name, text in _pages()}
    for path in folder.rglob("*.md"):
        if path not in made:
            path.unlink()
    for path, text in made.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _pages() -> Iterator[tuple[str, str]]:
    for name in TREES:
        tree = load_tree(name)
        cases = read_cases(data_dir("rules") / f"{name}.cases.toml")
        yield f"tree-{name}.md", _tree(tree)
        for node in tree.nodes.values():
            yield f"rules/{node.code}.md", _node(tree, node, [case for case in cases if case.code == node.code])
    for code, rule in all_rules().items():
        yield f"checks/{code}.md", _lint(rule)
    yield "checks.md", _lint_index()
    yield "facts.md", _facts()
    yield "strategies.md", _strategies()
    yield "commands.md", _commands()
    for path in sorted(SCHEMAS.glob("*.json")):
        yield f"formats/{path.stem}.md", _format(path)


def _tree(tree: Tree) -> str:
    rows = [
        f"| [{n.code}](rules/{n.code}.md) | {_cell(n.ask)} | {_to(tree, n.yes)} | {_to(tree, n.no)} |"
        for n in tree.nodes.values()
    ]
    codes = "\n".join(f"rules/{code}" for code in tree.nodes)
    return (
        f"# {_TITLES[tree.name]}\n\nMade from `rules/{tree.name}.toml`. The walk begins at {tree.root.code}.\n\n"
        f"```{{raw}} html\n{_drawing(tree)}\n```\n\n"
        "| rule | question | yes | no |\n|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f"```{{toctree}}\n:hidden:\n\n{codes}\n```\n"
    )


def _drawing(tree: Tree) -> str:
    drawn = draw(tree)
    lines = [
        f'<div class="tree-scroll" tabindex="0" role="region" aria-label="The tree; the table below says the same">'
        f'<svg class="tree" viewBox="0 0 {drawn.width:.0f} {drawn.height:.0f}" width="{drawn.width:.0f}"'
        f' role="img" aria-label="Decision tree {tree.name}">'
    ]
    for edge in drawn.edges:
        lines.append(f'<path d="{edge.path}"/><text x="{edge.x}" y="{edge.y}">{edge.answer}</text>')
    for box in drawn.boxes:
        shape = (
            f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="{5 if box.kind == "ask" else 14}"/>'
            f'<text class="name" x="{box.x + box.width / 2}" y="{box.y + 19}" text-anchor="middle">'
            f"{html.escape(box.text)}</text>"
            f"<title>{html.escape(box.words)}</title>"
        )
        link = f'<a href="rules/{box.text}.html">{shape}</a>' if box.kind == "ask" else shape
        lines.append(f'<g class="{box.kind}">{link}</g>')
    return "\n".join([*lines, "</svg></div>"])


def _to(tree: Tree, target: str) -> str:
    if target in tree.nodes:
        return f"[{target}](rules/{target}.md)"
    return "nothing fits" if target == NONE else f"**{target}**"


def _node(tree: Tree, node: Node, cases: list[Case]) -> str:
    conditions = "\n".join(f"- `{condition.text}`" for condition in node.when)
    facts = sorted({name for condition in node.when for name in condition.facts})
    meanings = "\n".join(
        f"| `{name}` | {FACTS[name].type} | {FACTS[name].unit} | {_cell(FACTS[name].doc)} |" for name in facts
    )
    ends = "\n".join(f"- {answer}: {_end(tree, target)}" for answer, target in (("yes", node.yes), ("no", node.no)))
    before = [
        f"[{other.code}]({other.code}.md) ({answer})"
        for other in tree.nodes.values()
        for answer, target in (("yes", other.yes), ("no", other.no))
        if target == node.code
    ]
    shown = "\n".join(f"| {'yes' if case.answer else 'no'} | {case.leaf} | {_given(case)} |" for case in cases)
    return (
        f"# {node.code}\n\n**{node.ask}**\n\n{node.because}\n\n"
        f"## Yes, when all of these hold\n\n{conditions}\n\n"
        f"| fact | type | unit | meaning |\n|---|---|---|---|\n{meanings}\n\n"
        f"## Where it leads\n\n{ends}\n\nAsked after {', '.join(before) or 'nothing: it is the root'}. "
        f"In the [tree](../tree-{tree.name}.md); `advisor explain {node.code}` says the same.\n\n"
        f"## Its cases\n\n| answer | the walk ends at | facts |\n|---|---|---|\n{shown}\n"
    )


def _end(tree: Tree, target: str) -> str:
    if target in tree.nodes:
        return f"[{target}]({target}.md) – {tree.nodes[target].ask}"
    return "nothing fits" if target == NONE else f"**{target}** – {WAYS[target]}"


def _given(case: Case) -> str:
    return ", ".join(f"`{name} = {_value(value)}`" for name, value in case.facts.items())


def _value(value: object) -> str:
    return json.dumps(value) if not isinstance(value, float) or value < 1e6 else f"{value:.4g}"


def _lint(rule: Any) -> str:
    return (
        f"# {rule.code} {rule.name}\n\n**{rule.severity}** · {rule.since}\n\n{_text(rule.what)}\n\n"
        f"## Why\n\n{_text(rule.why)}\n\n## What to write instead\n\n{_text(rule.fix)}\n\n"
        f"`advisor explain {rule.code}` says the same; `# advisor: ignore[{rule.code}] reason` on a line silences it there.\n"
    )


def _lint_index() -> str:
    rules = all_rules().values()
    rows = "\n".join(f"| [{r.code}](checks/{r.code}.md) | {r.name} | {r.severity} | {_cell(r.what)} |" for r in rules)
    codes = "\n".join(f"checks/{rule.code}" for rule in rules)
    return (
        "# What `advisor check` finds\n\nMade from the rules themselves.\n\n"
        "| code | name | severity | what |\n|---|---|---|---|\n"
        f"{rows}\n\n```{{toctree}}\n:hidden:\n\n{codes}\n```\n"
    )


def _facts() -> str:
    general = [fact for fact in FACTS.values() if "." not in fact.name]
    rows = "\n".join(f"| `{fact.name}` | {fact.type} | {fact.unit} | {_cell(fact.doc)} |" for fact in general)
    ways = "\n".join(f"| `{name}` | {meaning} |" for name, meaning in WAYS.items())
    return (
        "# Facts that rules may ask about\n\n| fact | type | unit | meaning |\n|---|---|---|---|\n"
        f"{rows}\n\n## Ways\n\nA way is a strategy with what it moves and stores. Each has `WAY.fits`, `WAY.tight`, "
        "`WAY.headroom` (free share of the fullest card), `WAY.free` (bytes of it) and `WAY.speed` (tokens/s over all GPUs), "
        f"and is the name of a leaf.\n\n| way | what it is |\n|---|---|\n{ways}\n"
    )


def _strategies() -> str:
    rows = "\n".join(f"| `{name}` | {strategy.title} |" for name, strategy in STRATEGIES.items())
    return f"# Strategies\n\nMade from the registry.\n\n| strategy | what it is |\n|---|---|\n{rows}\n"


def _commands() -> str:
    from typer.main import get_command

    from advisor.cli import app

    group: Any = get_command(app)
    parts = ["# Commands\n\nMade from the commands themselves; `advisor COMMAND --help` says the same."]
    for name, command in group.commands.items():
        rows = []
        for parameter in command.params:
            names = ", ".join(f"`{flag}`" for flag in (*parameter.opts, *parameter.secondary_opts))
            if parameter.param_type_name == "argument":
                names = f"`{parameter.name.upper()}`"
            rows.append(f"| {names} | {_cell(getattr(parameter, 'help', None) or '')} |")
        text = _text(command.help or "")
        parts.append(f"## advisor {name}\n\n{text}\n\n| option | |\n|---|---|\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _format(path: Path) -> str:
    schema = json.loads(path.read_text(encoding="utf-8"))
    parts = [
        f"# {schema.get('title', path.stem)}\n\n{_text(schema.get('description', ''))}\n\n"
        f"Made from the JSON Schema {{download}}`{path.name} <../../schemas/{path.name}>`, "
        f"which `advisor schema {path.stem}` prints.",
        _properties(schema),
    ]
    for name, part in schema.get("$defs", {}).items():
        if "properties" in part:
            parts.append(f"## {name}\n\n{_text(part.get('description', ''))}\n\n{_properties(part)}")
    return "\n\n".join(parts) + "\n"


def _properties(schema: dict[str, Any]) -> str:
    required = schema.get("required", ())
    rows = [
        f"| `{name}` | {_type(value)} | {'yes' if name in required else ''} | {_cell(value.get('description', ''))} |"
        for name, value in schema.get("properties", {}).items()
    ]
    return "| field | type | required | |\n|---|---|---|---|\n" + "\n".join(rows)


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return value["$ref"].split("/")[-1]
    if "anyOf" in value:
        return " or ".join(_type(part) for part in value["anyOf"])
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{item}`" for item in value["enum"])
    if value.get("type") == "array":
        inner = value.get("items") or (value.get("prefixItems") or [{}])[0]
        return f"list of {_type(inner)}"
    if value.get("type") == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"map to {_type(value['additionalProperties'])}"
    return str(value.get("type", "any"))


def _text(text: str) -> str:
    """Prose for a page: one paragraph, code in single backticks, and no "<" that Markdown would take for HTML."""
    pieces = " ".join(text.replace("``", "`").split()).split("`")
    if len(pieces) % 2 == 0:  # a backtick that is no mark of code
        return "`".join(pieces).replace("<", "&lt;")
    return "`".join(piece if index % 2 else piece.replace("<", "&lt;") for index, piece in enumerate(pieces))


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")
