"""`imago consume`: read messages through either protocol."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import TYPE_CHECKING, Annotated, Any

from imago_cli.clusters.missing import Partial, end_with
from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    MetaqServers,
    Protocol,
    client_config,
    client_errors,
    metaq_config,
    metaq_servers,
    metaq_topics,
    no_topic,
)
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import CommandGroup, Option
from imago_cli.messages.pace import Pace
from imago_cli.messages.places import (
    EARLIEST,
    LATEST,
    PLACE_HELP,
    ReadPlace,
    chosen,
    offset_of,
    place_of,
)
from imago_cli.messages.showing import FORMAT_HELP, Show, row_of, shower
from imago_cli.output import OutputClosedError, flush, say, write_bytes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_client import MessageQueue, MissingShard, Pulled, ReceivedMessage
    from imago_client import PullConsumer as AsyncPullConsumer
    from imago_client.blocking.rocketmq.pull_consumer import PullConsumer
    from imago_client.metaq import MetaqClient, MetaqMessage


GROUP = "IMAGO_CLI"
"""As which it reads that names none."""


@dataclass(slots=True)
class Reading:
    """What one run reads, and when it is enough."""

    topic: str
    tags: str
    start: ReadPlace
    until: ReadPlace
    queues: Sequence[str]
    count: int | None
    follow: bool
    shown: Show
    pace: Pace
    missing: list[MissingShard] = field(default_factory=list)
    """Shards with queues of the topic that nobody leads now."""

    def is_enough(self) -> bool:
        return self.count is not None and self.pace.count >= self.count

    def show(self, row: dict[str, Any], body: bytes) -> None:
        """Print one message."""
        write_bytes(self.shown(row, body))
        self.pace.add(1, len(body))


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("consume", consume)


def consume(
    topic: str,
    protocol: Annotated[Protocol, Option(help="How to read.")] = Protocol.rocketmq,
    group: Annotated[
        str | None,
        Option(help="Read as a member of this group: its queues, from its offsets on."),
    ] = None,
    start: Annotated[str, Option("--from", help=f"Where to begin: {PLACE_HELP}.")] = "earliest",
    until: Annotated[
        str, Option(help="Where to end, named likewise: before that message.")
    ] = "latest",
    queues: Annotated[
        list[str] | None,
        Option("--queue", help="Only this queue, like shard-0/3. Repeatable."),
    ] = None,
    count: Annotated[int | None, Option(least=1, help="Stop after so many.")] = None,
    tags: Annotated[str, Option(help="Only these tags, joined with ||.")] = "*",
    sql: Annotated[
        str | None,
        Option("--filter", help="Only what SQL92 selects, as in `price > 5 AND TAGS = 'a'`."),
    ] = None,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Without a group: wait for more at the end.")
    ] = False,
    offsets: Annotated[
        Path | None, Option(help="With MetaQ and a group: the file of its positions.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    metaq: MetaqServers = None,
    partial: Partial = False,
    form: Annotated[str | None, Option("--format", help=FORMAT_HELP)] = None,
    hexed: Annotated[bool, Option("--hex", help="Print bodies in hex, one a line.")] = False,
    prefixed: Annotated[
        bool,
        Option("--length-prefixed", help="Print bodies, each behind its size in 4 bytes."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print messages: their bodies, one a line, or with --json everything about them.

    Without --group it reads every queue to its present end and commits nothing; exit code 1: a
    shard with some of them is away. With it, it is a
    member of the group until --count, or Ctrl-C with exit code 130, and commits what it printed.
    MetaQ brokers keep no offsets: there the group's positions are in the file that --offsets names.
    """
    if offsets is not None and (protocol is not Protocol.metaq or group is None):
        raise CommandUsageError("--offsets: only with --protocol metaq and --group")
    if sql is not None:
        from imago_client import Sql

        if tags != "*":
            raise CommandUsageError(
                "--filter: not beside --tags", cure="say TAGS = 'a' in the filter"
            )
        tags = Sql(sql)
    now_ms = time.time_ns() // 1_000_000
    begin, end = place_of("--from", start, now_ms), place_of("--until", until, now_ms)
    _check_places(begin, end, queues, protocol, group, follow=follow)
    shown = shower(as_json=as_json, form=form, hexed=hexed, prefixed=prefixed)
    pace = Pace("read", count)
    reading = Reading(topic, tags, begin, end, queues or (), count, follow, shown, pace)
    with client_errors():
        try:
            if protocol is Protocol.metaq:
                _metaq(metaq_servers(bootstrap, metaq), reading, group, offsets)
            else:
                _rocketmq(bootstrap, reading, group)
        finally:
            flush()
            reading.pace.end()
            if sys.stderr.isatty():
                count, size = reading.pace.count, reading.pace.size
                messages = "message" if count == 1 else "messages"
                say(f"{count:,} {messages}, {size:,} {'byte' if size == 1 else 'bytes'}")
    if not reading.is_enough():
        end_with(reading.missing, partial=partial, lacks="not read")


def _check_places(
    begin: ReadPlace,
    end: ReadPlace,
    queues: Sequence[str] | None,
    protocol: Protocol,
    group: str | None,
    *,
    follow: bool,
) -> None:
    """Refuse places that a way to read does not have."""
    plain = begin.is_simple and end == LATEST and not queues
    if not plain and (group is not None or protocol is Protocol.metaq):
        way = "--group" if group is not None else "--protocol metaq"
        raise CommandUsageError(
            f"{way}: reads from earliest or latest on, and all queues",
            cure="leave it out to read any part of a topic",
        )
    if follow and end != LATEST:
        raise CommandUsageError("--until: not beside --follow", cure="leave one of them out")


def _rocketmq(bootstrap: str, reading: Reading, group: str | None) -> None:
    from imago_client.blocking import Client

    places: dict[MessageQueue, int] = {}
    with Client(client_config(bootstrap)) as client:
        if reading.topic not in (known := client.admin.topics()):
            raise no_topic(reading.topic, known)
        reading.missing = client.admin.missing_shards(reading.topic)
        if group is None:
            consumer = client.pull_consumer(GROUP)
            consumer.check(reading.topic, reading.tags)
            for queue in chosen(consumer.queues(reading.topic), reading.queues):
                places[queue] = offset_of(consumer, queue, reading.start)
            if not reading.follow:
                _pull_all(consumer, places, reading)
                return
    import asyncio  # only for what waits: it is a third of what reading costs

    asyncio.run(_join(bootstrap, reading, group) if group else _follow(bootstrap, places, reading))


async def _join(bootstrap: str, reading: Reading, group: str) -> None:
    from imago_client import Client, ConsumerConfig, RetryLater, StartFrom

    enough = _future()

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if enough.done():
                raise RetryLater  # beyond --count: not ours, the group gets it again
            if not _shown(reading, row_of(message), _body(message), enough):
                raise RetryLater

    start = StartFrom.EARLIEST if reading.start == EARLIEST else StartFrom.LATEST
    config = ConsumerConfig(group=group, start_from=start, orderly=True, concurrency=1)
    wanted = {reading.topic: reading.tags}
    async with (
        Client(client_config(bootstrap)) as client,
        client.push_consumer(config, wanted, handler),
    ):
        await enough


def _future() -> asyncio.Future[None]:
    import asyncio

    return asyncio.get_running_loop().create_future()


def _shown(
    reading: Reading, row: dict[str, Any], body: bytes, enough: asyncio.Future[None]
) -> bool:
    """Print a message, and say when it is enough; False: it could not be printed."""
    try:
        reading.show(row, body)
        flush()
    except (OutputClosedError, CommandError) as error:
        if not enough.done():
            enough.set_exception(error)
        return False
    if reading.is_enough() and not enough.done():
        enough.set_result(None)
    return True


def _pull_all(consumer: PullConsumer, places: dict[MessageQueue, int], reading: Reading) -> None:
    for queue, start in places.items():
        offset, end = start, offset_of(consumer, queue, reading.until)
        while offset < end and not reading.is_enough():
            pulled = consumer.pull(
                queue, offset, tags=reading.tags, messages_max=1000, bulk_bytes=1 << 20
            )
            offset = _show(pulled, offset, reading, end)


def _show(pulled: Pulled, offset: int, reading: Reading, end: int | None = None) -> int:
    """Show what one answer has, of messages before `end`; return where to go on."""
    for message in pulled.messages():
        if reading.is_enough() or (end is not None and message.offset >= end):
            break
        if message.error is not None and message.error.is_too_large and message.offset > offset:
            flush()
            return message.offset  # pulled again, it has the whole budget of an answer
        reading.show(row_of(message), _body(message))
    flush()
    return pulled.next_offset


def _body(message: ReceivedMessage) -> bytes:
    """What is shown of a message: of a body that is too large, why it is not."""
    if message.error is not None and message.error.is_too_large:
        return f"({message.error})".encode()
    return message.body


async def _follow(bootstrap: str, places: dict[MessageQueue, int], reading: Reading) -> None:
    from imago_client import Client

    async with Client(client_config(bootstrap)) as client:
        await _follow_all(client.pull_consumer(GROUP), places, reading)


async def _follow_all(
    consumer: AsyncPullConsumer, places: dict[MessageQueue, int], reading: Reading
) -> None:
    import asyncio

    enough = asyncio.Event()

    async def one(queue: MessageQueue, offset: int) -> None:
        while not reading.is_enough():
            pulled = await consumer.pull(
                queue,
                offset,
                tags=reading.tags,
                messages_max=1000,
                bulk_bytes=1 << 20,
                poll_s=15.0,
            )
            offset = _show(pulled, offset, reading)
        enough.set()

    tasks = [asyncio.create_task(one(queue, offset)) for queue, offset in places.items()]
    waiting = asyncio.create_task(enough.wait())
    try:
        done, _ = await asyncio.wait([waiting, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in (waiting, *tasks):
            task.cancel()
        await asyncio.gather(waiting, *tasks, return_exceptions=True)


def _metaq(servers: str, reading: Reading, group: str | None, offsets: Path | None) -> None:
    import asyncio

    from imago_client import Sql

    if reading.tags != "*":
        option = "--filter" if isinstance(reading.tags, Sql) else "--tags"
        raise CommandUsageError(f"{option}: MetaQ brokers do not filter", cure="read with rocketmq")
    asyncio.run(_read_metaq(servers, reading, group, offsets))


async def _read_metaq(
    servers: str, reading: Reading, group: str | None, offsets: Path | None
) -> None:
    from imago_client.metaq import MetaqClient

    async with MetaqClient(metaq_config(servers)) as client:
        known = await metaq_topics(client)
        if known is not None and reading.topic not in known:
            raise no_topic(reading.topic, known)
        if group is None and not reading.follow:
            count = await _get_all(client, reading)
            if known is None and count == 0:
                say(f"note: no partition of {reading.topic} has messages; it may be no topic")
        else:
            await _fetch(client, reading, group, offsets)


async def _get_all(client: MetaqClient, reading: Reading) -> int:
    """Read all partitions to their ends; return how many there are."""
    found = await client.partitions(reading.topic, group=GROUP)
    for partition, (low, high) in found.items():
        position = low if reading.start == EARLIEST else high
        size = 1 << 20
        while position < high and not reading.is_enough():
            fetched = await client.get(partition, position, group=GROUP, size_max=size)
            messages = list(fetched.messages())
            for message in messages:
                if reading.is_enough():
                    break
                reading.show(_metaq_row(message), message.payload)
            size *= 1 if messages else 2
            position = messages[-1].next_offset if messages else fetched.next_offset
    return len(found)


async def _fetch(
    client: MetaqClient, reading: Reading, group: str | None, offsets: Path | None
) -> None:
    from imago_client.metaq import FileOffsets, MetaqConsumerConfig

    enough = _future()

    async def handler(message: MetaqMessage) -> None:
        if enough.done() or not _shown(reading, _metaq_row(message), message.payload, enough):
            await _future()  # beyond --count: stopping cancels this

    if group is None:
        say("note: no --group was named, and so no positions are kept")
    elif offsets is None:
        say(f"note: MetaQ's brokers keep no positions: --offsets FILE would keep those of {group}")
    config = MetaqConsumerConfig(group=group or GROUP, from_end=reading.start == LATEST)
    store = FileOffsets(offsets) if offsets is not None else None
    async with client.consumer(config, [reading.topic], handler, offsets=store):
        await enough


def _metaq_row(message: MetaqMessage) -> dict[str, Any]:
    return {
        "topic": message.partition.topic,
        "server": message.partition.server,
        "partition": message.partition.number,
        "offset": message.offset,
        "id": message.message_id,
        "attribute": message.attribute,
    }
