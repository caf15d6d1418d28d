"""What the shell offers while a command is typed."""

from __future__ import annotations


def hardware(incomplete: str) -> list[str]:
    """Names of shipped profiles; files are the shell's own to offer."""
    from advisor.data import data_dir

    names = sorted(path.stem for path in data_dir("hardware_profiles").glob("*.toml"))
    return [name for name in names if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Models of the catalogue by their whole id; folders are the shell's own to offer."""
    from advisor.models.known import search

    return [entry.repo for entry in search("") if entry.repo.startswith(incomplete)]
