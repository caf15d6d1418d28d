"""Which versions a project asks for: requirements files, pyproject.toml, conda environments."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from advisor.check.facts import Pin
from advisor.check.readers.positioned import yaml_nodes
from advisor.check.toml import table
from advisor.check.values import Node

_COMMENT = re.compile(r"(?:^|\s)#.*$")


def pin(node: Node, text: object) -> Pin | None:
    """One requirement as its line writes it; None for anything else, and for one with a marker (it may not apply)."""
    if not isinstance(text, str) or len(text) > 300:
        return None
    try:
        found = Requirement(_COMMENT.sub("", text).strip())
    except InvalidRequirement:
        return None
    if found.marker is not None:
        return None
    return Pin(package=canonicalize_name(found.name), specifier=str(found.specifier), node=node)


def requirements(text: str, path: str) -> Iterator[Pin]:
    """The lines of a requirements file."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith(("#", "-")):
            found = pin(Node(line.strip(), path, number), line.split(" --")[0].rstrip("\\ "))
            if found is not None:
                yield found


def pyproject(text: str, path: str) -> Iterator[Pin]:
    """``project.dependencies`` alone: an extra may not be installed."""
    try:
        project = table(text).get("project")
    except tomllib.TOMLDecodeError:
        return
    listed = project.get("dependencies") if isinstance(project, dict) else None
    for one in listed if isinstance(listed, list) else ():
        line = text.count("\n", 0, max(text.find(str(one)), 0)) + 1
        found = pin(Node(one, path, line), one)
        if found is not None:
            yield found


def conda(text: str, path: str) -> Iterator[Pin]:
    """An ``environment.yml``: conda's own lines (``torch=2.1``) and those for pip."""
    for root in yaml_nodes(text, path):
        listed = root.get("dependencies")
        for node in listed.value if listed is not None and isinstance(listed.value, tuple) else ():
            inner = node.get("pip")
            for one in inner.value if inner is not None and isinstance(inner.value, tuple) else (node,):
                text_of = one.value
                if inner is None and isinstance(text_of, str):
                    text_of = re.sub(r"^([\w.-]+)=(?!=)([\w.]+).*$", r"\1==\2", text_of.rpartition("::")[2])
                found = pin(one, text_of)
                if found is not None:
                    yield Pin(package="torch" if found.package == "pytorch" else found.package,
                              specifier=found.specifier, node=found.node)  # fmt: skip
