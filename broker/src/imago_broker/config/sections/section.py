"""How one key of the configuration is declared and checked."""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Any, Final

from imago_broker.config.key_rules import BrokerKey
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["LEVELS", "ConfigError", "Scalar", "Value", "check", "is_pattern", "setting"]


class ConfigError(WrongError):
    """The configuration is wrong: the message names the key, the reason and the cure."""


Scalar = bool | int | float | str
RULE: Final = "rule"
"""What a key may say, among its field's metadata."""
Value = Scalar | tuple[str, ...]


def setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    one_of: tuple[str, ...] = (),
    form: str = "",
    pattern: str = "",
    written: str = "",
    dynamic: bool = False,
) -> Any:
    """Declare one key: its default, its meaning with unit, its range, whether it is dynamic.

    `pattern`: what the operator, which has no parser of ours, asks of a text that we parse, and
    `written`: how that is said to people.
    """
    assert bool(pattern) == bool(written), "what a text must look like is said in words, too"
    rule = BrokerKey(default, dynamic, low, high, one_of, form, pattern, written)
    metadata = {"doc": doc, "dynamic": dynamic, RULE: rule}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def check(section: object, *, parsed: Collection[str] = ()) -> None:
    """Raise ValueError, naming the key, for a value outside its range.

    `parsed`: keys whose texts somebody reads who can say more of what is wrong.
    """
    for key in fields(section):  # type: ignore[arg-type]  # every caller passes a dataclass
        rule, value = key.metadata[RULE], getattr(section, key.name)
        problem = rule.problem(value)
        if key.name not in parsed:
            problem = problem or rule.pattern_problem(value)
        if problem is not None:
            raise WrongError(f"{key.name}: {problem}")


LEVELS = ("leader", "leader-fsync", "replicated", "replicated-fsync")

PATTERN_SIGN = "*"
"""Stands for anything in the name of a topic that MetaQ's puts may make; no topic has it."""


def is_pattern(name: str) -> bool:
    """Whether a declared name stands for many topics."""
    return PATTERN_SIGN in name


FILTER_PREFIX = "group."
"""Of a topic's keys that say what a group of MetaQ's consumers gets of it."""
