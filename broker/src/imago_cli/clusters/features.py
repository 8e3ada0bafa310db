"""`imago cluster features`: what the cluster may use, and its rise once all understand it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.connect import AsJson, Yes, confirm
from imago_cli.exits import Exit
from imago_cli.line.declared import Option
from imago_cli.output import print_json, print_line, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PATH = "/admin/v1/features"


def features(
    finalize: Annotated[
        bool, Option("--finalize", help="Raise it to what all members understand; for good.")
    ] = False,
    level: Annotated[
        int | None, Option("--level", metavar="N", help="Raise it to this level and no further.")
    ] = None,
    without_absent: Annotated[
        bool,
        Option("--without-absent", help="Whatever members understand that are not there."),
    ] = False,
    admin: Admin = DEFAULT_ADMIN,
    partial: Annotated[
        bool, Option("--partial", help="Exit with 0 though brokers are away; they are still said.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show the cluster's feature level; with --finalize raise it.

    Until it is raised, brokers of the version before can come back. From then on they refuse to
    start.
    """
    said = ask(admin, PATH)
    if finalize or level is not None:
        wanted = said["highest"] if level is None else level
        if wanted != said["level"]:
            confirm(
                f"Raise feature level {said['level']} to {wanted}? Brokers that do not understand"
                " it will not start any more.",
                yes=yes,
            )
            body = {"level": wanted, "withoutAbsent": without_absent}
            said = ask(admin, PATH, body)
    if as_json:
        print_json(said)
    else:
        for line in lines(said):
            print_line(line)
    if absent := said["absent"]:
        say(f"missing: {', '.join(absent)}: nobody knows what they understand")
        if not (partial or without_absent):
            sys.exit(Exit.FAILED)


def lines(said: Mapping[str, Any]) -> Iterator[str]:
    """Say where the cluster stands."""
    yield f"feature level {said['level']}"
    if said["highest"] > said["level"]:
        yield (
            f"all brokers understand {said['highest']}:"
            " `imago cluster features --finalize` switches it on, for good"
        )
        yield from (f"  {news}" for news in said["switchesOn"])
    if said["behind"]:
        yield f"level {said['newest']} waits for {', '.join(said['behind'])}: upgrade them"


def remark(cluster: Mapping[str, Any]) -> str:
    """Return the line of `imago cluster status`; empty: nothing is to be done."""
    level = cluster.get("featureLevel")
    members = [member for shard in cluster["shards"] for member in shard["members"]]
    least = min((member.get("featureLevel", 1) for member in members), default=1)
    if level is None or least <= level:
        return ""
    return f"feature level {level}, all brokers understand {least}: imago cluster features"
