"""`imago metaq show-offset`, `copy-offsets`: what MetaQ's consumers keep in ZooKeeper."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from imago_cli.admin_http import DEFAULT_ADMIN, Admin, ask
from imago_cli.connect import AsJson  # noqa: TC001  typer reads the annotation
from imago_cli.exits import CommandError
from imago_cli.output import counted, print_json, print_line, say

Topic = Annotated[str, typer.Argument(help="The topic.")]


def attach(group: typer.Typer) -> None:
    """Add the commands."""
    group.command("show-offset")(show_offset)
    group.command("copy-offsets")(copy_offsets)


def show_offset(
    topic: Topic,
    group: Annotated[str, typer.Argument(help="The group.")],
    partition: Annotated[str, typer.Argument(help="<broker id>-<partition>.")],
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Print where a group is in a partition, as its consumer has written it."""
    found = ask(admin, "/admin/v1/metaq/tree")
    path = f"{found['root']}/consumers/{group}/offsets/{topic}/{partition}"
    records = [node["data"] for node in found["nodes"] if node["path"] == path]
    if not records:
        raise CommandError(
            f"{group} has no offset of {topic} in {partition}",
            cure="imago metaq zk dump /offsets/ shows those that there are",
        )
    # The message id may be negative; a record from before 1.4.0 is the offset alone.
    message_id, dash, offset = records[0].rpartition("-")
    shown = {"record": records[0], "offset": int(offset)}
    if dash and message_id:
        shown["messageId"] = int(message_id)
    if as_json:
        print_json(shown)
    else:
        print_line(" ".join(f"{key} {value}" for key, value in shown.items()))


def copy_offsets(
    topic: Topic,
    source: Annotated[int, typer.Option("--src", min=0, help="Broker id that has them.")],
    target: Annotated[int, typer.Option("--target", min=0, help="Broker id that gets them.")],
    start: Annotated[int, typer.Option("--start", min=0, help="First partition of the source.")],
    end: Annotated[int, typer.Option("--end", min=0, help="Last partition of the source.")],
    target_start: Annotated[
        int, typer.Option("--target-start", min=0, help="First partition of the target.")
    ] = 0,
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Copy all groups' offsets of moved partitions; what the target has already stays."""
    body = {
        "source": source,
        "target": target,
        "first": start,
        "last": end,
        "targetFirst": target_start,
    }
    found = ask(admin, f"/admin/v1/metaq/topics/{quote(topic, safe='')}/copy-offsets", body)
    if as_json:
        print_json(found)
        return
    for path in found["made"]:
        print_line(path)
    say(f"{counted(len(found['made']), 'offset')} copied")
