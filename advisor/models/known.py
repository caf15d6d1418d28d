"""The built-in catalogue: the published config facts and parameter counts of models that people load.

One JSON file a family under ``catalogue/``; docs/adding-a-model.md tells how to add to it.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from advisor.models.spec import Kind, ModelSpec

_FOLDER = Path(__file__).parent / "catalogue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One repository of the catalogue.

    ``parameters`` is the published count, read from no model of ours (tied weights once; the text model's share where
    the repository holds more), and ``counted_by`` says who published it. ``active`` is the published number used a
    token. ``original`` is the repository of the same weights in a format that transformers cannot load.
    """

    repo: str
    family: str  # the file that it stands in
    kind: Kind
    config: Mapping[str, Any]
    parameters: int
    counted_by: str
    active: int | None = None
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    gated: bool = False
    quantization_config: Mapping[str, Any] | None = None
    aliases: tuple[str, ...] = ()
    original: str | None = None
    variant_of: str | None = None
    notes: tuple[str, ...] = field(default=())

    def spec(self, asked: str) -> ModelSpec:
        """The spec of this entry for somebody who typed ``asked``."""
        notes = list(self.notes)
        if self.original is not None and asked.lower() == self.original.lower():
            notes.append(
                f"{self.original} holds the original weights, which transformers cannot load: a loader needs "
                f"{self.repo}, the same model in its format, which is planned here"
            )
        if self.gated:
            notes.append(f"{self.repo} is gated: accept its licence on the Hub and log in before loading")
        return ModelSpec(
            name=self.repo,
            asked=asked,
            loader_repo=self.repo,
            source="catalogue",
            kind=self.kind,
            config=self.config,
            parameters=self.parameters,
            active_parameters=self.active,
            dtype=self.dtype,
            quantization_config=self.quantization_config,
            gated=self.gated,
            notes=tuple(notes),
        )


@cache
def catalogue() -> Mapping[str, Entry]:
    """Every shipped repository by Hub id, families in alphabetical order."""
    entries: dict[str, Entry] = {}
    for path in sorted(_FOLDER.glob("*.json")):
        for repo, facts in json.loads(path.read_text(encoding="utf-8")).items():
            variants = facts.pop("variants", {})
            entries[repo] = _entry(repo, path.stem, facts)
            for other, changes in variants.items():
                # A variant has the facts of its model but for what it says itself; names stay with the model.
                shared = {key: value for key, value in facts.items() if key not in ("aliases", "original")}
                config = {**facts["config"], **changes.get("config", {})}
                entries[other] = _entry(other, path.stem, {**shared, **changes, "config": config, "variant_of": repo})
    return entries


def _entry(repo: str, family: str, facts: Mapping[str, Any]) -> Entry:
    values = {**facts, "aliases": tuple(facts.get("aliases", ())), "notes": tuple(facts.get("notes", ()))}
    return Entry(repo=repo, family=family, **values)


@cache
def _names() -> Mapping[str, str]:
    """Lower-case names to Hub ids: ids, aliases, original-weights repositories, and all of them without the owner."""
    names = {repo.lower(): repo for repo in catalogue()}
    full = [(alias, entry.repo) for entry in catalogue().values() for alias in entry.aliases]
    full += [(entry.original, entry.repo) for entry in catalogue().values() if entry.original]
    for name, repo in [*full, *((repo, repo) for repo in catalogue())]:
        names.setdefault(name.lower(), repo)
    for name, repo in [*((repo, repo) for repo in catalogue()), *full]:
        names.setdefault(name.split("/")[-1].lower(), repo)
    return names


def find(name: str) -> Entry | None:
    """The entry that ``name`` means, whatever its case; None when the catalogue has no such name."""
    repo = _names().get(name.lower())
    return None if repo is None else catalogue()[repo]


def search(text: str) -> tuple[Entry, ...]:
    """The entries whose name, alias, family or architecture contains ``text``, whatever its case; all for ""."""
    lower = text.lower()

    def words(entry: Entry) -> tuple[str, ...]:
        others = (entry.original,) if entry.original else ()
        return (entry.repo, entry.family, str(entry.config["model_type"]), *entry.aliases, *others)

    return tuple(entry for entry in catalogue().values() if any(lower in word.lower() for word in words(entry)))


def nearest(name: str, count: int = 4) -> tuple[str, ...]:
    """The Hub ids of the catalogue whose names look most like ``name``."""
    lower = name.lower()
    names = _names()
    # Owners are long and alike: the part after the slash is compared on its own as well.
    candidates = dict.fromkeys((lower, lower.split("/")[-1]))
    close = [hit for text in candidates for hit in difflib.get_close_matches(text, list(names), n=count, cutoff=0.55)]
    close.sort(key=lambda hit: -max(difflib.SequenceMatcher(None, text, hit).ratio() for text in candidates))
    return tuple(dict.fromkeys(names[hit] for hit in close))[:count]
