"""The grammar: words become a tree.

As in RocketMQ's, `NOT` and the signs belong to the operand right behind them (`NOT a = 1` is
`(NOT a) = 1`), and comparisons of one rank are taken from left to right.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Final

from imago_broker.core.sql92 import tree
from imago_broker.core.sql92.errors import FilterError
from imago_broker.core.sql92.tokens import DECIMAL, END, FLOATING, NAME, STRING, place, tokens
from imago_broker.core.sql92.values import INTEGER_MAX, LONG_MAX, Long

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.core.sql92.tokens import Token

_ORDERS: Final = (">", ">=", "<", "<=")
_SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_LITERALS: Final = {
    "TRUE": tree.Constant(True),
    "FALSE": tree.Constant(False),
    "NULL": tree.Constant(None),
}
_DOUBLE_MIN: Final = 5e-324


def parse(expression: str) -> tuple[tree.Node, int]:
    """Return the tree of an expression and how many operations it has.

    FilterError: it is no expression, is not true or false, or is too large.
    """
    parser = _Parser(expression)
    node = parser.whole()
    return node, parser.operations


class _Parser:
    """Reads from left to right, one word ahead of what it has understood."""

    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._words = list(tokens(expression))
        self._at = 0
        self._depth = 0
        self._depths: dict[int, int] = {}
        """Of the nodes of the tree, by identity: how deep each is."""
        self._kept: list[tree.Node] = []
        """Keeps them alive, so that identities are not used twice."""
        self.operations = 0

    def whole(self) -> tree.Node:
        node = self._either()
        if self._next.kind != END:
            # RocketMQ stops reading here without a word; what it ignores was meant by somebody.
            raise self._unexpected("the end of the expression")
        return self._made(tree.as_truth, node)

    @property
    def _next(self) -> Token:
        return self._words[self._at]

    def _take(self, kind: str) -> Token:
        word = self._next
        if word.kind != kind:
            raise self._unexpected(kind)
        self._at += 1
        return word

    def _took(self, *kinds: str) -> bool:
        """Whether these words stand here; then they are taken."""
        ahead = self._words[self._at : self._at + len(kinds)]
        if tuple(word.kind for word in ahead) != kinds:
            return False
        self._at += len(kinds)
        return True

    def _unexpected(self, expected: str) -> FilterError:
        word = self._next
        met = word.kind if word.kind == END else word.text
        where = place(self._expression, word.at)
        return FilterError(f'Encountered "{met[:64]}" at {where}. Was expecting: {expected}')

    def _made(self, make: Callable[..., tree.Node], *parts: tree.Node) -> tree.Node:
        """Make a node of others, within the limits."""
        node = make(*parts)
        if any(node is part for part in parts):
            return node
        self.operations += 1
        if self.operations > tree.OPERATIONS_MAX:
            raise FilterError(f"the expression has more than {tree.OPERATIONS_MAX} operations")
        depth = 1 + max((self._depths.get(id(part), 0) for part in parts), default=0)
        self._check(depth)
        self._depths[id(node)] = depth
        self._kept.append(node)
        return node

    def _check(self, depth: int) -> None:
        if depth > tree.DEPTH_MAX:
            raise FilterError(f"the expression is nested more than {tree.DEPTH_MAX} deep")

    def _either(self) -> tree.Node:
        return self._joined("OR", self._both)

    def _both(self) -> tree.Node:
        return self._joined("AND", self._equality)

    def _joined(self, word: str, operand: Callable[[], tree.Node]) -> tree.Node:
        terms = [operand()]
        while self._took(word):
            terms.append(operand())
        if len(terms) == 1:
            return terms[0]
        truths = [self._made(tree.as_truth, term) for term in terms]
        return self._made(lambda *parts: tree.Junction(word == "AND", parts), *truths)

    def _equality(self) -> tree.Node:
        left = self._comparison()
        while True:
            if self._took("="):
                left = self._made(tree.equal, left, self._comparison())
            elif self._took("<>"):
                same = self._made(tree.equal, left, self._comparison())
                left = self._made(tree.Inversion, same)
            elif self._took("IS"):
                inverted = self._took("NOT")
                self._take("NULL")
                left = self._made(lambda node: tree.Comparison("==", node, _LITERALS["NULL"]), left)
                if inverted:
                    left = self._made(tree.Inversion, left)
            else:
                return left

    def _comparison(self) -> tree.Node:
        left = self._unary()
        while True:
            word = self._next
            if word.kind in _ORDERS:
                self._at += 1
                right = self._unary()
                left = self._made(partial(tree.ordered, word.kind), left, right)
                continue
            inverted = word.kind == "NOT"
            kind = self._words[self._at + 1].kind if inverted else word.kind
            if kind not in ("BETWEEN", "IN", *_SEARCHES):
                return left
            self._at += 1 + inverted
            left = self._worded(kind, left, inverted=inverted)

    def _worded(self, kind: str, left: tree.Node, *, inverted: bool) -> tree.Node:
        if kind == "BETWEEN":
            low = self._unary()
            self._take("AND")
            make = tree.not_between if inverted else tree.between
            return self._made(make, left, low, self._unary())
        if kind == "IN":
            values = self._strings()
            return self._made(lambda node: tree.within(node, values, inverted=inverted), left)
        text = self._string()
        return self._made(lambda node: tree.Search(kind, node, text, inverted), left)

    def _strings(self) -> list[str]:
        self._take("(")
        values = [self._string()]
        while self._took(","):
            values.append(self._string())
        self._take(")")
        return values

    def _string(self) -> str:
        return self._take(STRING).text[1:-1].replace("''", "'")

    def _unary(self) -> tree.Node:
        word = self._next.kind
        if word not in ("+", "-", "NOT"):
            return self._primary()
        self._at += 1
        operand = self._nested(self._unary)
        if word == "+":
            return operand
        if word == "-":
            return self._made(tree.Negation, operand)
        return self._made(tree.Inversion, self._made(tree.as_truth, operand))

    def _primary(self) -> tree.Node:
        word = self._next
        if word.kind == "(":
            self._at += 1
            node = self._nested(self._either)
            self._take(")")
            return node
        if word.kind == STRING:
            return tree.Constant(self._string())
        if word.kind not in (DECIMAL, FLOATING, NAME, *_LITERALS):
            raise self._unexpected('a property, a literal or "("')
        self._at += 1
        if word.kind == NAME:
            return tree.Property(word.text)
        if word.kind == DECIMAL:
            return tree.Constant(_whole(word.text))
        if word.kind == FLOATING:
            return tree.Constant(_floating(word.text))
        return _LITERALS[word.kind]

    def _nested(self, read: Callable[[], tree.Node]) -> tree.Node:
        self._depth += 1
        self._check(self._depth)
        node = read()
        self._depth -= 1
        return node


def _whole(text: str) -> int:
    digits = text.rstrip("lL")
    number = int(digits) if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1
    if number > LONG_MAX:
        raise FilterError(f'For input string: "{digits[:64]}"')
    return number if number <= INTEGER_MAX else Long(number)


def _floating(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise FilterError(f"{text[:64]} is greater than 1.7976931348623157E308")
    if number < _DOUBLE_MIN:
        raise FilterError(f"{text[:64]} is less than 4.9E-324")
    return number
