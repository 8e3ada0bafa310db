"""`imago metaq show-offset`, `copy-offsets`: what MetaQ's consumers keep in ZooKeeper."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote

from imago_cli.clusters.admin_http import DEFAULT_ADMIN, Admin, CallRefusedError, ask
from imago_cli.connect import AsJson, Yes, confirm, nearest
from imago_cli.exits import CommandError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import counted, print_json, print_line, print_table, say

Topic = Annotated[str, Argument(help="The topic.")]


def attach(group: CommandGroup) -> None:
    """Add the commands."""
    group.add("show-offset", show_offset)
    group.add("copy-offsets", copy_offsets)
    group.add("progress", progress)
    group.add("skip", skip)


def show_offset(
    topic: Topic,
    group: Annotated[str, Argument(help="The group.")],
    partition: Annotated[str, Argument(help="<broker id>-<partition>.")],
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


def progress(
    topic: Topic,
    group: Annotated[str, Argument(help="The group.")],
    admin: Admin = DEFAULT_ADMIN,
    as_json: AsJson = False,
) -> None:
    """Print what of a topic's partitions here a group has left, and who consumes them."""
    found = _progress(admin, topic, group)
    if as_json:
        print_json(found)
        return
    rows = [
        [
            each["partition"],
            "-" if each["position"] is None else each["position"],
            each["pendingMessages"],
            each["pendingBytes"],
            each["owner"] or "-",
        ]
        for each in found["partitions"]
    ]
    columns = ["partition", "position", "messages pending", "bytes pending", "owner"]
    print_table(f"{group} in {topic}", columns, rows)


def _progress(admin: str, topic: str, group: str) -> dict[str, Any]:
    path = f"/admin/v1/metaq/topics/{quote(topic, safe='')}?group={quote(group, safe='')}"
    return ask(admin, path)


def skip(
    topic: Topic,
    group: Annotated[str, Argument(help="The group.")],
    partition: Annotated[int, Argument(least=0, help="The partition, of the broker asked.")],
    admin: Admin = DEFAULT_ADMIN,
    make: Annotated[
        bool, Option("--create", help="Create the group, for consumers that start later.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Have a group go on at a partition's end; refused while one of its consumers reads it."""
    backlog = _backlog(admin, topic, group, partition, make=make)
    question = f"Have group {group} go on at the end of {topic}, partition {partition}?"
    confirm(f"{question} It passes over {backlog}.", yes=yes)
    where = f"/admin/v1/metaq/topics/{quote(topic, safe='')}/groups/{quote(group, safe='')}"
    found = ask(admin, f"{where}/partitions/{partition}/skip", {})
    if as_json:
        print_json(found)
    else:
        say(f"{group} goes on at {found['position']} of {topic} in {found['partition']}")


def _backlog(admin: str, topic: str, group: str, partition: int, *, make: bool) -> str:
    """Return what a group would pass over; CommandError: there is no such group.

    Who may skip need not have the right to see either.
    """
    try:
        partitions = _progress(admin, topic, group)["partitions"]
        is_new = all(each["position"] is None and each["owner"] is None for each in partitions)
        if is_new and not make:
            _check_exists(admin, group)
    except CallRefusedError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return "what it has not read there"
    found = [each for each in partitions if each["partition"].endswith(f"-{partition}")]
    if not found:  # the broker says so
        return "nothing"
    return f"{counted(found[0]['pendingMessages'], 'message')} ({found[0]['pendingBytes']} bytes)"


def _check_exists(admin: str, group: str) -> None:
    found = ask(admin, "/admin/v1/metaq/tree")
    folder = f"{found['root']}/consumers/"
    paths = (node["path"] for node in found["nodes"])
    known = {path.removeprefix(folder).split("/")[0] for path in paths if path.startswith(folder)}
    if group not in known:
        either = [one for one in (nearest(group, known), "--create makes it") if one]
        raise CommandError(f"MetaQ knows no group {group}", cure=" or ".join(either))


def copy_offsets(
    topic: Topic,
    source: Annotated[int, Option("--src", least=0, help="Broker id that has them.")],
    target: Annotated[int, Option("--target", least=0, help="Broker id that gets them.")],
    start: Annotated[int, Option("--start", least=0, help="First partition of the source.")],
    end: Annotated[int, Option("--end", least=0, help="Last partition of the source.")],
    target_start: Annotated[
        int, Option("--target-start", least=0, help="First partition of the target.")
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
