"""`imago topic`: create, change, list, describe, move and delete topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from imago_broker.model.names import PARTITIONS_MAX
from imago_cli.clusters.missing import Partial, apart_from, end_with, told
from imago_cli.clusters.moves import attach_to_topic
from imago_cli.clusters.topic_settings import SET_HELP, attributes
from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    confirm,
    connected,
    is_system,
    unknown_topic,
)
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.output import counted, print_json, print_line, print_table, say
from imago_cli.times import moment
from imago_client.errors import HidesMessagesError, NoTopicError, TopicExistsError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_client import QueueBounds
    from imago_client.blocking import Client
    from imago_wire.remoting.bodies.config import TopicConfig

Queues = Annotated[
    int | None,
    Option(
        least=1,
        most=PARTITIONS_MAX,
        help="Queues on each shard, in both protocols.",
        show_default=False,
    ),
]
Perm = Annotated[int | None, Option(help="4 read, 2 write, 6 both.", show_default=False)]
Settings = Annotated[list[str] | None, Option("--set", help=SET_HELP)]


def attach(root: CommandGroup) -> None:
    """Add the group of commands."""
    group = CommandGroup("Create, change, list, move and delete topics.")
    group.add("list", list_topics)
    group.add("create", create)
    group.add("alter", alter)
    group.add("describe", describe)
    group.add("delete", delete)
    attach_to_topic(group)
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


def create(
    topic: str,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    queues: Queues = None,
    perm: Perm = None,
    assignments: Settings = None,
    if_absent: Annotated[
        bool, Option(help="Accept an existing topic that has these settings.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a topic on every shard. An existing one is an error."""
    _refuse_system(topic)
    settings = attributes(assignments)
    with connected(bootstrap) as client:
        try:
            masters = _create(client, topic, queues, perm, settings)
            made = True
        except TopicExistsError as error:
            if not if_absent:
                cure = (
                    f"imago topic alter {topic} changes it; --if-absent takes it if it is the same"
                )
                raise CommandError(f"the topic {topic} exists already", cure=cure) from error
            masters = _create(client, topic, queues, perm, settings, exist_ok=True)
            made = False
        has = queues or _queues(client, topic)
    if as_json:
        print_json({"topic": topic, "queues": has, "shards": sorted(masters)})
    else:
        there = "" if made else ", there already"
        each = "each of " if len(masters) > 1 else ""
        shards = ", ".join(sorted(masters))
        say(f"topic {topic}: {counted(has, 'queue')} on {each}{shards}{there}")


def alter(
    topic: str,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    queues: Queues = None,
    perm: Perm = None,
    assignments: Settings = None,
    hide_messages: Annotated[
        bool,
        Option("--hide-messages", help="Allow fewer queues even if they hide messages."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Change the named settings of a topic, on every shard that has it; all others stay."""
    _refuse_system(topic)
    settings = attributes(assignments)
    if queues is None and perm is None and not settings:
        raise CommandUsageError(
            "nothing to change is named", cure="--queues, --perm or --set name=value"
        )
    with connected(bootstrap) as client:
        try:
            hidden = client.admin.alter_topic(
                topic, queues=queues, perm=perm, attributes=settings, hide_messages=hide_messages
            )
        except NoTopicError as error:
            raise unknown_topic(topic, client.admin.topics()) from error
        except HidesMessagesError as error:
            cure = "keep the number of queues, or add --hide-messages"
            raise CommandError(str(error), cure=cure) from error
    if as_json:
        print_json({"topic": topic, "hiddenMessages": hidden})
    else:
        lost = f"; hidden from readers now: {counted(hidden, 'message')}" if hidden else ""
        say(f"topic {topic}: changed{lost}")


def _refuse_system(topic: str) -> None:
    # A group's retries and dead letters are its user's to change.
    if is_system(topic) and not topic.startswith("%"):
        raise CommandUsageError(f"topic {topic} is the brokers' own", cure="choose another name")


def _create(
    client: Client,
    topic: str,
    queues: int | None,
    perm: int | None,
    settings: dict[str, str],
    *,
    exist_ok: bool = False,
) -> dict[str, str]:
    try:
        return client.admin.create_topic(
            topic, queues=queues, perm=perm, attributes=settings, exist_ok=exist_ok
        )
    except TopicExistsError as error:
        if not exist_ok:
            raise
        cure = f"imago topic alter {topic} changes it"
        raise CommandError(error.remark, cure=cure) from error


def _queues(client: Client, topic: str) -> int:
    """Return how many queues a shard of the topic has, the most where they differ."""
    queues = client.pull_consumer("IMAGO_CLI").queues(topic)
    return max((queue.queue_id + 1 for queue in queues), default=0)


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
    _refuse_system(topic)
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
