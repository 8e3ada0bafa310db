"""What settings of topics and groups may be: kind and bounds of each field, for every way in.

A field says its bounds once, where it is declared. `require` is asked wherever a value is made,
so that no way in can lack a check that another has. What a log holds from before is brought
within bounds by `mended`: one wrong number must not cost a group, or a topic, its service.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from typing import Any, Final, NamedTuple

from imago_wire.errors import WrongError

INT_LOW: Final = -(1 << 31)
INT_HIGH: Final = (1 << 31) - 1
"""Of what RocketMQ's clients read into an `int`."""
LONG_LOW: Final = -(1 << 63)
LONG_HIGH: Final = (1 << 63) - 1
"""Of what they read into a `long`."""


def as_json(value: object) -> str:
    """Return a value as JSON has it, for whoever sent it so; long ones are cut."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=list)
    except (TypeError, ValueError):
        text = repr(value)
    return f"{text:.60}"


class Allowed(NamedTuple):
    """What one field may be."""

    kind: type
    """bool, int, str, dict (text to text) or tuple (of texts)."""
    default: Any
    low: int = 0
    high: int = 0
    one_of: tuple[str, ...] = ()

    def problem(self, value: object) -> str | None:
        """Return what is wrong with a value, or None."""
        if not self._is_kind(value):
            return f"{as_json(value)}, must be {_WORDS[self.kind]}"
        if self.kind is int and not self.low <= value <= self.high:  # type: ignore[operator]
            return f"{value}, must be {self.low} to {self.high}"
        if self.one_of and value not in self.one_of:
            return f"{as_json(value)}, must be one of {', '.join(self.one_of)}"
        return None

    def nearest(self, value: object) -> Any:
        """Return what stands for a value that was stored: itself, else the most, or the default.

        One of another kind is left to `require`: nobody can say what it was to be.
        """
        if not self._is_kind(value) or self.problem(value) is None:
            return value
        above = self.kind is int and value > self.high  # type: ignore[operator]
        return self.high if above else self.default

    def _is_kind(self, value: object) -> bool:
        if self.kind is dict:
            return isinstance(value, Mapping) and all(
                type(name) is str and type(said) is str for name, said in value.items()
            )
        if self.kind is tuple:
            return type(value) is tuple and all(type(item) is str for item in value)
        return type(value) is self.kind  # bool is an int to Python, and to nobody else


_WORDS: Final[Mapping[type, str]] = {
    bool: "true or false",
    int: "a whole number",
    str: "a text",
    dict: "an object of texts",
    tuple: "a list of texts",
}
_ALLOWED: Final = "allowed"


def whole(default: int, low: int, high: int) -> Any:
    """Declare a field that holds a whole number within bounds."""
    return field(default=default, metadata={_ALLOWED: Allowed(int, default, low, high)})


def flag(default: bool) -> Any:
    """Declare a field that is true or false."""
    return field(default=default, metadata={_ALLOWED: Allowed(bool, default)})


def word(default: str, *one_of: str) -> Any:
    """Declare a field that is one of these words."""
    return field(default=default, metadata={_ALLOWED: Allowed(str, default, one_of=one_of)})


def texts_by_name() -> Any:
    """Declare a field that holds texts by name."""
    return field(default_factory=dict, metadata={_ALLOWED: Allowed(dict, {})})


def texts() -> Any:
    """Declare a field that holds a list of texts."""
    return field(default=(), metadata={_ALLOWED: Allowed(tuple, ())})


@cache
def allowed(cls: type) -> Mapping[str, Allowed]:
    """Return what the fields of a class may be, without those that have a rule of their own."""
    declared = fields(cls)
    return {each.name: each.metadata[_ALLOWED] for each in declared if _ALLOWED in each.metadata}


def require(config: object) -> None:
    """Raise ValueError, naming it, for the first field of another kind or out of bounds."""
    cls: type = type(config)
    for name, one in allowed(cls).items():
        if problem := one.problem(getattr(config, name)):
            raise WrongError(f"{name}: {problem}")


def given(cls: type, said: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields that somebody says, as they are said; `require` looks at them."""
    kinds = {name: one.kind for name, one in allowed(cls).items() if name in said}
    return {
        name: tuple(value)
        if kind is tuple and isinstance(value := said[name], list)
        else said[name]
        for name, kind in kinds.items()
    }


def mended(cls: type, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are stored, each within its bounds; others are dropped."""
    known = allowed(cls)
    return {name: one.nearest(stored[name]) for name, one in known.items() if name in stored}
