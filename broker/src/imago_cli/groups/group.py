"""`imago group`: consumer groups, their lag, where they go on, and their end."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from imago_cli.clusters.missing import Partial, apart_from, check_exists, end_with, told
from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    confirm,
    connected,
    unknown_topic,
)
from imago_cli.exits import CommandError
from imago_cli.groups.lag import LOOK_S, Rates, rates, why_behind
from imago_cli.groups.pausing import is_paused, pause, resume
from imago_cli.groups.reset import reset
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.output import counted, print_json, print_line, print_table, say
from imago_cli.times import moment
from imago_wire.remoting.peer import version_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_client import GroupDescription, MessageQueue
    from imago_client.blocking import Client


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Show consumer groups; move, delete them.")
    group.add("list", list_groups)
    group.add("describe", describe)
    group.add("reset", reset)
    group.add("mode", mode)
    group.add("pause", pause)
    group.add("resume", resume)
    group.add("delete", delete)
    root.add("group", group)


def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, partial: Partial = False, as_json: AsJson = False
) -> None:
    """List the consumer groups with their members and their lag. Exit code 1: a shard is away."""
    with connected(bootstrap) as client:
        found = [client.admin.describe_group(name) for name in client.admin.groups()]
        missing = client.admin.missing_shards()
    if as_json:
        print_json([_summary(one) for one in found])
    else:
        columns = ("group", "members", "topics", "lag")
        print_table("", columns, [tuple(_summary(one).values()) for one in found])
    end_with(missing, partial=partial)


def describe(
    group: str,
    look_s: Annotated[
        float,
        Option("--look", least=0, most=60, help="Seconds in which to see how fast it reads."),
    ] = LOOK_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Show a group's members, how far it is in each queue, and why it is behind.

    Exit code 1: a shard is away.
    """
    with connected(bootstrap) as client:
        check_exists(client, group)
        found = client.admin.describe_group(group)
        speeds = _speeds(client, found, look_s)
        owners = client.admin.group_owners(found) if found.members else {}
        paused = is_paused(client, group)
        go_on = f"it is paused: imago group resume {group} has it go on"
        why = go_on if paused else why_behind(found, speeds, owners)
        late = {one.queue.topic for one in found.progress if one.lag}
        delays = {
            queue: delay_ms
            for topic in late
            for queue, delay_ms in client.admin.group_delays(group, topic).items()
        }
        missing = client.admin.missing_shards()
    if as_json:
        more = {"why": why, "paused": paused, "missing": told(missing)}
        print_json(_whole(found, speeds, delays, owners or {}) | more)
    else:
        _print_described(group, found, speeds, delays, owners or {})
        print_line(why)
    end_with(missing, partial=partial)


def _speeds(client: Client, found: GroupDescription, look_s: float) -> dict[MessageQueue, Rates]:
    """Look once more where that says more: at a group that is behind and has members."""
    if not look_s or not found.members or not any(one.lag for one in found.progress):
        return {}
    say(f"looking for {look_s:g} s how fast it reads (--look)")
    began = time.monotonic()
    time.sleep(look_s)
    later = client.admin.describe_group(found.group)
    return rates(found, later, time.monotonic() - began)


def _print_described(
    group: str,
    found: GroupDescription,
    speeds: Mapping[MessageQueue, Rates],
    delays: Mapping[MessageQueue, int],
    owners: Mapping[MessageQueue, str],
) -> None:
    members = [
        (one.client_id, one.address, one.language, version_name(one.version))
        for one in found.members
    ]
    print_table(
        f"group {group}: {counted(len(members), 'member')}",
        ("client", "address", "language", "version"),
        members,
    )
    print_table(
        f"lag {sum(one.lag for one in found.progress)}",
        (
            "topic",
            "shard",
            "queue",
            "committed",
            "max offset",
            "lag",
            "behind s",
            "read/s",
            "last consumed",
            "reader",
        ),
        [
            (
                one.queue.topic,
                one.queue.shard,
                one.queue.queue_id,
                one.committed,
                one.max_offset,
                one.lag,
                round(delays.get(one.queue, 0) / 1000, 1),
                round(speeds[one.queue].read, 1) if one.queue in speeds else "",
                moment(one.consumed_ms),
                owners.get(one.queue, ""),
            )
            for one in found.progress
        ],
    )


class ReadMode(StrEnum):
    """How a group reads a topic."""

    pull = "pull"
    pop = "pop"


def mode(
    group: str,
    topic: str,
    to: Annotated[ReadMode, Argument(help="pull or pop.")],
    share: Annotated[
        int,
        Option(least=0, most=1000, help="With pop: queues that each member shares; 0 shares all."),
    ] = 0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Have a group's consumers of RocketMQ 5 read a topic by pull or by POP.

    Those that let brokers deal out the queues (clientRebalance=false) follow.
    """
    with connected(bootstrap) as client:
        check_exists(client, group)
        if topic not in (topics := client.admin.topics()):
            raise unknown_topic(topic, topics)
        client.admin.set_request_mode(group, topic, to.value, share_queues=share)
    say(f"group {group}: reads {topic} by {to.value}")


def delete(
    group: str,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    force: Annotated[
        bool, Option("--force", help="Also while consumers of it are connected.")
    ] = False,
    yes: Yes = False,
    partial: Partial = False,
) -> None:
    """Delete a group with its settings and its offsets in every topic."""
    with connected(bootstrap) as client:
        check_exists(client, group)
        if not force:
            _check_empty(client, group)
        confirm(f"Delete group {group} and all its offsets?", yes=yes)
        missing = client.admin.missing_shards()
        with apart_from(missing):
            client.admin.delete_group(group)
    say(f"group {group}: deleted")
    end_with(missing, partial=partial, lacks="not deleted")


def _check_empty(client: Client, group: str) -> None:
    if members := client.admin.describe_group(group).members:
        raise CommandError(
            f"group {group} has {counted(len(members), 'member')}, like {members[0].client_id} at"
            f" {members[0].address}, which would make it again",
            cure="stop its consumers, then repeat the command; --force deletes it all the same",
        )


def _summary(found: GroupDescription) -> dict[str, object]:
    topics = {one.queue.topic for one in found.progress} | set(found.subscriptions)
    return {
        "group": found.group,
        "members": len(found.members),
        "topics": ", ".join(sorted(topic for topic in topics if not topic.startswith("%RETRY%"))),
        "lag": sum(one.lag for one in found.progress),
    }


def _whole(
    found: GroupDescription,
    speeds: Mapping[MessageQueue, Rates],
    delays: Mapping[MessageQueue, int],
    owners: Mapping[MessageQueue, str],
) -> dict[str, object]:
    return {
        "group": found.group,
        "lag": sum(one.lag for one in found.progress),
        "members": [
            {
                "clientId": one.client_id,
                "address": one.address,
                "language": one.language,
                "version": one.version,
                "versionName": version_name(one.version),
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
                "behindMs": delays.get(one.queue, 0),
                "readPerSecond": speeds[one.queue].read if one.queue in speeds else None,
                "consumedMs": one.consumed_ms,
                "reader": owners.get(one.queue),
            }
            for one in found.progress
        ],
    }
