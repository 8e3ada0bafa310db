"""`imago produce`: send messages through either protocol."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

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
from imago_cli.output import print_json, say
from imago_cli.pace import Pace
from imago_cli.side_by_side import side_by_side
from imago_cli.stdin_lines import lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from imago_client import BrokerError, ProducerConfig


SEND_TIMEOUT_S = 15.0
"""Nobody tries again for who types a command: it waits for an election, which takes as long as the
ZooKeeper session of a dead master lives, and for the start of a broker on a busy machine."""
DELAY_S_MAX = 7 * 86_400
"""No broker lets a message wait longer."""


class Protocol(StrEnum):
    """Which of the two protocols to speak."""

    rocketmq = "rocketmq"
    metaq = "metaq"


@dataclass(frozen=True, slots=True)
class ProduceRun:
    """What every message of one run has."""

    topic: str
    key: str | None
    tags: str | None
    idempotent: bool
    create: bool
    delay_ms: int


def attach(root: typer.Typer) -> None:
    """Add the command."""
    root.command("produce", help=produce.__doc__)(produce)


def produce(
    topic: str,
    message: Annotated[
        list[str] | None, typer.Argument(help="Messages; without any, the lines of stdin.")
    ] = None,
    protocol: Annotated[Protocol, typer.Option(help="Protocol to send with.")] = Protocol.rocketmq,
    key: Annotated[
        str | None,
        typer.Option(help="Look-up key; one key's messages go to one queue. RocketMQ only."),
    ] = None,
    tags: Annotated[str | None, typer.Option(help="Tag; MetaQ's attribute.")] = None,
    count: Annotated[int, typer.Option(min=1, help="How often to send each message.")] = 1,
    idempotent: Annotated[
        bool, typer.Option(help="Store each message once, whatever fails. RocketMQ only.")
    ] = False,
    delay: Annotated[
        float,
        typer.Option(
            min=0, max=DELAY_S_MAX, help="Seconds until the messages are delivered. RocketMQ only."
        ),
    ] = 0.0,
    in_flight: Annotated[
        int | None,
        typer.Option(
            min=1, max=4096, help="Concurrent sends.", show_default="64, and 1 with --key: in order"
        ),
    ] = None,
    create: Annotated[
        bool, typer.Option("--create", help="Create the topic if it is missing.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    metaq: MetaqServers = DEFAULT_METAQ,
    as_json: AsJson = False,
) -> None:
    """Send messages, each acknowledged by a broker. Exit code 1 if any was not."""
    if protocol is Protocol.metaq and key is not None:
        raise CommandUsageError(
            "--key: MetaQ messages have no keys", cure="use --tags, or leave it out"
        )
    if protocol is Protocol.metaq and idempotent:
        raise CommandUsageError(
            "--idempotent: not possible through MetaQ", cure="leave --protocol out"
        )
    if delay and (protocol is Protocol.metaq or idempotent):
        raise CommandUsageError(
            "--delay: possible neither through MetaQ nor with --idempotent",
            cure="leave one of them out",
        )
    sending = ProduceRun(topic, key, tags, idempotent, create, round(delay * 1000))
    bodies = _bodies(message, count)
    pace = Pace("sent", len(message) * count if message else None)
    at_once = in_flight or (1 if key else 64)
    with client_errors():
        try:
            if protocol is Protocol.metaq:
                asyncio.run(_metaq(metaq, sending, bodies, pace, at_once))
            else:
                asyncio.run(_rocketmq(bootstrap, sending, bodies, pace, at_once))
        finally:
            pace.end()
            if as_json or pace.count or sys.exc_info()[0] is None:
                _report(pace, as_json=as_json)


async def _bodies(messages: list[str] | None, count: int) -> AsyncIterator[bytes]:
    if messages:
        for message in messages:
            for _ in range(count):
                yield os.fsencode(message)
        return
    async for line in lines():
        for _ in range(count):
            yield line


async def _rocketmq(
    bootstrap: str, sending: ProduceRun, bodies: AsyncIterator[bytes], pace: Pace, in_flight: int
) -> None:
    from imago_client import BrokerError, Client, Message

    keys = (sending.key,) if sending.key else ()
    async with Client(client_config(bootstrap)) as client:
        if sending.create:
            await client.admin.create_topic(sending.topic)
        elif sending.topic not in (known := await client.admin.topics()):
            raise no_topic(sending.topic, known, otherwise="--create makes it")
        producer = client.producer(_producer_config(sending), idempotent=sending.idempotent)

        async def send(body: bytes) -> None:
            message = Message(
                sending.topic,
                body,
                tags=sending.tags,
                keys=keys,
                ordering_key=sending.key,
                delay_ms=sending.delay_ms,
            )
            try:
                await producer.send(message)
            except BrokerError as error:
                raise _refusal(error, sending) from None

        await send_all(bodies, send, pace, in_flight)


def _producer_config(sending: ProduceRun) -> ProducerConfig:
    from imago_client import ProducerConfig

    if sending.idempotent:  # it tries for longer anyway
        return ProducerConfig()
    return ProducerConfig(send_timeout_s=SEND_TIMEOUT_S)


def _refusal(error: BrokerError, sending: ProduceRun) -> Exception:
    """Return the error to raise: of a message that may not wait so long, with what to do."""
    from imago_wire.remoting.codes import ResponseCode

    if sending.delay_ms and error.code == ResponseCode.MESSAGE_ILLEGAL:
        cure = "a shorter --delay, or a larger rocketmq.timer_delay_ms_max of the brokers"
        return CommandError(str(error), cure=cure)
    return error


async def _metaq(
    servers: str, sending: ProduceRun, bodies: AsyncIterator[bytes], pace: Pace, in_flight: int
) -> None:
    from imago_client.metaq import MetaqClient

    async with MetaqClient(metaq_config(servers)) as client:
        # Whether a put to a new topic makes it is for the brokers to say.
        known = None if sending.create else await metaq_topics(client)
        if known is not None and sending.topic not in known:
            raise no_topic(sending.topic, known, otherwise="--create makes it")
        producer = client.producer()

        async def send(body: bytes) -> None:
            await producer.send(sending.topic, body, attribute=sending.tags)

        await send_all(bodies, send, pace, in_flight)


async def send_all(
    bodies: AsyncIterator[bytes],
    send: Callable[[bytes], Awaitable[None]],
    pace: Pace,
    in_flight: int,
) -> None:
    """Send with a bounded number at once; the first error stops it, and is raised."""

    taking = asyncio.Lock()

    async def work() -> None:
        # The workers share one iterator: each takes the next body when it is done with its last.
        while True:
            async with taking:
                body = await anext(bodies, None)
            if body is None:
                return
            await send(body)
            pace.add(1, len(body))

    await side_by_side(work, in_flight)


def _report(pace: Pace, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "sent": pace.count,
                "bytes": pace.size,
                "seconds": round(pace.seconds, 3),
                "perSecond": round(pace.rate, 1),
            }
        )
    else:
        say(f"{pace.count:,} sent, {pace.size:,} bytes, {pace.rate:,.0f}/s")
