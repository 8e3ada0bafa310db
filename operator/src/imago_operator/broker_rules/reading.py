"""How rules of brokers' settings are read: as brokers read them. Made by `make docs`."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KeyValue = bool | int | float | str | tuple[str, ...]

SHOWN: Final = "shown"
"""Form of a text that a broker's registration holds."""
NETWORKS: Final = "networks"
"""Form of a text that lists networks."""
SHOWN_CHARS_MAX: Final = 255
"""The longest name of a host, and more than a zone has."""
LOOPBACK: Final = "loopback"


class BrokerKey(NamedTuple):
    """One key: what it is unless set, whether it may change while a broker runs, what it may be."""

    default: KeyValue
    dynamic: bool
    low: float | None = None
    high: float | None = None
    one_of: tuple[str, ...] = ()
    form: str = ""
    pattern: str = ""
    """Of the whole text, or of each of a list: the short form of what a parser accepts."""
    written: str = ""
    """The same in words, with an example."""

    def problem(self, value: KeyValue) -> str | None:
        """Return what is wrong with a value of the key's type, or None."""
        if isinstance(value, int | float):
            # Written so that what is no number at all (nan) lies within no bounds.
            if self.low is not None and not value >= self.low:
                return f"{value}, must be at least {self.low}"
            if self.high is not None and not value <= self.high:
                return f"{value}, must be at most {self.high}"
        if self.one_of and value not in self.one_of:
            return f"{value!r:.80}, must be one of {', '.join(filter(None, self.one_of))}"
        if isinstance(value, str) and self.form:
            return _FORMS[self.form](value)
        return None

    def pattern_problem(self, value: KeyValue) -> str | None:
        """Return what is wrong with a text that has a parser of its own, or None."""
        texts = value if isinstance(value, tuple) else (value,)
        for text in texts if self.pattern else ():
            if not re.fullmatch(self.pattern, str(text), re.ASCII | re.IGNORECASE):
                return f"{text!r:.80}, must be {self.written}"
        return None


class Holds(NamedTuple):
    """A condition on a key: how its value, and what is added to it, compares with another."""

    key: str
    sign: str
    """==, !=, <=, >=, in, begins, lacks; `is` with `loopback`."""
    value: KeyValue = ""
    of: str = ""
    """A key: its value, in place of `value`."""
    plus: int = 0
    plus_of: str = ""


class Relation(NamedTuple):
    """Where all of `when` hold, all of `must` have to; empty: they never may."""

    when: tuple[Holds, ...]
    must: tuple[Holds, ...]
    says: str
    """What is wrong, and the cure; `{section.key}` is that key's value, `{needed}` the sum that was
    compared."""


def holds(condition: Holds, values: Mapping[str, KeyValue]) -> bool:
    """Return whether a condition holds."""
    left = _left(condition, values)
    right = values[condition.of] if condition.of else condition.value
    if condition.sign in ("<=", ">="):
        low, high = (left, right) if condition.sign == "<=" else (right, left)
        return low <= high  # type: ignore[operator]  # the tables compare numbers
    found = {
        "==": left == right,
        "in": isinstance(right, tuple) and left in right,
        "begins": str(left).startswith(str(right)),
        "lacks": str(right) not in str(left),
        "is": is_loopback(str(left)),
    }
    return not found["=="] if condition.sign == "!=" else found[condition.sign]


def relations_problem(relations: Iterable[Relation], values: Mapping[str, KeyValue]) -> str | None:
    """Return what the first relation that does not hold says, or None."""
    for relation in relations:
        if not all(holds(each, values) for each in relation.when):
            continue
        failed = [each for each in relation.must if not holds(each, values)]
        if failed or not relation.must:
            needed = _left(failed[0], values) if failed else ""
            return _filled(relation.says, {**values, "needed": needed})
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _left(condition: Holds, values: Mapping[str, KeyValue]) -> KeyValue:
    left = values[condition.key]
    more = values[condition.plus_of] if condition.plus_of else condition.plus
    return left + more if more else left  # type: ignore[operator]  # to numbers alone


def _filled(says: str, values: Mapping[str, KeyValue]) -> str:
    return re.sub(r"\{([a-z_.]+)\}", lambda found: str(values[found[1]]), says)


def _shown_problem(text: str) -> str | None:
    if len(text) <= SHOWN_CHARS_MAX and text.isprintable():
        return None
    return (
        f"{text!r:.80}, must be at most {SHOWN_CHARS_MAX} printable characters, without line breaks"
    )


def _networks_problem(text: str) -> str | None:
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            ip_network(part, strict=False)
        except ValueError as error:
            return f"{part!r:.80}: {error}"
    return None


_FORMS: Final = {SHOWN: _shown_problem, NETWORKS: _networks_problem}
