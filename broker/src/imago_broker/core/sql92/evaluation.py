"""A tree becomes a function of a message's property string: built once, called a message.

Its value is true, false or None for NULL, with SQL's rules for all three; what RocketMQ's own
evaluation throws is `NoValueError` here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from imago_broker.core.sql92 import tree
from imago_broker.core.sql92.values import (
    Long,
    Value,
    compare,
    compare_doubles,
    to_double,
    to_integer,
    to_long,
)
from imago_wire.record_format.properties import NAME_END, VALUE_END

if TYPE_CHECKING:
    from typing import Any

Function = Callable[[bytes], Value | None]
Truth = Callable[[bytes], bool | None]

_ORDERS: Final[dict[str, Callable[[int], bool]]] = {
    "==": lambda order: order == 0,
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


def function(node: tree.Node) -> Function:
    """Return the function that evaluates a tree."""
    made: Function = _MAKERS[type(node)](node)
    return made


def _constant(node: tree.Constant) -> Function:
    value = node.value
    return lambda _: value


def _property(node: tree.Property) -> Callable[[bytes], str | None]:
    name = node.name.encode()
    marker = VALUE_END + name + NAME_END
    first, size = marker[1:], len(marker)

    def read(data: bytes) -> str | None:
        at = data.rfind(marker)
        if at >= 0:
            at += size
        elif data.startswith(first):
            at = size - 1
        else:
            return None
        end = data.find(VALUE_END, at)
        value = data[at:] if end < 0 else data[at:end]
        # RocketMQ's decoder drops a property without a value, so one before it counts.
        return value.decode("utf-8", "replace") if value else _one_before(data, node.name)

    return read


def _one_before(data: bytes, name: str) -> str | None:
    values = [
        value
        for part in data.split(VALUE_END)
        for found, _, value in [part.partition(NAME_END)]
        if found == name.encode() and value
    ]
    return values[-1].decode("utf-8", "replace") if values else None


def _negation(node: tree.Negation) -> Function:
    operand = function(node.operand)

    def negated(data: bytes) -> Value | None:
        value = operand(data)
        if value is None or isinstance(value, (str, bool)):
            return None
        return Long(-value) if isinstance(value, Long) else -value

    return negated


def _junction(node: tree.Junction) -> Truth:
    terms = tuple(map(function, node.terms))
    decides = not node.every

    def joined(data: bytes) -> bool | None:
        unknown = False
        for term in terms:
            value = term(data)
            if value is decides:
                return decides
            if value is None:
                unknown = True
        return None if unknown else not decides

    return joined


def _inversion(node: tree.Inversion) -> Truth:
    operand = function(node.operand)

    def inverted(data: bytes) -> bool | None:
        value = operand(data)
        return None if value is None else not value

    return inverted


def _cast(node: tree.Cast) -> Truth:
    operand = _property(node.operand)
    return lambda data: None if operand(data) is None else False


def _comparison(node: tree.Comparison) -> Truth:
    if isinstance(node.left, tree.Property) and isinstance(node.right, tree.Constant):
        simple = _property_against(_property(node.left), node.sign, node.right.value)
        if simple is not None:
            return simple
    left, right = function(node.left), function(node.right)
    if node.sign == "==":
        return _equality(left, right)
    holds = _ORDERS[node.sign]

    def compared(data: bytes) -> bool | None:
        one = left(data)
        if one is None:
            return None
        other = right(data)
        if other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return holds(compare_doubles(to_double(one), to_double(other)))
        return holds(compare(one, other))

    return compared


def _equality(left: Function, right: Function) -> Truth:
    def equal(data: bytes) -> bool | None:
        one, other = left(data), right(data)
        if one is None:
            return True if other is None else None
        if other is None:
            return False
        return compare(one, other) == 0

    return equal


def _property_against(
    read: Callable[[bytes], str | None], sign: str, value: Value | None
) -> Truth | None:
    """Return the common case, a property against a literal, with one call less for each message."""
    if value is None:
        return lambda data: read(data) is None
    if isinstance(value, str):
        return lambda data: None if (one := read(data)) is None else one == value
    if isinstance(value, bool):
        return None
    if isinstance(value, float):
        return _double_against(read, _ORDERS[sign], value)
    convert: Callable[[str], int] = to_long if isinstance(value, Long) else to_integer
    return _whole_against(read, convert, sign, int(value))


def _double_against(
    read: Callable[[bytes], str | None], holds: Callable[[int], bool], value: float
) -> Truth:
    return lambda data: (
        None if (one := read(data)) is None else holds(compare_doubles(to_double(one), value))
    )


def _whole_against(
    read: Callable[[bytes], str | None], convert: Callable[[str], int], sign: str, value: int
) -> Truth:
    known: dict[str, Truth] = {
        "==": lambda data: None if (one := read(data)) is None else convert(one) == value,
        ">": lambda data: None if (one := read(data)) is None else convert(one) > value,
        ">=": lambda data: None if (one := read(data)) is None else convert(one) >= value,
        "<": lambda data: None if (one := read(data)) is None else convert(one) < value,
        "<=": lambda data: None if (one := read(data)) is None else convert(one) <= value,
    }
    return known[sign]


def _within(node: tree.Within) -> Truth:
    read, values, inverted = _property(node.operand), node.values, node.inverted
    return lambda data: None if (one := read(data)) is None else (one in values) is not inverted


def _search(node: tree.Search) -> Truth:
    operand, text, inverted = function(node.operand), node.text, node.inverted
    found: dict[str, Callable[[str], bool]] = {
        "CONTAINS": lambda value: text in value,
        "STARTSWITH": lambda value: value.startswith(text),
        "ENDSWITH": lambda value: value.endswith(text),
    }
    holds = found[node.word]

    def searched(data: bytes) -> bool:
        value = operand(data) if text else None
        return isinstance(value, str) and holds(value) is not inverted

    return searched


_MAKERS: Final[dict[type, Callable[[Any], Any]]] = {
    tree.Constant: _constant,
    tree.Property: _property,
    tree.Negation: _negation,
    tree.Junction: _junction,
    tree.Inversion: _inversion,
    tree.Cast: _cast,
    tree.Comparison: _comparison,
    tree.Within: _within,
    tree.Search: _search,
}
