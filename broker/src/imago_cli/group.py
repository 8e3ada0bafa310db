"""`imago group`: consumer groups, their lag, where they go on, and their end."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    confirm,
    connected,
    nearest,
    unknown_topic,
)
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.output import counted, print_json, print_table, say
from imago_cli.topic import moment

if TYPE_CHECKING:
    from imago_client import GroupDescription, ResetTo
    from imago_client.blocking import Client


def attach(root: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(no_args_is_help=True, help="Show consumer groups; move, delete them.")
    group.command("list")(list_groups)
    group.command("describe")(describe)
    group.command("reset")(reset)
    group.command("mode")(mode)
    group.command("delete")(delete)
    root.add_typer(group, name="group")


def list_groups(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the consumer groups with their members and their lag."""
    with connected(bootstrap) as client:
        found = [client.admin.describe_group(name) for name in client.admin.groups()]
    if as_json:
        print_json([_summary(one) for one in found])
    else:
        columns = ("group", "members", "topics", "lag")
        print_table("", columns, [tuple(_summary(one).values()) for one in found])


def describe(group: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show a group's members and its offset in each queue."""
    with connected(bootstrap) as client:
        _check_exists(client, group)
        found = client.admin.describe_group(group)
    if as_json:
        print_json(_whole(found))
        return
    members = [(one.client_id, one.address, one.language, one.version) for one in found.members]
    print_table(
        f"group {group}: {counted(len(members), 'member')}",
        ("client", "address", "language", "version"),
        members,
    )
    print_table(
        f"lag {sum(one.lag for one in found.progress)}",
        ("topic", "shard", "queue", "committed", "max offset", "lag", "last consumed"),
        [
            (
                one.queue.topic,
                one.queue.shard,
                one.queue.queue_id,
                one.committed,
                one.max_offset,
                one.lag,
                moment(one.consumed_ms),
            )
            for one in found.progress
        ],
    )


def reset(
    group: str,
    topic: str,
    to: Annotated[str, typer.Option(help="earliest, latest, ms since 1970, or an ISO 8601 time.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    make: Annotated[
        bool, typer.Option("--create", help="Create the group, for consumers that start later.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a group in a topic. Connected members continue there at once."""
    target = parse_target(to)
    with connected(bootstrap) as client:
        if not make:
            _check_exists(client, group, "--create makes it")
        if topic not in (topics := client.admin.topics()):
            raise unknown_topic(topic, topics)
        confirm(f"Move group {group} in topic {topic} to {to}?", yes=yes)
        moved = client.admin.reset_group(group, topic, target)
    rows = [(queue.shard, queue.queue_id, offset) for queue, offset in sorted(moved.items())]
    if as_json:
        queues = [dict(zip(("shard", "queue", "offset"), row, strict=True)) for row in rows]
        print_json({"group": group, "topic": topic, "queues": queues})
    else:
        print_table(f"group {group} in {topic}", ("shard", "queue", "offset"), rows)


class ReadMode(StrEnum):
    """How a group reads a topic."""

    pull = "pull"
    pop = "pop"


def mode(
    group: str,
    topic: str,
    to: Annotated[ReadMode, typer.Argument(help="pull or pop.")],
    share: Annotated[
        int,
        typer.Option(
            min=0, max=1000, help="With pop: queues that each member shares; 0 shares all."
        ),
    ] = 0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Have a group's consumers of RocketMQ 5 read a topic by pull or by POP.

    Those that let brokers deal out the queues (clientRebalance=false) follow.
    """
    with connected(bootstrap) as client:
        _check_exists(client, group)
        if topic not in (topics := client.admin.topics()):
            raise unknown_topic(topic, topics)
        client.admin.set_request_mode(group, topic, to.value, share_queues=share)
    say(f"group {group}: reads {topic} by {to.value}")


def delete(group: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, yes: Yes = False) -> None:
    """Delete a group with its settings and its offsets in every topic."""
    with connected(bootstrap) as client:
        _check_exists(client, group)
        confirm(f"Delete group {group} and all its offsets?", yes=yes)
        client.admin.delete_group(group)
    say(f"group {group}: deleted")


def parse_target(text: str) -> ResetTo | int:
    """Return where a reset goes: a word, or a time in ms since 1970."""
    from imago_client import ResetTo

    if text in ("earliest", "latest"):
        return ResetTo(text)
    if text.isdecimal():
        if int(text) >> 63:
            raise CommandUsageError(f"--to {text}: no time is that late", cure="ms since 1970")
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise CommandUsageError(
            f"--to {text!r} is no place in a topic",
            cure="earliest, latest, ms since 1970, or a time such as 2026-11-21T13:00:00",
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


def _check_exists(client: Client, group: str, otherwise: str = "imago group list") -> None:
    if group not in (known := client.admin.groups()):
        cure = nearest(group, known)
        raise CommandError(f"there is no group {group}", cure=cure or otherwise)


def _summary(found: GroupDescription) -> dict[str, object]:
    topics = {one.queue.topic for one in found.progress} | set(found.subscriptions)
    return {
        "group": found.group,
        "members": len(found.members),
        "topics": ", ".join(sorted(topic for topic in topics if not topic.startswith("%RETRY%"))),
        "lag": sum(one.lag for one in found.progress),
    }


def _whole(found: GroupDescription) -> dict[str, object]:
    return {
        "group": found.group,
        "lag": sum(one.lag for one in found.progress),
        "members": [
            {
                "clientId": one.client_id,
                "address": one.address,
                "language": one.language,
                "version": one.version,
            }
            for one in found.members
        ],
        "subscriptions": dict(found.subscriptions),
        "queues": [
            {
                "topic": one.queue.topic,
                "shard": one.queue.shard,
                "queue": one.queue.queue_id,
                "committed": one.committed,
                "maxOffset": one.max_offset,
                "lag": one.lag,
                "consumedMs": one.consumed_ms,
            }
            for one in found.progress
        ],
    }
