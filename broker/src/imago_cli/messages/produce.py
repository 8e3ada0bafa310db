"""`imago produce`: send messages through either protocol."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from pathlib import Path  # noqa: TC003  a type of what the command takes
from typing import TYPE_CHECKING, Annotated, Final

from imago_cli.connect import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    MetaqServers,
    Protocol,
    client_config,
    client_errors,
    connected,
    metaq_config,
    metaq_servers,
    metaq_topics,
    no_topic,
)
from imago_cli.exits import CommandError, CommandUsageError
from imago_cli.line.declared import Argument, CommandGroup, Option
from imago_cli.messages.outgoing import ToSend, headers_of, to_send
from imago_cli.messages.pace import Pace
from imago_cli.output import print_json, say
from imago_cli.times import TIME_HELP, time_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from imago_client import BrokerError, Message, ProducerConfig


SEND_TIMEOUT_S = 15.0
"""Nobody tries again for who types a command: it waits for an election, which takes as long as the
ZooKeeper session of a dead master lives, and for the start of a broker on a busy machine."""
DELAY_S_MAX = 7 * 86_400
"""No broker lets a message wait longer."""
FEW: Final = 16
"""So many messages, given in the line, go one after the other: an event loop costs more than they
wait for each other."""


@dataclass(frozen=True, slots=True)
class ProduceRun:
    """What every message of one run has."""

    topic: str
    key: str | None
    tags: str | None
    idempotent: bool
    create: bool
    delay_ms: int
    deliver_at_ms: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    transaction: bool = False


def attach(root: CommandGroup) -> None:
    """Add the command."""
    root.add("produce", produce)


def produce(
    topic: str,
    message: Annotated[
        list[str] | None, Argument(help="Messages; without any, the lines of stdin.")
    ] = None,
    files: Annotated[
        list[Path] | None, Option("--file", help="Send this file's content. Repeatable.")
    ] = None,
    separator: Annotated[
        str | None,
        Option("--key-separator", "-K", help="Each message begins with its key, up to this."),
    ] = None,
    json_records: Annotated[
        bool,
        Option(
            "--json-records",
            help="Each line is a record as `imago consume --json` prints them: body or bodyBase64,"
            " keys, tags, properties.",
        ),
    ] = False,
    headers: Annotated[
        list[str] | None,
        Option("--header", "-H", help="NAME=VALUE, a property of each. RocketMQ only."),
    ] = None,
    protocol: Annotated[Protocol, Option(help="Protocol to send with.")] = Protocol.rocketmq,
    key: Annotated[
        str | None,
        Option(help="Look-up key; one key's messages go to one queue. RocketMQ only."),
    ] = None,
    tags: Annotated[str | None, Option(help="Tag; MetaQ's attribute.")] = None,
    count: Annotated[int, Option(least=1, help="How often to send each message.")] = 1,
    idempotent: Annotated[
        bool, Option(help="Store each message once, whatever fails. RocketMQ only.")
    ] = False,
    delay: Annotated[
        float,
        Option(
            least=0,
            most=DELAY_S_MAX,
            help="Seconds until the messages are delivered. RocketMQ only.",
        ),
    ] = 0.0,
    at: Annotated[str | None, Option(help=f"When to deliver: {TIME_HELP}. RocketMQ only.")] = None,
    transaction: Annotated[
        bool,
        Option(
            "--transaction",
            help="Readers see all of the messages or none, even if the command is killed. All go "
            "to one shard, so a key's queue may be another than without this. RocketMQ only.",
        ),
    ] = False,
    rate: Annotated[
        float | None, Option(least=0.001, most=1_000_000, help="Messages a second, at most.")
    ] = None,
    in_flight: Annotated[
        int | None,
        Option(
            least=1,
            most=4096,
            help="Concurrent sends.",
            show_default="64, and 1 with --key: in order",
        ),
    ] = None,
    create: Annotated[bool, Option("--create", help="Create the topic if it is missing.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    metaq: MetaqServers = None,
    as_json: AsJson = False,
) -> None:
    """Send messages, each acknowledged by a broker. Exit code 1 if any was not."""
    properties = headers_of(headers)
    sending = ProduceRun(
        topic,
        key,
        tags,
        idempotent,
        create,
        round(delay * 1000),
        _deliver_at(at),
        properties,
        transaction,
    )
    _check(sending, protocol, separator, json_records=json_records)
    given = (len(message or ()) + len(files or ())) * count
    sent = to_send(message, files, separator=separator, json_records=json_records, count=count)
    bodies = sent if rate is None else at_rate(sent, rate)
    pace = Pace("sent", given or None)
    at_once = in_flight or (1 if key or separator is not None else 64)
    with client_errors():
        try:
            if protocol is Protocol.metaq:
                import asyncio

                servers = metaq_servers(bootstrap, metaq)
                if create:
                    _create_for_metaq(bootstrap, topic, named=metaq is not None)
                asyncio.run(_metaq(servers, sending, bodies, pace, at_once))
            else:
                few = 0 < given <= FEW and rate is None and not transaction
                _rocketmq(bootstrap, sending, bodies, pace, 0 if few else at_once)
        finally:
            pace.end()
            failed = sys.exc_info()[0] is not None
            if not failed or (not transaction and (as_json or pace.count)):
                _report(pace, as_json=as_json)  # of a failed transaction all is said by now


def _check(
    sending: ProduceRun, protocol: Protocol, separator: str | None, *, json_records: bool
) -> None:
    """Refuse what cannot go together."""
    metaq = protocol is Protocol.metaq
    late, at = sending.delay_ms > 0, sending.deliver_at_ms is not None
    refusals = {
        "--key: MetaQ messages have no keys; use --tags": metaq and sending.key is not None,
        "--idempotent: not possible through MetaQ": metaq and sending.idempotent,
        "--delay: possible neither through MetaQ nor with --idempotent": late
        and (metaq or sending.idempotent),
        "--at: possible neither through MetaQ nor with --idempotent or --delay": at
        and (metaq or sending.idempotent or late),
        "--transaction: possible neither through MetaQ nor with --idempotent, --delay or --at": (
            sending.transaction and (metaq or sending.idempotent or late or at)
        ),
        "--header: MetaQ messages have no properties": metaq and bool(sending.properties),
        "--key-separator: MetaQ messages have no keys": metaq and separator is not None,
        "--key-separator: not beside --json-records": separator is not None and json_records,
        "--key-separator: is empty": separator == "",
    }
    for said, is_so in refusals.items():
        if is_so:
            raise CommandUsageError(said, cure="leave one of them out")


def _deliver_at(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return time_of(text, time.time_ns() // 1_000_000)
    except ValueError:
        raise CommandUsageError(f"--at {text!r} is no time", cure=TIME_HELP) from None


async def at_rate(sent: AsyncIterator[ToSend], rate: float) -> AsyncIterator[ToSend]:
    """Yield so many a second at most, evenly; who was held up catches up on nothing."""
    import asyncio

    loop = asyncio.get_running_loop()
    due = loop.time()
    async for one in sent:
        await asyncio.sleep(due - loop.time())
        yield one
        due = max(due + 1 / rate, loop.time())


def _rocketmq(
    bootstrap: str,
    sending: ProduceRun,
    bodies: AsyncIterator[ToSend],
    pace: Pace,
    in_flight: int,
) -> None:
    from imago_client import BrokerError
    from imago_client.blocking.faces import completed_each
    from imago_client.messages import check_tag

    if sending.tags:
        check_tag(sending.tags)  # before a topic is made for it
    with connected(bootstrap) as client:
        if sending.create:
            client.admin.create_topic(sending.topic)
        elif sending.topic not in (known := client.admin.topics()):
            raise no_topic(sending.topic, known, otherwise="--create makes it")
        if in_flight == 0:
            producer = client.producer(_producer_config(sending), idempotent=sending.idempotent)
            for one in completed_each(bodies):
                try:
                    producer.send(_message(sending, one))
                except BrokerError as error:
                    raise _refusal(error, sending) from None
                pace.add(1, len(one.body))
            return
    import asyncio

    asyncio.run(_send_side_by_side(bootstrap, sending, bodies, pace, in_flight))


def _message(sending: ProduceRun, one: ToSend) -> Message:
    from imago_client import Message

    own = ((sending.key,) if sending.key else ()) if one.keys is None else one.keys
    return Message(
        sending.topic,
        one.body,
        tags=one.tags or sending.tags,
        keys=own,
        ordering_key=own[0] if own else None,
        delay_ms=sending.delay_ms,
        deliver_at_ms=sending.deliver_at_ms,
        properties={**sending.properties, **one.properties},
    )


async def _send_side_by_side(
    bootstrap: str, sending: ProduceRun, bodies: AsyncIterator[ToSend], pace: Pace, in_flight: int
) -> None:
    from imago_client import BrokerError, Client

    async with Client(client_config(bootstrap)) as client:

        async def send(one: ToSend) -> None:
            try:
                await hand_over(_message(sending, one))
            except BrokerError as error:
                raise _refusal(error, sending) from None

        config = _producer_config(sending)
        if sending.transaction:
            from imago_cli.messages.in_transaction import all_or_none

            async with all_or_none(client, config, sending.topic) as hand_over:
                await send_all(bodies, send, pace, in_flight)
        else:
            hand_over = client.producer(config, idempotent=sending.idempotent).send
            await send_all(bodies, send, pace, in_flight)


def _producer_config(sending: ProduceRun) -> ProducerConfig:
    from imago_client import ProducerConfig

    if sending.idempotent:  # it tries for longer anyway
        return ProducerConfig()
    return ProducerConfig(send_timeout_s=SEND_TIMEOUT_S)


def _refusal(error: BrokerError, sending: ProduceRun) -> Exception:
    """Return the error to raise: of a message that may not wait so long, with what to do."""
    from imago_wire.remoting.codes import ResponseCode

    is_late = sending.delay_ms or sending.deliver_at_ms is not None
    if is_late and error.code == ResponseCode.MESSAGE_ILLEGAL:
        cure = (
            "a shorter --delay or an earlier --at, or a larger rocketmq.timer_delay_ms_max of the"
            " brokers"
        )
        return CommandError(str(error), cure=cure)
    return error


def _create_for_metaq(bootstrap: str, topic: str, *, named: bool) -> None:
    """Make a topic, which no command of MetaQ's does; original brokers alone make it by a put."""
    from imago_client.errors import ConnectionLostError

    try:
        with connected(bootstrap) as client:
            client.admin.create_topic(topic)
    except CommandError as error:
        if not named or not isinstance(error.__cause__, ConnectionLostError):
            raise
        say(f"note: no name service at {bootstrap} makes the topic; a put may")


async def _metaq(
    servers: str, sending: ProduceRun, bodies: AsyncIterator[ToSend], pace: Pace, in_flight: int
) -> None:
    from imago_client.metaq import MetaqClient

    async with MetaqClient(metaq_config(servers)) as client:
        # Whether a put to a new topic makes it is for the brokers to say.
        known = None if sending.create else await metaq_topics(client)
        if known is not None and sending.topic not in known:
            raise no_topic(sending.topic, known, otherwise="--create makes it")
        producer = client.producer()

        async def send(one: ToSend) -> None:
            if one.keys or one.properties:
                raise CommandUsageError(
                    "--json-records: MetaQ messages have neither keys nor properties",
                    cure="leave --protocol out",
                )
            await producer.send(sending.topic, one.body, attribute=one.tags or sending.tags)

        await send_all(bodies, send, pace, in_flight)


async def send_all(
    bodies: AsyncIterator[ToSend],
    send: Callable[[ToSend], Awaitable[None]],
    pace: Pace,
    in_flight: int,
) -> None:
    """Send with a bounded number at once; the first error stops it, and is raised."""
    import asyncio

    from imago_cli.messages.side_by_side import side_by_side

    taking = asyncio.Lock()

    async def work() -> None:
        # The workers share one iterator: each takes the next body when it is done with its last.
        while True:
            async with taking:
                one = await anext(bodies, None)
            if one is None:
                return
            await send(one)
            pace.add(1, len(one.body))

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
        rate = f", {pace.rate:,.0f}/s" if pace.count > 1 else ""
        size = f"{pace.size:,} {'byte' if pace.size == 1 else 'bytes'}"
        say(f"{pace.count:,} sent, {size}{rate}")
