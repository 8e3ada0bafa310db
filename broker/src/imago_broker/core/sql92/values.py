"""Values with Java's types: a filter's numbers are Integer, Long or Double, its properties strings.

`int` stands for Integer, `Long` for Long, `float` for Double, `bool` for Boolean. A property is
converted to the type of what it is compared with, by that type's own rules: "7.0" is a Double and
no Integer, and an Integer has 32 bits.
"""

from __future__ import annotations

import math
import re
from typing import Final

from imago_broker.core.sql92.errors import NoValueError

INTEGER_MIN, INTEGER_MAX = -(1 << 31), (1 << 31) - 1
LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
DIGITS_MAX: Final = 64
"""Longest number that is read: leading zeros are digits too."""

_DOUBLE: Final = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<word>NaN|Infinity)"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_BLANK: Final = "".join(map(chr, range(33)))


class Long(int):
    """A whole number beyond 32 bits, or written where Java has one."""

    __slots__ = ()


Value = str | int | float
"""`bool` and `Long` are kinds of `int`."""


def to_integer(text: str) -> int:
    """Return what Java's Integer.valueOf returns. NoValueError: it is none."""
    number = _whole(text)
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise NoValueError
    return number


def to_long(text: str) -> Long:
    """Return what Java's Long.valueOf returns. NoValueError: it is none."""
    number = _whole(text)
    if not LONG_MIN <= number <= LONG_MAX:
        raise NoValueError
    return Long(number)


def _whole(text: str) -> int:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isdecimal() or len(digits) > DIGITS_MAX or max(digits) > "\uffff":
        raise NoValueError
    return -int(digits) if text[0] == "-" else int(digits)


def to_double(text: str) -> float:
    """Return what Java's Double.valueOf returns. NoValueError: it is none."""
    match = _DOUBLE.fullmatch(text.strip(_BLANK))
    if match is None:
        raise NoValueError
    if match["word"]:
        size = math.nan if match["word"] == "NaN" else math.inf
    elif match["hex"]:
        try:
            size = float.fromhex(match["hex"])
        except OverflowError:
            size = math.inf
    else:
        size = float(match["decimal"])
    return -size if match["sign"] == "-" else size


def to_boolean(text: str) -> bool:
    """Return what Java's Boolean.valueOf returns: everything but `true` is false."""
    return text.lower() == "true"


def compare_doubles(left: float, right: float) -> int:
    """Return -1, 0 or 1 in Java's order: -0.0 is below 0.0, NaN equals itself, above all."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key, right_key = _rank(left), _rank(right)
    return (left_key > right_key) - (left_key < right_key)


def _rank(number: float) -> int:
    if math.isnan(number):
        return 2
    return 0 if number == 0 and math.copysign(1, number) < 0 else 1


def compare(left: Value, right: Value) -> int:
    """Return the order of two values, negative for ones of types that have none in common.

    NoValueError: one of them is a string that has to be a number and is none. Two strings are
    only equal or not: what orders them converts them first.
    """
    of_left, of_right = type(left), type(right)
    if of_left is of_right:
        return _of_one_type(left, right)
    if of_left is bool:
        if of_right is str:
            raise NoValueError  # the original casts the Boolean to a String
        return -1
    if of_right is bool:
        return _of_one_type(to_boolean(left), right) if isinstance(left, str) else -1
    if isinstance(left, str):
        return _of_numbers(_AS[of_right](left), right)
    if isinstance(right, str):
        return _of_numbers(left, _AS[of_left](right))
    return _of_numbers(left, right)


_AS: Final = {int: to_integer, Long: to_long, float: to_double}


def _of_one_type(left: Value, right: Value) -> int:
    if isinstance(left, str) or isinstance(right, str):
        return 0 if left == right else 1
    return _of_numbers(left, right)


def _of_numbers(left: Value, right: Value) -> int:
    assert not isinstance(left, str)
    assert not isinstance(right, str)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)
