"""How one key of the configuration is declared and checked."""

from __future__ import annotations

from dataclasses import field, fields
from typing import Any


class ConfigError(ValueError):
    """The configuration is wrong: the message names the key, the reason and the cure."""


Scalar = bool | int | float | str
Value = Scalar | tuple[str, ...]


def setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    one_of: tuple[str, ...] | None = None,
    dynamic: bool = False,
) -> Any:
    """Declare one key: its default, its meaning with unit, its range, whether it is dynamic."""
    metadata = {"doc": doc, "low": low, "high": high, "one_of": one_of, "dynamic": dynamic}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def check(section: object) -> None:
    """Raise ValueError, naming the key, for a value outside its range."""
    for key in fields(section):  # type: ignore[arg-type]  # every caller passes a dataclass
        value = getattr(section, key.name)
        low, high = key.metadata["low"], key.metadata["high"]
        if low is not None and value < low:
            raise ValueError(f"{key.name}: {value}, must be at least {low}")
        if high is not None and value > high:
            raise ValueError(f"{key.name}: {value}, must be at most {high}")
        one_of = key.metadata["one_of"]
        if one_of is not None and value not in one_of:
            raise ValueError(
                f"{key.name}: {value!r}, must be one of {', '.join(filter(None, one_of))}"
            )


SHOWN_CHARS_MAX = 255
"""Of a text that a broker's registration holds: the longest name of a host, and more than a zone
has."""


def check_shown(key: str, text: str) -> None:
    """Raise ValueError for a text that cannot be part of how a broker announces itself."""
    if len(text) > SHOWN_CHARS_MAX or not text.isprintable():
        raise ValueError(
            f"{key}: {text!r:.80}, must be at most {SHOWN_CHARS_MAX} printable characters,"
            " without line breaks"
        )


LEVELS = ("leader", "leader-fsync", "replicated", "replicated-fsync")

PATTERN_SIGN = "*"
"""Stands for anything in the name of a topic that MetaQ's puts may make; no topic has it."""


def is_pattern(name: str) -> bool:
    """Whether a declared name stands for many topics."""
    return PATTERN_SIGN in name


FILTER_PREFIX = "group."
"""Of a topic's keys that say what a group of MetaQ's consumers gets of it."""
