"""Pages of a sorted list: `limit` items a page, `next` names where the following one starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin.errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LIMIT, LIMIT_MAX = 100, 1000


def number(query: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    """Return a whole number of the query string, within its range."""
    text = query.get(name)
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        raise bad_request(f"{name}={text!r:.60} is not a whole number.", "Send digits.") from None
    if not low <= value <= high:
        raise bad_request(f"{name}={value} is out of range.", f"Send {low} to {high}.")
    return value


def page(
    names: Sequence[str], query: Mapping[str, str], view: Callable[[str], Any]
) -> dict[str, Any]:
    """Return one page of `names` (sorted), each shown by `view`."""
    limit = number(query, "limit", LIMIT, low=1, high=LIMIT_MAX)
    start = query.get("next", "")
    wanted = [name for name in names if name >= start]
    following = wanted[limit] if len(wanted) > limit else None
    return {"items": [view(name) for name in wanted[:limit]], "next": following}
