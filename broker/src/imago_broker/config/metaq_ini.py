"""MetaQ's `server.ini`, translated into a configuration of ours."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Conversion:
    """The TOML text, and what a person should know about it."""

    toml: str
    notes: tuple[str, ...]


def convert(text: str) -> Conversion:
    """Translate the text of a `server.ini`; `ConfigError` for what the original would refuse."""
    raise NotImplementedError
