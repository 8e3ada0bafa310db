"""`imago group reset`: where a group goes on in a topic, in all its queues or in some."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from imago_cli.clusters.missing import Partial, apart_from, check_exists, end_with
from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    Yes,
    confirm,
    connected,
    unknown_topic,
)
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Option
from imago_cli.messages.places import PlaceKind, ReadPlace, chosen, place_of
from imago_cli.output import print_json, print_table, say
from imago_cli.times import TIME_HELP, time_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_client import MessageQueue, QueueBounds
    from imago_client.blocking import Client

_PLACES = f"earliest, latest, -10 (the last ten of each queue), offset:42, or a time: {TIME_HELP}"


@dataclass(frozen=True, slots=True)
class ResetGoal:
    """Where a group shall go on: one of a place, a distance, and another group's place."""

    to: str | None
    by: int | None
    to_group: str | None
    queues: Sequence[str]
    place: ReadPlace | None

    @classmethod
    def of(
        cls, to: str | None, by: int | None, to_group: str | None, queues: Sequence[str]
    ) -> Self:
        """Check what was said; CommandUsageError: not exactly one of them, or no place."""
        ways = {"--to": to, "--by": by, "--to-group": to_group}
        given = [name for name, value in ways.items() if value is not None]
        if len(given) != 1:
            raise CommandUsageError(
                f"{given[0]}: not beside {given[1]}" if given else "where to is not said",
                cure="say one of --to, --by and --to-group",
            )
        return cls(to, by, to_group, queues, None if to is None else parse_place(to))

    def __str__(self) -> str:
        some = f"({', '.join(self.queues)}) " if self.queues else ""
        if self.to_group is not None:
            return f"{some}to where group {self.to_group} is"
        return f"{some}to {self.to}" if self.by is None else f"{some}by {self.by}"

    def offsets(
        self, client: Client, group: str, topic: str, before: Mapping[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """Return where that is in each of the queues; a group that is nowhere stays nowhere."""
        if self.to_group is not None:
            check_exists(client, self.to_group)
            group, before = self.to_group, _committed(client, self.to_group, topic)
        bounds = client.admin.topic_bounds(topic)
        among = set(chosen([one.queue for one in bounds], self.queues))
        bounds = [one for one in bounds if one.queue in among]
        if self.place is not None:
            return {one.queue: _place_in(client, self.place, one) for one in bounds}
        found = {
            one.queue: _within(one, before[one.queue] + (self.by or 0))
            for one in bounds
            if one.queue in before
        }
        if not found:
            raise CommandError(
                f"group {group} is nowhere yet in {topic}", cure="say where to: --to earliest"
            )
        return found

    def move(
        self, client: Client, group: str, topic: str, offsets: dict[MessageQueue, int]
    ) -> dict[MessageQueue, int]:
        """Move the group; return where it is then."""
        if (
            self.place is not None
            and not self.queues
            and (simple := _simple(self.place)) is not None
        ):
            return client.admin.reset_group(group, topic, simple)  # members are told once a shard
        client.admin.move_group(group, offsets)
        return offsets


def _simple(place: ReadPlace) -> str | int | None:
    """Return what brokers know as a place themselves."""
    if place.kind is PlaceKind.TIME:
        return place.number
    return place.kind.value if place.is_simple else None


def reset(
    group: str,
    topic: str,
    to: Annotated[str | None, Option(help=f"{_PLACES}.")] = None,
    by: Annotated[
        int | None, Option(help="So many messages on in each queue; with - back.")
    ] = None,
    to_group: Annotated[str | None, Option(help="Where this other group is in each queue.")] = None,
    queues: Annotated[
        list[str] | None,
        Option("--queue", help="Only this queue, like shard-0/3. Repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    make: Annotated[
        bool, Option("--create", help="Create the group, for consumers that start later.")
    ] = False,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show where it would go on, and change nothing.")
    ] = False,
    yes: Yes = False,
    partial: Partial = False,
    as_json: AsJson = False,
) -> None:
    """Move a group in a topic. Connected members continue there at once. Exit code 1: not moved on
    a shard that is away."""
    wanted = ResetGoal.of(to, by, to_group, queues or ())
    with connected(bootstrap) as client:
        if not make:
            check_exists(client, group, "--create makes it")
        if topic not in (topics := client.admin.topics()):
            raise unknown_topic(topic, topics)
        before = _committed(client, group, topic)
        moved = wanted.offsets(client, group, topic, before)
        missing = client.admin.missing_shards(topic)
        if not dry_run:
            confirm(f"Move group {group} in topic {topic} {wanted}?", yes=yes)
            with apart_from(missing):
                moved = wanted.move(client, group, topic, moved)
    columns = ("shard", "queue", "offset", "before")
    rows = [
        (queue.shard, queue.queue_id, offset, before.get(queue))
        for queue, offset in sorted(moved.items())
    ]
    if as_json:
        found = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"group": group, "topic": topic, "queues": found, "changed": not dry_run})
    else:
        shown = [(*row[:3], "none" if row[3] is None else row[3]) for row in rows]
        print_table(f"group {group} in {topic}", columns, shown)
        if dry_run:
            say("nothing was changed: --dry-run")
    end_with(missing, partial=partial, lacks="as it was")


def parse_place(text: str) -> ReadPlace:
    """Return where a reset goes; CommandUsageError: the text names no place."""
    now_ms = time.time_ns() // 1_000_000
    try:
        return place_of("--to", text, now_ms)
    except CommandUsageError:
        pass
    try:
        ms = time_of(text.removeprefix("@"), now_ms)
    except ValueError as error:
        said = str(error) if "no time is that late" in str(error) else ""
        raise CommandUsageError(
            f"--to {said}" if said else f"--to {text!r} is no place in a topic",
            cure=_PLACES,
        ) from None
    return ReadPlace(PlaceKind.TIME, ms)


def _committed(client: Client, group: str, topic: str) -> dict[MessageQueue, int]:
    """Return where a group is, without the queues in which it never was: they are not at 0."""
    if not client.admin.has_group(group):
        return {}
    consumer = client.pull_consumer(group)
    found = {one.queue: consumer.committed(one.queue) for one in client.admin.topic_bounds(topic)}
    return {queue: offset for queue, offset in found.items() if offset is not None}


def _place_in(client: Client, place: ReadPlace, one: QueueBounds) -> int:
    """Return a place's offset in a queue; CommandError: the queue has no such offset."""
    match place.kind:
        case PlaceKind.EARLIEST:
            return one.min_offset
        case PlaceKind.LATEST:
            return one.max_offset
        case PlaceKind.LAST:
            return max(one.min_offset, one.max_offset - place.number)
        case PlaceKind.TIME:
            found = client.pull_consumer("IMAGO_CLI").offset_at(one.queue, place.number)
            return _within(one, found)
        case PlaceKind.OFFSET:
            if place.number == _within(one, place.number):
                return place.number
    raise CommandError(
        f"--to offset:{place.number}: {one.queue} has {one.min_offset} to {one.max_offset}",
        cure="name an offset that it has; --queue chooses queues",
    )


def _within(one: QueueBounds, offset: int) -> int:
    return min(max(offset, one.min_offset), one.max_offset)
