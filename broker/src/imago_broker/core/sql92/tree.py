"""What an expression means: a tree, whose nodes refuse operands that RocketMQ refuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_broker.core.sql92.errors import FilterError, NoValueError
from imago_broker.core.sql92.values import compare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.core.sql92.values import Value

DEPTH_MAX: Final = 64
"""How deep an expression may be nested: evaluation and parser go that deep."""
OPERATIONS_MAX: Final = 512
"""How many comparisons and other operations one expression may have."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; None is NULL."""

    value: Value | None

    def __str__(self) -> str:
        if self.value is None:
            return "NULL"
        if isinstance(self.value, bool):
            return "TRUE" if self.value else "FALSE"
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message, a string or NULL."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Negation:
    """Minus a number; of anything else NULL."""

    operand: Node

    def __str__(self) -> str:
        return f"(- {self.operand})"


@dataclass(frozen=True, slots=True)
class Junction:
    """AND (`every`) or OR of truth values."""

    every: bool
    terms: tuple[Node, ...]

    def __str__(self) -> str:
        return "(" + (" && " if self.every else " || ").join(map(str, self.terms)) + ")"


@dataclass(frozen=True, slots=True)
class Inversion:
    """NOT."""

    operand: Node

    def __str__(self) -> str:
        return f"(NOT {self.operand})"


@dataclass(frozen=True, slots=True)
class Cast:
    """A property where a truth value is wanted: a string is not true."""

    operand: Property

    def __str__(self) -> str:
        return self.operand.name


@dataclass(frozen=True, slots=True)
class Comparison:
    """`==`, `>`, `>=`, `<` or `<=`."""

    sign: str
    left: Node
    right: Node

    def __str__(self) -> str:
        return f"({self.left} {self.sign} {self.right})"


@dataclass(frozen=True, slots=True)
class Within:
    """IN and NOT IN."""

    operand: Property
    values: frozenset[str]
    inverted: bool

    def __str__(self) -> str:
        word = "NOT IN" if self.inverted else "IN"
        return f"{self.operand} {word} ( {', '.join(sorted(self.values))} )"


@dataclass(frozen=True, slots=True)
class Search:
    """CONTAINS, STARTSWITH, ENDSWITH and their NOT forms."""

    word: str
    operand: Node
    text: str
    inverted: bool

    def __str__(self) -> str:
        return f"({self.word} {self.operand})"


Node = Constant | Property | Negation | Junction | Inversion | Cast | Comparison | Within | Search
TRUTHS: Final = (Junction, Inversion, Cast, Comparison, Within, Search)
"""Nodes whose value is true, false or NULL."""


def is_truth(node: Node) -> bool:
    """Whether a node's value is true, false or NULL by its form."""
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, TRUTHS)


def as_truth(node: Node) -> Node:
    """Return a node where a truth value is wanted. FilterError: it cannot be one."""
    if is_truth(node):
        return node
    if isinstance(node, Property):
        return Cast(node)
    raise FilterError(f"Expression will not result in a boolean value: {node}")


def equal(left: Node, right: Node) -> Node:
    """Return `left = right`."""
    for side in (left, right):
        if isinstance(side, Constant) and side.value is None:
            raise FilterError(f"'{side}' cannot be compared.")
    literals = isinstance(left, Constant) and isinstance(right, Constant)
    if literals and is_truth(left) and not is_truth(right):
        raise FilterError(f"'{left}' cannot be compared with '{right}'")
    return Comparison("==", left, right)


def ordered(sign: str, left: Node, right: Node) -> Node:
    """Return `left < right` or one of its kind: of numbers and properties."""
    for side in (left, right):
        number = isinstance(side, Constant) and _is_number(side.value)
        if not number and (isinstance(side, Constant) or is_truth(side)):
            raise FilterError(f"Value '{side}' cannot be compared.")
    return Comparison(sign, left, right)


def between(operand: Node, low: Node, high: Node) -> Node:
    """Return `operand BETWEEN low AND high`, whose border literals must be in order."""
    if isinstance(low, Constant) and isinstance(high, Constant):
        if low.value is None or high.value is None:
            raise FilterError("Illegal values of between, values can not be null!")
        try:
            wrong = compare(high.value, low.value) < 0
        except NoValueError:
            raise FilterError("Illegal values of between, values must be numbers!") from None
        if wrong:
            raise FilterError(
                f"Illegal values of between, left value({low.value}) must less than or equal to "
                f"right value({high.value})"
            )
    return Junction(True, (ordered(">=", operand, low), ordered("<=", operand, high)))


def not_between(operand: Node, low: Node, high: Node) -> Node:
    """Return `operand NOT BETWEEN low AND high`."""
    return Junction(False, (ordered("<", operand, low), ordered(">", operand, high)))


def within(operand: Node, values: Sequence[str], *, inverted: bool) -> Node:
    """Return `operand IN (values)`: only a property can be."""
    if not isinstance(operand, Property):
        raise FilterError(f"Expected a property for In expression, got: {operand}")
    return Within(operand, frozenset(values), inverted)


def _is_number(value: Value | None) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
