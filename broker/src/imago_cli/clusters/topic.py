"""`imago topic`: create, change, list, describe, move and delete topics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

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
from imago_cli.output import counted, in_bytes, print_json, print_line, print_table, say
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
    is_long: Annotated[
        bool, Option("--long", "-l", help="Also how much each one holds; it asks every shard.")
    ] = False,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """List the topics with their shards and queues. Exit code 1: a shard is away."""
    with connected(bootstrap) as client:
        clusters = {shard.cluster for shard in client.admin.shards()}
        rows = [
            _listed(client, topic, is_long=is_long)
            for topic in client.admin.topics()
            if everything or not is_system(topic, clusters)
        ]
        missing = client.admin.missing_shards()
    if as_json:
        print_json(rows)
    else:
        columns = ("topic", "shards", "queues", *(_LONG if is_long else ()))
        cells = [tuple(row.values()) for row in rows]
        if is_long:
            cells = [(*each, in_bytes(size), moment(last)) for *each, size, last in cells]
        print_table("", columns, cells)
    end_with(missing, partial=partial)


_LONG = ("messages", "size", "last message")


def describe(
    topic: str,
    look_s: Annotated[
        float, Option("--look", least=0, most=60, help="Seconds in which to see how fast it grows.")
    ] = 0.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Show what each queue of a topic holds, its settings, and who is how far behind in it.

    Exit code 1: a shard is away.
    """
    with connected(bootstrap) as client:
        if topic not in (known := client.admin.topics()):
            raise unknown_topic(topic, known)
        settings = client.admin.topic_settings(topic)
        bounds = client.admin.topic_bounds(topic, sizes=True)
        lags = _lags(client, bounds)
        grown = _grown(client, topic, bounds, look_s)
        missing = client.admin.missing_shards(topic)
    if as_json:
        queues = [_bounds_json(one) for one in bounds]
        shown = {shard: _settings_json(one) for shard, one in settings.items()}
        more = {"perSecond": grown} if look_s else {}
        said = {"topic": topic, "settings": shown, "queues": queues, "lag": lags}
        print_json(said | more | {"missing": told(missing)})
    else:
        _print_described(topic, bounds, settings)
        if look_s:
            print_line(f"it gets {grown:,.1f} messages a second")
        if lags:
            print_line(f"lag: {', '.join(f'{group} {lag}' for group, lag in lags.items())}")
    end_with(missing, partial=partial)


def _grown(client: Client, topic: str, bounds: Sequence[QueueBounds], look_s: float) -> float:
    """Return how many messages a second it gets; 0.0 where nobody asks."""
    if not look_s:
        return 0.0
    began = time.monotonic()
    time.sleep(look_s)
    later = client.admin.topic_bounds(topic)
    new = sum(one.max_offset for one in later) - sum(one.max_offset for one in bounds)
    return round(new / (time.monotonic() - began), 1)


def _lags(client: Client, bounds: Sequence[QueueBounds]) -> dict[str, int] | None:
    """Return by group what it has not read of the queues in which it has committed an offset.

    None: the caller may not see that, which is said.
    """
    from imago_client import BrokerError

    ends = {one.queue: one.max_offset for one in bounds}
    try:
        known = client.admin.committed_offsets()
    except BrokerError as error:
        say(f"note: how far groups are behind is not shown: {error.remark}")
        return None
    places = {group: {q: at for q, at in of.items() if q in ends} for group, of in known.items()}
    return {
        group: sum(max(0, ends[queue] - at) for queue, at in of.items())
        for group, of in sorted(places.items())
        if of
    }


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
            in_bytes(one.size_bytes),
            moment(one.updated_ms),
        )
        for one in bounds
    ]
    columns = ("shard", "queue", "from", "up to", *_LONG)
    held = sum(one.max_offset - one.min_offset for one in bounds)
    title = f"{topic}: {counted(held, 'message')}, {in_bytes(_size(bounds))}"
    print_table(title, columns, rows)
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


def _listed(client: Client, topic: str, *, is_long: bool) -> dict[str, Any]:
    queues = client.admin.placed_queues(topic)
    shards = len({queue.shard for queue in queues})
    found: dict[str, Any] = {"topic": topic, "shards": shards, "queues": len(queues)}
    if is_long:
        bounds = client.admin.topic_bounds(topic, sizes=True)
        found["messages"] = sum(one.max_offset - one.min_offset for one in bounds)
        found["sizeBytes"] = _size(bounds)
        found["updatedMs"] = max((one.updated_ms for one in bounds), default=0)
    return found


def _size(bounds: Sequence[QueueBounds]) -> int | None:
    """Return what all take; None where one is not known, of a broker of a former version."""
    sizes = [one.size_bytes for one in bounds]
    return None if None in sizes else sum(filter(None, sizes))


def _bounds_json(one: QueueBounds) -> dict[str, object]:
    return {
        "shard": one.queue.shard,
        "queue": one.queue.queue_id,
        "minOffset": one.min_offset,
        "maxOffset": one.max_offset,
        "sizeBytes": one.size_bytes,
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
