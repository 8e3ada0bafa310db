"""What an answer about the whole cluster lacks: shards that nobody leads now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from imago_cli.exits import Exit
from imago_cli.output import say
from imago_cli.times import second

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_client import MissingShard

Partial = Annotated[
    bool, typer.Option("--partial", help="Exit with 0 though shards are away; they are still said.")
]


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
        raise typer.Exit(Exit.FAILED)
