"""What an answer about the whole cluster lacks: shards that nobody leads now."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlencode

from imago_cli.connect import nearest
from imago_cli.exits import CommandError, Exit
from imago_cli.line.declared import Option
from imago_cli.output import say
from imago_cli.times import second

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from imago_client import MissingShard
    from imago_client.blocking import Client

Partial = Annotated[
    bool, Option("--partial", help="Exit with 0 though shards are away; they are still said.")
]


PAGE_LIMIT: Final = 1000


def all_pages(
    ask: Callable[[str], Mapping[str, Any]], path: str, query: Mapping[str, str] | None = None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the items of all pages of a list, and whatever any of the pages lacks."""
    found: list[dict[str, Any]] = []
    pages: list[Mapping[str, Any]] = []
    start: str | None = ""
    while start is not None:
        page = ask(f"{path}?{urlencode({**(query or {}), 'limit': PAGE_LIMIT, 'next': start})}")
        found += page["items"]
        pages.append({"missing": page.get("missing", ())})
        start = page["next"] or None
    return found, merged(pages)


def merged(answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return whatever any of these answers lacks, once."""
    lacks = (one for answer in answers for one in answer.get("missing", ()))
    return list({(one["shard"], one["why"]): one for one in lacks}.values())


def told(missing: Sequence[MissingShard]) -> list[dict[str, object]]:
    """Return them as JSON has them."""
    return [{"shard": one.shard, "since": one.since_ms, "why": one.why} for one in missing]


def end_with(missing: Sequence[MissingShard], *, partial: bool, lacks: str = "not shown") -> None:
    """Say which shards are away, and end with exit code 1 unless that is accepted.

    `lacks`: what became, or did not become, of that which they hold.
    """
    end_with_told(told(missing), partial=partial, lacks=lacks)


def end_with_told(
    missing: Sequence[Mapping[str, Any]], *, partial: bool, lacks: str = "not shown"
) -> None:
    """The same of shards as the admin interface tells of them."""
    for one in missing:
        since = f" since {second(one['since'])}" if one["since"] else ""
        say(f"missing: {one['shard']} is away{since}, what it holds is {lacks}: {one['why']}")
    if missing and not partial:
        sys.exit(Exit.FAILED)


@contextmanager
def apart_from(missing: Sequence[MissingShard]) -> Iterator[None]:
    """Let a change be made on the others alone: whoever does so says then which are missing."""
    from imago_client.errors import HalfDoneError

    try:
        yield
    except HalfDoneError as error:
        if not error.away or not {*error.away} <= {one.shard for one in missing}:
            raise


def check_exists(client: Client, group: str, otherwise: str = "imago group list") -> None:
    """Raise where there is no such group, or where shards are away that may know it.

    Who may see it need not see the others.
    """
    from imago_client.errors import BrokerError

    if client.admin.has_group(group):
        return
    end_with(client.admin.missing_shards(), partial=False, lacks="not searched")
    try:
        cure = nearest(group, client.admin.groups())
    except BrokerError:  # a cure is no reason to be refused
        cure = ""
    raise CommandError(f"there is no group {group}", cure=cure or otherwise)
