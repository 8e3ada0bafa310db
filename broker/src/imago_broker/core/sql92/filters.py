"""Filters ready for use: compiled once an expression, and kept while they are used."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from imago_broker.core.sql92.errors import FilterError, NoValueError
from imago_broker.core.sql92.evaluation import function
from imago_broker.core.sql92.grammar import parse

if TYPE_CHECKING:
    from imago_broker.core.sql92.evaluation import Function

KEPT_CHARS_MAX: Final = 256 << 10
"""Characters of all expressions that are kept compiled: about a hundred times that in memory."""


class PropertyFilter:
    """One compiled expression."""

    __slots__ = ("_function", "cost", "expression")

    def __init__(self, expression: str) -> None:
        """FilterError: the expression is none."""
        node, operations = parse(expression)
        self.expression = expression
        self.cost = 1 + operations
        """How much work a message is, in operations."""
        self._function: Function = function(node)

    def matches(self, properties: bytes) -> bool:
        """Whether a message with this property string is wanted: neither false nor NULL."""
        try:
            return self._function(properties) is True
        except NoValueError:
            return False


class FilterCache:
    """The compiled filters that were used last."""

    def __init__(self, chars_max: int = KEPT_CHARS_MAX) -> None:
        self._chars_max = chars_max
        self._chars = 0
        self._kept: OrderedDict[str, PropertyFilter | FilterError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, expression: str) -> PropertyFilter:
        """Return the filter of an expression. FilterError: it is none."""
        found = self._kept.get(expression)
        if found is None:
            found = self._compiled(expression)
        else:
            self._kept.move_to_end(expression)
        if isinstance(found, FilterError):
            raise FilterError(*found.args)
        return found

    def _compiled(self, expression: str) -> PropertyFilter | FilterError:
        made: PropertyFilter | FilterError
        try:
            made = PropertyFilter(expression)
        except FilterError as error:
            made = error.with_traceback(None)
        self._kept[expression] = made
        self._chars += len(expression)
        while self._chars > self._chars_max and len(self._kept) > 1:
            dropped, _ = self._kept.popitem(last=False)
            self._chars -= len(dropped)
        return made
