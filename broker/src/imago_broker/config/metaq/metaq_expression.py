"""Values of MetaQ's ``server.ini``: arithmetic and truth, such as ``1024*1024`` or ``1>0``.

A small recursive-descent reader of its own: a value comes from a file that a person edits, and
nothing that evaluates Python may read it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imago_broker.config.settings import ConfigError
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable

LENGTH_MAX = 200
DEPTH_MAX = 20

_TOKEN = re.compile(r"\s*(\d+\.\d+|\d+|true|false|[<>=!]=|&&|\|\||[-+*/%()<>!])")
_LEVELS: tuple[dict[str, Callable[[float, float], float]], ...] = (
    {"||": lambda a, b: bool(a) or bool(b)},
    {"&&": lambda a, b: bool(a) and bool(b)},
    {"==": lambda a, b: a == b, "!=": lambda a, b: a != b},
    {
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
        "<=": lambda a, b: a <= b,
        ">=": lambda a, b: a >= b,
    },
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: a // b, "%": lambda a, b: a % b},
)
"""Operators from the loosest to the tightest."""


def integer(key: str, text: str, *, bits: int = 32) -> int:
    """Return a numeric value, cut to `bits` as a Java cast does."""
    value = int(evaluate(key, text)) & ((1 << bits) - 1)
    return value - (1 << bits) if value >> (bits - 1) else value


def truth(key: str, text: str) -> bool:
    """Return a boolean value; a number is none."""
    value = evaluate(key, text)
    if not isinstance(value, bool):
        raise ConfigError(f"{key}: {text!r}, must be true or false")
    return value


def evaluate(key: str, text: str) -> float:
    """Return what the expression stands for; `ConfigError` names the key it was given for."""
    if len(text) > LENGTH_MAX:
        raise ConfigError(f"{key}: {len(text)} characters, at most {LENGTH_MAX}")
    try:
        return _ExpressionReader(text).whole()
    except (ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"{key}: {text!r} is no arithmetic ({error})") from error


class _ExpressionReader:
    def __init__(self, text: str) -> None:
        self._words: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise WrongError(f"at {text[at:]!r}")
            self._words.append(match.group(1))
            at = match.end()
        self._depth = 0

    def whole(self) -> float:
        value = self._level(0)
        if self._words:
            raise WrongError(f"at {self._words[0]!r}")
        return value

    def _level(self, level: int) -> float:
        if level == len(_LEVELS):
            return self._operand()
        value = self._level(level + 1)
        while self._words and self._words[0] in _LEVELS[level]:
            operator = _LEVELS[level][self._words.pop(0)]
            value = operator(value, self._level(level + 1))
        return value

    def _operand(self) -> float:
        if not self._words:
            raise WrongError("it ends too early")
        word = self._words.pop(0)
        if word in ("-", "!", "("):
            return self._nested(word)
        if word in ("true", "false"):
            return word == "true"
        if not word[0].isdigit():
            raise WrongError(f"at {word!r}")
        return float(word) if "." in word else int(word)

    def _nested(self, word: str) -> float:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise WrongError("it is nested too deeply")
        if word == "(":
            value = self._level(0)
            if not self._words or self._words.pop(0) != ")":
                raise WrongError("a bracket is not closed")
        else:
            operand = self._operand()
            value = -operand if word == "-" else not operand
        self._depth -= 1
        return value
