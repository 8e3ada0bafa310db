"""SQL92 expressions and properties made at random, and what the original's filter says of them."""

from __future__ import annotations

import random
import subprocess
from base64 import b64encode
from typing import TYPE_CHECKING

from imago_testing.java.driver import java_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from imago_testing.java.modules import JavaModule

Case = tuple[str, dict[str, str]]

NAMES = ("a", "b", "Price", "TAGS", "_x$1")
VALUES = (
    *("", "0", "1", "-1", "+7", "007", "7.0", "7.5", " 7", "7 ", "2147483647", "2147483648"),
    *("-2147483648", "9223372036854775807", "9223372036854775808", "1e3", "1E400", ".5", "5."),
    *("0x1p3", "NaN", "Infinity", "-Infinity", "-0.0", "0.0", "1d", "2f", "3L", "1_000", "\u0667"),
    *("true", "TRUE", "false", "yes", "abc", "ab", "O'Reilly", "grün", "x y", "null", "%"),
)
STRINGS = (*VALUES, "b", "a", "Reilly", "ü")
NUMBERS = (
    *("0", "1", "7", "7L", "2147483647", "2147483648", "9223372036854775807", "7.0", "7.5"),
    *("5.", ".5", "1e3", "1.5E2", "1000"),
)
ODD = (
    *("'", "--x\n", "/* c */", "(", ")", "%", "=", "IS", "NOT", "AND", "5", "x", "''", "NULL"),
    *("0.0", "1e999", "9223372036854775808", "LIKE", ",", "a.b", "08"),
)


class Expressions:
    """Makes expressions of the whole grammar, most of them good."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def case(self) -> Case:
        """Return an expression and a message's properties."""
        text = self._truth(3)
        if self._random.random() < 0.1:
            words = text.split(" ")
            words.insert(self._random.randrange(len(words) + 1), self._random.choice(ODD))
            text = " ".join(words)
        pick = self._random
        named = pick.sample(NAMES, pick.randrange(len(NAMES) + 1))
        return text, {name: pick.choice(VALUES) for name in named}

    def _truth(self, depth: int) -> str:
        pick = self._random.randrange(16)
        if depth and pick < 3:
            return f"{self._truth(depth - 1)} {self._word('AND')} {self._truth(depth - 1)}"
        if depth and pick < 5:
            return f"{self._truth(depth - 1)} {self._word('OR')} {self._truth(depth - 1)}"
        if depth and pick == 5:
            return f"{self._word('NOT')} {self._operand(depth - 1)}"
        if depth and pick == 6:
            return f"( {self._truth(depth - 1)} )"
        return self._predicate(depth)

    def _predicate(self, depth: int) -> str:
        left, inverted = self._operand(depth), self._maybe("NOT ")
        kind = self._random.randrange(8)
        if kind < 4:
            sign = self._random.choice(("=", "<>", ">", ">=", "<", "<=", "="))
            return f"{left} {sign} {self._operand(depth)}"
        if kind == 4:
            low, high = self._random.choice(NUMBERS), self._random.choice(NUMBERS)
            return f"{left} {inverted}{self._word('BETWEEN')} {low} AND {high}"
        if kind == 5:
            listed = ", ".join(self._string() for _ in range(self._random.randrange(1, 8)))
            return f"{self._random.choice(NAMES)} {inverted}{self._word('IN')} ({listed})"
        if kind == 6:
            return f"{left} {self._word('IS')} {inverted}{self._word('NULL')}"
        word = self._word(self._random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
        return f"{left} {inverted}{word} {self._string()}"

    def _operand(self, depth: int) -> str:
        pick = self._random.randrange(20)
        if pick < 10:
            return self._random.choice(NAMES)
        if pick < 14:
            return self._random.choice(NUMBERS)
        if pick < 16:
            return self._string()
        if pick == 16:
            return self._word(self._random.choice(("TRUE", "FALSE", "NULL")))
        if pick == 17:
            return self._random.choice(("-", "- ", "+")) + self._operand(depth)
        return f"({self._truth(depth - 1)})" if depth else self._random.choice(NAMES)

    def _string(self) -> str:
        return "'" + self._random.choice(STRINGS).replace("'", "''") + "'"

    def _maybe(self, word: str) -> str:
        return word if self._random.random() < 0.4 else ""

    def _word(self, word: str) -> str:
        return self._random.choice((word, word.lower(), word.title()))


def original_answers(module: JavaModule, home: Path, cases: Sequence[Case]) -> list[str]:
    """Return the original's word on each: true, false, null, thrown, or refused and why."""
    command = java_command(module, "dev.imago.interop.filter.Evaluate", home)
    asked = "".join(map(_line, cases))
    done = subprocess.run(command, check=True, capture_output=True, input=asked.encode())
    return done.stdout.decode().splitlines()


def _line(case: Case) -> str:
    expression, properties = case
    words = [expression, *(word for item in properties.items() for word in item)]
    return "\t".join(b64encode(word.encode()).decode() for word in words) + "\n"


def property_string(properties: Mapping[str, str]) -> bytes:
    """Return the properties as a record has them."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()
