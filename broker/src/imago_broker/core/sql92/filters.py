"""Filters ready for use: compiled once an expression, and kept while they are used."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from imago_broker.core.sql92.errors import FilterError, FilterPendingError, NoValueError
from imago_broker.core.sql92.evaluation import function
from imago_broker.core.sql92.grammar import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.core.sql92.evaluation import Function

KEPT_CHARS_MAX: Final = 256 << 10
"""Characters of all expressions that are kept compiled: about a hundred times that in memory."""

TURN_CHARS_MAX: Final = 8192
"""Characters that one turn compiles, unless its first expression is longer: some 16 ms."""


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
    """The compiled filters that were used last; a turn compiles only so many new ones.

    `on_spending` is called at the first one of a turn: whoever hears it calls `renew` in the next.
    None: all may be compiled at once.
    """

    def __init__(
        self,
        on_spending: Callable[[], None] | None = None,
        *,
        chars_max: int = KEPT_CHARS_MAX,
        turn_chars_max: int | None = None,
    ) -> None:
        self._on_spending = on_spending
        self._turn_chars_max = TURN_CHARS_MAX if turn_chars_max is None else turn_chars_max
        self._spent = 0
        self._chars_max = chars_max
        self._chars = 0
        self._kept: OrderedDict[str, PropertyFilter | FilterError] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def renew(self) -> None:
        """Begin a new turn."""
        self._spent = 0

    def get(self, expression: str) -> PropertyFilter:
        """Return the filter of an expression. FilterError: it is none.

        FilterPendingError: it has to be compiled, and this turn has compiled enough.
        """
        found = self._kept.get(expression)
        if found is None:
            self._spend(len(expression))
            found = self._compiled(expression)
        else:
            self._kept.move_to_end(expression)
        if isinstance(found, FilterError):
            raise FilterError(*found.args)
        return found

    def _spend(self, chars: int) -> None:
        if self._on_spending is None:
            return
        if not self._spent:
            self._on_spending()
        elif self._spent + chars > self._turn_chars_max:
            raise FilterPendingError
        self._spent += max(1, chars)

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
