"""`imago consume`: read messages through either protocol."""

from __future__ import annotations

import asyncio
import base64
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path  # noqa: TC003  typer reads the annotation
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_METAQ,
    AsJson,
    Bootstrap,
    MetaqServers,
    client_config,
    client_errors,
    metaq_config,
    metaq_topics,
    no_topic,
)
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.output import OutputClosedError, flush, say, write_bytes
from imago_cli.pace import Pace
from imago_cli.produce import Protocol
from imago_wire.properties import RESERVED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client import Client, MessageQueue, PullConsumer, ReceivedMessage
    from imago_client.metaq import MetaqClient, MetaqMessage


GROUP = "IMAGO_CLI"
"""As which it reads that names none."""


class FromOption(StrEnum):
    """Where to begin."""

    earliest = "earliest"
    latest = "latest"


@dataclass(slots=True)
class Reading:
    """What one run reads, and when it is enough."""

    topic: str
    tags: str
    start: FromOption
    count: int | None
    follow: bool
    as_json: bool
    pace: Pace

    def is_enough(self) -> bool:
        return self.count is not None and self.pace.count >= self.count

    def show(self, row: dict[str, Any], body: bytes) -> None:
        """Print one message."""
        if self.as_json:
            write_bytes(orjson.dumps(row | _body_json(body)) + b"\n")
        else:
            write_bytes(body + b"\n")
        self.pace.add(1, len(body))


def attach(root: typer.Typer) -> None:
    """Add the command."""
    root.command("consume", help=consume.__doc__)(consume)


def consume(
    topic: str,
    protocol: Annotated[Protocol, typer.Option(help="How to read.")] = Protocol.rocketmq,
    group: Annotated[
        str | None,
        typer.Option(help="Read as a member of this group: its queues, from its offsets on."),
    ] = None,
    start: Annotated[
        FromOption, typer.Option("--from", help="Where to begin without an offset of the group.")
    ] = FromOption.earliest,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    tags: Annotated[str, typer.Option(help="Only these tags, joined with ||.")] = "*",
    sql: Annotated[
        str | None,
        typer.Option("--filter", help="Only what SQL92 selects, as in `price > 5 AND TAGS = 'a'`."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Without a group: wait for more at the end.")
    ] = False,
    offsets: Annotated[
        Path | None, typer.Option(help="With MetaQ and a group: the file of its positions.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    metaq: MetaqServers = DEFAULT_METAQ,
    as_json: AsJson = False,
) -> None:
    """Print messages: their bodies, one a line, or with --json everything about them.

    Without --group it reads every queue to its present end and commits nothing. With it, it is a
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
    reading = Reading(topic, tags, start, count, follow, as_json, Pace("read", count))
    with client_errors():
        try:
            if protocol is Protocol.metaq:
                asyncio.run(_metaq(metaq, reading, group, offsets))
            else:
                asyncio.run(_rocketmq(bootstrap, reading, group))
        finally:
            flush()
            reading.pace.end()
            if sys.stderr.isatty():
                count, size = reading.pace.count, reading.pace.size
                messages = "message" if count == 1 else "messages"
                say(f"{count:,} {messages}, {size:,} {'byte' if size == 1 else 'bytes'}")


async def _rocketmq(bootstrap: str, reading: Reading, group: str | None) -> None:
    from imago_client import Client

    async with Client(client_config(bootstrap)) as client:
        if reading.topic not in (known := await client.admin.topics()):
            raise no_topic(reading.topic, known)
        if group is None:
            await _pull_all(client, reading)
        else:
            await _join(client, reading, group)


async def _join(client: Client, reading: Reading, group: str) -> None:
    from imago_client import ConsumerConfig, RetryLater, StartFrom

    enough = _future()

    async def handler(messages: Sequence[ReceivedMessage]) -> None:
        for message in messages:
            if enough.done():
                raise RetryLater  # beyond --count: not ours, the group gets it again
            if not _shown(reading, _row(message), _body(message), enough):
                raise RetryLater

    start = StartFrom.EARLIEST if reading.start is FromOption.earliest else StartFrom.LATEST
    config = ConsumerConfig(group=group, start_from=start, orderly=True, concurrency=1)
    async with client.push_consumer(config, {reading.topic: reading.tags}, handler):
        await enough


def _future() -> asyncio.Future[None]:
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


async def _pull_all(client: Client, reading: Reading) -> None:
    consumer = client.pull_consumer(GROUP)
    await consumer.check(reading.topic, reading.tags)
    places: dict[MessageQueue, int] = {}
    for queue in await consumer.queues(reading.topic):
        at_start = reading.start is FromOption.earliest
        places[queue] = await (consumer.min_offset if at_start else consumer.max_offset)(queue)
    if reading.follow:
        await _follow(consumer, places, reading)
        return
    for queue, offset in places.items():
        await _pull_queue(consumer, queue, offset, await consumer.max_offset(queue), reading)


async def _pull_queue(
    consumer: PullConsumer, queue: MessageQueue, offset: int, end: int, reading: Reading
) -> None:
    while offset < end and not reading.is_enough():
        offset = await _pull_once(consumer, queue, offset, reading, poll_s=0.0)


async def _pull_once(
    consumer: PullConsumer, queue: MessageQueue, offset: int, reading: Reading, *, poll_s: float
) -> int:
    pulled = await consumer.pull(
        queue, offset, tags=reading.tags, messages_max=1000, bulk_bytes=1 << 20, poll_s=poll_s
    )
    for message in pulled.messages():
        if reading.is_enough():
            break
        if message.error is not None and message.error.is_too_large and message.offset > offset:
            flush()
            return message.offset  # pulled again, it has the whole budget of an answer
        reading.show(_row(message), _body(message))
    flush()
    return pulled.next_offset


def _body(message: ReceivedMessage) -> bytes:
    """What is shown of a message: of a body that is too large, why it is not."""
    if message.error is not None and message.error.is_too_large:
        return f"({message.error})".encode()
    return message.body


async def _follow(
    consumer: PullConsumer, places: dict[MessageQueue, int], reading: Reading
) -> None:
    enough = asyncio.Event()

    async def one(queue: MessageQueue, offset: int) -> None:
        while not reading.is_enough():
            offset = await _pull_once(consumer, queue, offset, reading, poll_s=15.0)
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


async def _metaq(servers: str, reading: Reading, group: str | None, offsets: Path | None) -> None:
    from imago_client import Sql
    from imago_client.metaq import MetaqClient

    if reading.tags != "*":
        option = "--filter" if isinstance(reading.tags, Sql) else "--tags"
        raise CommandUsageError(f"{option}: MetaQ brokers do not filter", cure="read with rocketmq")
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
        position = low if reading.start is FromOption.earliest else high
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
            await asyncio.Event().wait()  # beyond --count: stopping cancels this

    if group is None:
        say("note: no --group was named, and so no positions are kept")
    elif offsets is None:
        say(f"note: MetaQ's brokers keep no positions: --offsets FILE would keep those of {group}")
    config = MetaqConsumerConfig(group=group or GROUP, from_end=reading.start is FromOption.latest)
    store = FileOffsets(offsets) if offsets is not None else None
    async with client.consumer(config, [reading.topic], handler, offsets=store):
        await enough


def _row(message: ReceivedMessage) -> dict[str, Any]:
    properties = {name: value for name, value in message.properties.items() if name not in RESERVED}
    return {
        "topic": message.topic,
        "shard": message.queue.shard,
        "queue": message.queue.queue_id,
        "offset": message.offset,
        "id": message.message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "bornMs": message.stored.born_ms,
        "storeMs": message.stored.store_ms,
        "reconsumeTimes": message.reconsume_times,
        "properties": properties,
    }


def _metaq_row(message: MetaqMessage) -> dict[str, Any]:
    return {
        "topic": message.partition.topic,
        "server": message.partition.server,
        "partition": message.partition.number,
        "offset": message.offset,
        "id": message.message_id,
        "attribute": message.attribute,
    }


def _body_json(body: bytes) -> dict[str, str]:
    """The body as text, or in base 64 where it is none."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}
