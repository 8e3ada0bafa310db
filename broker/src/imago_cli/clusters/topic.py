"""`imago topic`: create, change, list, describe, move and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from imago_cli.clusters.missing import Partial, apart_from, end_with, told
from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    confirm,
    connected,
    is_system,
    refuse_system,
    unknown_topic,
)
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import counted, print_json, print_line, print_table, say
from imago_cli.times import moment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_client import QueueBounds
    from imago_client.blocking import Client
    from imago_wire.remoting.bodies.config import TopicConfig


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    # What changes topics needs the brokers' bounds, what moves them HTTP: lists load neither.
    group = CommandGroup("Create, change, list, move and delete topics.")
    group.add("list", list_topics)
    group.add("create", "imago_cli.clusters.topic_settings:create")
    group.add("alter", "imago_cli.clusters.topic_settings:alter")
    group.add("describe", describe)
    group.add("delete", delete)
    group.add("move", "imago_cli.clusters.moves:move")
    group.add("spread", "imago_cli.clusters.moves:spread")
    root.add("topic", group)


def list_topics(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    everything: Annotated[
        bool, Option("--all", help="Also system, retry and dead-letter topics.")
    ] = False,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """List the topics with their shards and queues. Exit code 1: a shard is away."""
    with connected(bootstrap) as client:
        clusters = {shard.cluster for shard in client.admin.shards()}
        rows = [
            _listed(client, topic)
            for topic in client.admin.topics()
            if everything or not is_system(topic, clusters)
        ]
        missing = client.admin.missing_shards()
    if as_json:
        print_json([dict(zip(("topic", "shards", "queues"), row, strict=True)) for row in rows])
    else:
        print_table("", ("topic", "shards", "queues"), rows)
    end_with(missing, partial=partial)


def describe(
    topic: str,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Show what each queue of a topic holds, and its settings. Exit code 1: a shard is away."""
    with connected(bootstrap) as client:
        if topic not in (known := client.admin.topics()):
            raise unknown_topic(topic, known)
        settings = client.admin.topic_settings(topic)
        bounds = client.admin.topic_bounds(topic)
        missing = client.admin.missing_shards(topic)
    if as_json:
        queues = [_bounds_json(one) for one in bounds]
        shown = {shard: _settings_json(one) for shard, one in settings.items()}
        print_json({"topic": topic, "settings": shown, "queues": queues, "missing": told(missing)})
    else:
        _print_described(topic, bounds, settings)
    end_with(missing, partial=partial)


def _print_described(
    topic: str, bounds: Sequence[QueueBounds], settings: Mapping[str, TopicConfig]
) -> None:
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
    held = sum(one.max_offset - one.min_offset for one in bounds)
    print_table(f"{topic}: {counted(held, 'message')}", columns, rows)
    by_text: dict[str, list[str]] = {}
    for shard, one in sorted(settings.items()):
        by_text.setdefault(_settings_line(one), []).append(shard)
    for text, shards in by_text.items():
        print_line(f"settings: {text}" if len(by_text) == 1 else f"{', '.join(shards)}: {text}")


def delete(
    topic: str,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    yes: Yes = False,
    partial: Partial = False,
) -> None:
    """Delete a topic, its messages and the offsets of all groups. Exit code 1: not everywhere."""
    refuse_system(topic)
    with connected(bootstrap) as client:
        if topic not in (known := client.admin.topics()):
            raise unknown_topic(topic, known)
        confirm(f"Delete topic {topic} and all its messages?", yes=yes)
        missing = client.admin.missing_shards(topic)
        with apart_from(missing):
            client.admin.delete_topic(topic)
    say(f"topic {topic}: deleted")
    end_with(missing, partial=partial, lacks="not deleted")


def _listed(client: Client, topic: str) -> tuple[str, int, int]:
    queues = client.admin.placed_queues(topic)
    return topic, len({queue.shard for queue in queues}), len(queues)


def _bounds_json(one: QueueBounds) -> dict[str, object]:
    return {
        "shard": one.queue.shard,
        "queue": one.queue.queue_id,
        "minOffset": one.min_offset,
        "maxOffset": one.max_offset,
        "updatedMs": one.updated_ms,
    }


def _settings_json(one: TopicConfig) -> dict[str, object]:
    return {
        "readQueues": one.read_queue_nums,
        "writeQueues": one.write_queue_nums,
        "perm": one.perm,
        "order": one.order,
        "attributes": dict(one.attributes or {}),
    }


def _settings_line(one: TopicConfig) -> str:
    """Return what a topic is set to, as `--set` takes it; what it does not say is the broker's."""
    queues = f"queues={one.write_queue_nums}"
    if one.read_queue_nums != one.write_queue_nums:
        queues = f"write queues={one.write_queue_nums} read queues={one.read_queue_nums}"
    ordered = ["order=true"] if one.order else []
    own = [f"{name}={value}" for name, value in sorted((one.attributes or {}).items())]
    return " ".join([queues, f"perm={one.perm}", *ordered, *own])
