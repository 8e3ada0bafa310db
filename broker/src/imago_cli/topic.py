"""`imago topic`: create, change, list, describe, move and delete topics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from imago_cli.connect import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes, confirm, connected
from imago_cli.exits import CommandError
from imago_cli.moves import attach_to_topic
from imago_cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from imago_client import QueueBounds
    from imago_client.blocking import Client

_SYSTEM_NAMES = frozenset(
    {"TBW102", "SELF_TEST_TOPIC", "SCHEDULE_TOPIC_XXXX", "OFFSET_MOVED_EVENT", "BenchmarkTest"}
)
_SYSTEM_PREFIXES = ("%RETRY%", "%DLQ%", "RMQ_SYS_", "rmq_sys_", "IMAGO_META")


def attach(root: typer.Typer) -> None:
    """Add the group of commands."""
    group = typer.Typer(no_args_is_help=True, help="Create, change, list, move and delete topics.")
    group.command("list")(list_topics)
    group.command("create")(create)
    group.command("describe")(describe)
    group.command("delete")(delete)
    attach_to_topic(group)
    root.add_typer(group, name="topic")


def is_system(topic: str) -> bool:
    """Whether a topic is the brokers' own, or of a group's retries and dead letters."""
    return topic in _SYSTEM_NAMES or topic.startswith(_SYSTEM_PREFIXES)


def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    everything: Annotated[
        bool, typer.Option("--all", help="Also system, retry and dead-letter topics.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the topics with their shards and queues."""
    with connected(bootstrap) as client:
        rows = [
            _listed(client, topic)
            for topic in client.admin.topics()
            if everything or not is_system(topic)
        ]
    if as_json:
        print_json([dict(zip(("topic", "shards", "queues"), row, strict=True)) for row in rows])
    else:
        print_table("", ("topic", "shards", "queues"), rows)


def create(
    topic: str,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    queues: Annotated[
        int, typer.Option(min=1, max=1024, help="Queues on each shard, in both protocols.")
    ] = 4,
    perm: Annotated[int, typer.Option(help="4 read, 2 write, 6 both.")] = 6,
    attribute: Annotated[
        list[str] | None, typer.Option("--set", help="An attribute, as name=value. Repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic on every shard, or change it."""
    attributes: dict[str, str] = {}
    for text in attribute or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r} is not name=value", param_hint="--set")
        attributes[name] = value
    with connected(bootstrap) as client:
        masters = client.admin.create_topic(topic, queues=queues, perm=perm, attributes=attributes)
    if as_json:
        print_json({"topic": topic, "queues": queues, "shards": sorted(masters)})
    else:
        say(f"topic {topic}: {queues} queues on each of {', '.join(sorted(masters))}")


def describe(topic: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Show what each queue of a topic holds."""
    with connected(bootstrap) as client:
        bounds = client.admin.topic_bounds(topic)
    if as_json:
        print_json({"topic": topic, "queues": [_bounds_json(one) for one in bounds]})
        return
    rows = [
        (
            one.queue.shard,
            one.queue.queue_id,
            one.min_offset,
            one.max_offset,
            one.max_offset - one.min_offset,
            moment(one.updated_ms),
        )
        for one in bounds
    ]
    columns = ("shard", "queue", "from", "up to", "messages", "last message")
    print_table(f"{topic}: {sum(row[4] for row in rows)} messages", columns, rows)


def delete(topic: str, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, yes: Yes = False) -> None:
    """Delete a topic, its messages and the offsets of all groups."""
    with connected(bootstrap) as client:
        if topic not in client.admin.topics():
            raise CommandError(f"there is no topic {topic}", cure="imago topic list")
        confirm(f"Delete topic {topic} and all its messages?", yes=yes)
        client.admin.delete_topic(topic)
    say(f"topic {topic}: deleted")


def moment(ms: int) -> str:
    """Return a time in ms since 1970 for people, empty for none."""
    if not ms:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(sep=" ", timespec="milliseconds")[:-6]


def _listed(client: Client, topic: str) -> tuple[str, int, int]:
    queues = client.pull_consumer("IMAGO_CLI").queues(topic)
    return topic, len({queue.shard for queue in queues}), len(queues)


def _bounds_json(one: QueueBounds) -> dict[str, object]:
    return {
        "shard": one.queue.shard,
        "queue": one.queue.queue_id,
        "minOffset": one.min_offset,
        "maxOffset": one.max_offset,
        "updatedMs": one.updated_ms,
    }
