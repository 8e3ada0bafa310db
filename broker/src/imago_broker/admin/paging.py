"""Pages of a sorted list: `limit` items a page, `next` names where the following one starts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from imago_broker.admin.errors import bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

LIMIT, LIMIT_MAX = 100, 1000
NAME = "name"


_WHOLE = re.compile("-?[0-9]{1,19}", re.ASCII)


def whole_of(text: str) -> int | None:
    """Return the whole number that a text is, in digits and of at most 64 bits; None: it is none.

    Python's own reading also takes `1_000`, digits of other scripts, and fails in words of its own.
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def number(query: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    """Return a whole number of the query string, within its range."""
    text = query.get(name)
    if text is None:
        return default
    value = whole_of(text)
    if value is None:
        raise bad_request(f"{name}={text!r:.60} is not a whole number.", "Send digits.")
    if not low <= value <= high:
        raise bad_request(f"{name}={value} is out of range.", f"Send {low} to {high}.")
    return value


def whether(query: Mapping[str, str], name: str) -> bool:
    """Return whether the query string says yes; what it does not say is no."""
    text = query.get(name, "false")
    if text not in ("true", "false"):
        raise bad_request(f"{name}={text!r:.60} is neither.", "Send true or false.")
    return text == "true"


def page(
    names: Sequence[str],
    query: Mapping[str, str],
    view: Callable[[str], Any],
    sorts: Mapping[str, Callable[[str], Any]] | None = None,
) -> dict[str, Any]:
    """Return one page of `names` (sorted), each shown by `view`.

    `?contains=` keeps the names with that text in them, whatever their case; `?sort=` orders by the
    name or by one of `sorts`, with a `-` the other way round. Either adds `total`. An order other
    than by name counts from `next` on: what changes meanwhile may come twice, or be left out.
    """
    limit = number(query, "limit", LIMIT, low=1, high=LIMIT_MAX)
    if "contains" in query:
        part = query["contains"].casefold()
        names = [name for name in names if part in name.casefold()]
    total = {"total": len(names)} if "contains" in query or "sort" in query else {}
    order = query.get("sort", NAME)
    if order == NAME:
        start = query.get("next", "")
        wanted = [name for name in names if name >= start]
        following = wanted[limit] if len(wanted) > limit else None
        return {"items": [view(name) for name in wanted[:limit]], "next": following} | total
    ordered = _ordered(names, order, sorts or {})
    first = number(query, "next", 0, low=0, high=len(ordered))
    last = first + limit
    shown = [view(name) for name in ordered[first:last]]
    return {"items": shown, "next": str(last) if last < len(ordered) else None} | total


def _ordered(
    names: Sequence[str], order: str, sorts: Mapping[str, Callable[[str], Any]]
) -> list[str]:
    """Return the names by what `order` says of each; those that are alike by name."""
    what, descending = order.removeprefix("-"), order.startswith("-")
    if what == NAME:
        return sorted(names, reverse=descending)
    if what not in sorts:
        known = ", ".join((NAME, *sorts))
        raise bad_request(
            f"sort={order!r:.60} is no order of this list.", f"Send one of {known}, or - before it."
        )
    return sorted(sorted(names), key=sorts[what], reverse=descending)
