"""Sends that do not simply go to their queue, without sockets: what they cost on the hot path.

    python -m bench.hot_waiting delay|timer|half|end|numbered CONNECTIONS ROUNDS [--profile]

`delay` waits one second and `timer` half of one, a thousand and five hundred rounds: each round
parks a message of 1 KiB a connection and delivers as many. `half` begins transactions, `end`
commits such, `numbered` are an idempotent producer's. Prints µs a message. `bench.gate` runs it
under callgrind.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from bench.hot_driver import (
    BODY,
    QUEUES,
    RoundClock,
    Wire,
    bench_broker,
    drive,
    measured,
    rocketmq_frame,
)
from imago_broker.app.process import settle_garbage_collector
from imago_broker.core.transactions.transactions import REMEMBERED_MAX, Outcome
from imago_broker.model import names
from imago_wire.record_format.layout import UNIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from imago_broker.app import Broker

WARM_ROUNDS = {"delay": 1030, "timer": 530, "half": 30, "end": 30, "numbered": 30}
"""More than a message waits: then as many are delivered as come."""
TIMES = {"delay": "DELAY\\u00011\\u0002", "timer": "TIMER_DELAY_MS\\u0001500\\u0002"}
MADE = {"delay": 2, "timer": 2, "half": 1, "end": 1, "numbered": 1}
"""Records of each message that the log gets in all, marks and firing records aside."""


def send(work: str, number: int, round_: int, connections: int) -> bytes:
    """SEND_MESSAGE_V2 as the Java client of version 5 writes it, with what asks for the work."""
    unique = f"UNIQ_KEY\\u0001{round_:016X}{number:016X}\\u0002WAIT\\u0001true\\u0002"
    flag = 0
    if work == "half":
        unique += "TRAN_MSG\\u0001true\\u0002PGROUP\\u0001bench_producer\\u0002"
        flag = 4
    elif work == "numbered":
        unique += (
            f"__IMAGO_PID\\u0001{number % connections:016x}\\u0002__IMAGO_EPOCH\\u00010\\u0002"
            f"__IMAGO_SEQ\\u0001{round_}\\u0002"
        )
    else:
        unique += TIMES[work]
    ext = (
        f'"a":"bench_producer","b":"bench","c":"TBW102","d":"4","e":"{number % QUEUES}",'
        f'"f":"{flag}","g":"1795258220883","h":"0","i":"{unique}","j":"0","k":"false","m":"false",'
        '"n":"shard-0"'
    )
    return rocketmq_frame(310, ext, number, BODY)


def commit(number: int, round_: int, queue_offset: int, place: int) -> bytes:
    """END_TRANSACTION for a half message."""
    unique = f"{round_:016X}{number:016X}"
    ext = (
        '"bname":"shard-0","producerGroup":"bench_producer",'
        f'"tranStateTableOffset":"{queue_offset}","commitLogOffset":"{place}",'
        '"commitOrRollback":"8","fromTransactionCheck":"false",'
        f'"msgId":"{unique}","transactionId":"{unique}"'
    )
    return rocketmq_frame(37, ext, number, b"")


async def run_rounds(
    sessions: Sequence[Any], rounds: Iterable[Sequence[bytes]], clock: RoundClock
) -> None:
    for reads in rounds:
        clock.now_ms += 1
        for session, data in zip(sessions, reads, strict=True):
            session.data_received(data)
        for _ in range(4):  # what the turn has put off follows in the next ones
            await asyncio.sleep(0)


def reads_of(work: str, first: int, count: int, connections: int) -> list[list[bytes]]:
    """The reads of all connections, round by round."""
    return [
        [send(work, number, round_, connections) for number in range(connections)]
        for round_ in range(first, first + count)
    ]


async def ends(
    broker: Broker, sessions: Sequence[Any], count: int, clock: RoundClock
) -> list[list[bytes]]:
    """Begin transactions; return the reads that commit them."""
    connections = len(sessions)
    await run_rounds(sessions, reads_of("half", 0, count, connections), clock)
    units = broker.store.units(names.HALF_TOPIC, 0, 0, count * connections)
    places: Iterator[tuple[int, int, int]] = UNIT.iter_unpack(units)
    return [
        [
            commit(number, round_, round_ * connections + number, next(places)[0])
            for number in range(connections)
        ]
        for round_ in range(count)
    ]


def remembered(broker: Broker) -> None:
    """Have as many transactions ended before as are remembered."""
    halves = broker.rocketmq.transactions.service.halves
    for number in range(REMEMBERED_MAX):
        halves.end(-1 - number, Outcome.COMMITTED)


async def timed_rounds(
    options: argparse.Namespace, broker: Broker, sessions: Sequence[Any], clock: RoundClock
) -> float:
    """Run all rounds; return the processor seconds of those that count."""
    warm = WARM_ROUNDS[options.work]
    total = warm + options.rounds
    if options.work == "end":
        remembered(broker)
        reads = await ends(broker, sessions, total, clock)
    else:
        reads = reads_of(options.work, 0, total, options.connections)
    await run_rounds(sessions, reads[:warm], clock)
    before = broker.messages.appended
    with measured(options) as taken:
        await run_rounds(sessions, reads[warm:], clock)
    made = broker.messages.appended - before
    least = options.connections * options.rounds * MADE[options.work]
    assert least <= made <= least * 1.2 + options.connections, f"made {made} records, not {least}"
    return taken.seconds


async def turns(options: argparse.Namespace, folder: str) -> float:
    """Run the rounds; return the seconds they took."""
    clock = RoundClock()
    async with bench_broker(folder, clock) as broker:
        sessions = []
        for _ in range(options.connections):
            session = broker.ports.rocketmq.protocol_factory()
            session.connection_made(Wire())
            sessions.append(session)
        settle_garbage_collector()
        with clock.rules(asyncio.get_running_loop()):
            seconds = await timed_rounds(options, broker, sessions, clock)
        for session in sessions:
            session.connection_lost(None)
    messages: int = options.connections * options.rounds
    return seconds / messages * 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_waiting", description=__doc__)
    parser.add_argument("work", choices=list(MADE))
    parser.add_argument("connections", type=int)
    parser.add_argument("rounds", type=int)
    return drive(parser, turns, arguments, unit="message")


if __name__ == "__main__":
    sys.exit(main())
