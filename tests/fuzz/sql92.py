"""SQL92 filters: any text is a filter or a FilterError, and a filter takes any properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.sql92.errors import FilterError
from imago_broker.core.sql92.filters import PropertyFilter
from imago_testing.interop.sql92 import Expressions

if TYPE_CHECKING:
    from collections.abc import Hashable

_MADE = Expressions(1)
SEEDS = {"sql92": [_MADE.case()[0].encode() + b"\0a\x017\x02b\x01x\x02" for _ in range(50)]}


def sql92(data: bytes) -> Hashable:
    """The expression, then a zero byte, then a property string."""
    text, _, properties = data.partition(b"\0")
    try:
        found = PropertyFilter(text.decode("utf-8", "replace"))
    except FilterError as error:
        return str(error)[:20]
    return found.cost, found.matches(properties)


TARGETS = {"sql92": sql92}
