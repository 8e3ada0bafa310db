"""The words of a SQL92 expression, each with where it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_broker.core.sql92.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPRESSION_CHARS_MAX: Final = 8192
"""Longest expression."""

END: Final = "<EOF>"
STRING: Final = "<STRING_LITERAL>"
DECIMAL: Final = "<DECIMAL_LITERAL>"
FLOATING: Final = "<FLOATING_POINT_LITERAL>"
NAME: Final = "<ID>"
KEYWORDS: Final = frozenset(
    {"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"}
    | {"CONTAINS", "STARTSWITH", "ENDSWITH"}
)

_WORD: Final = re.compile(
    r"""
    (?P<blank>[ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/ )
  | (?P<FLOATING>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?
                | [0-9]+[eE][+-]?[0-9]+ )
  | (?P<DECIMAL>0 | [1-9][0-9]*[lL]?)
  | (?P<STRING>'(?:''|[^'])*')
  | (?P<NAME>[A-Za-z_$][A-Za-z0-9_$]*)
  | (?P<sign><>|>=|<=|[=<>(),+-])
    """,
    re.VERBOSE,
)
_KINDS: Final = {"FLOATING": FLOATING, "DECIMAL": DECIMAL, "STRING": STRING}


@dataclass(frozen=True, slots=True)
class Token:
    """One word: a keyword or sign is its own kind, in capitals."""

    kind: str
    text: str
    at: int
    """Characters of the expression before it."""


def tokens(expression: str) -> Iterator[Token]:
    """Return the words of an expression, then `END`. FilterError: it holds what is no word."""
    if len(expression) > EXPRESSION_CHARS_MAX:
        raise FilterError(
            f"the expression has {len(expression)} characters, at most {EXPRESSION_CHARS_MAX}"
        )
    at = 0
    while at < len(expression):
        match = _WORD.match(expression, at)
        if match is None:
            raise FilterError(
                f"Lexical error at {place(expression, at)}. Encountered: {expression[at]!r}"
            )
        group, text = match.lastgroup, match[0]
        if group == "NAME":
            keyword = text.upper()
            yield Token(keyword if keyword in KEYWORDS else NAME, text, at)
        elif group != "blank":
            yield Token(_KINDS.get(group or "", text), text, at)
        at = match.end()
    yield Token(END, "", at)


def place(expression: str, at: int) -> str:
    """Return line and column of a character, for people."""
    before = expression[:at]
    return f"line {before.count(chr(10)) + 1}, column {at - before.rfind(chr(10))}"
