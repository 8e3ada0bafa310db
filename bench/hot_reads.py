"""The broker's read path without its event loop's sockets: catching up, a request at a time.

    python -m bench.hot_reads get|first|pull|follow CONNECTIONS ROUNDS [--profile]

Each round every connection asks once and reads on: `get` 100 messages out of MetaQ's files, by
sendfile into a real socket; `first` 250 that are made from records of the log, by a broker that was
started again, as for the first MetaQ reader of a backlog; `pull` 32 records of the log; `follow`
waits at the end of its queue, and gets the one message that is put then. Prints µs a request.
`bench.gate` runs it under callgrind and counts instructions.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import time
from functools import partial
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
from bench.hot_path import metaq_put
from imago_broker.app.process import settle_garbage_collector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.app import Broker

MESSAGES = {"get": 100, "first": 250, "pull": 32, "follow": 1}
WARM_ROUNDS = 5
BATCH = 64
"""Messages put at once where a backlog is made."""
FILES_WAIT_SECONDS = 60.0
METAQ_SIZE = 20 + len(BODY)


class Loopback(Wire):
    """A transport over a pair of sockets: what is sent past it can be read at the other end."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        super().__init__(socket=ours)

    def taken(self) -> int:
        """Return how many bytes were sent in either way since the last call."""
        size, self.written = self.written, 0
        while True:
            try:
                size += len(self._theirs.recv(1 << 20, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return size


def request(protocol: str, queue: int, at: int) -> bytes:
    """Return the request for the messages from number `at` of a queue on."""
    count = MESSAGES[protocol]
    if protocol in {"get", "first"}:
        size = METAQ_SIZE * count
        return b"get bench group %d %d %d %d\r\n" % (queue, at * METAQ_SIZE, size, at)
    ext = (
        f'"queueId":"{queue}","maxMsgBytes":"4194304","maxMsgNums":"32","sysFlag":"6",'
        f'"suspendTimeoutMillis":"15000","commitOffset":"0","topic":"bench","queueOffset":"{at}",'
        '"expressionType":"TAG","subscription":"*","subVersion":"0","consumerGroup":"group"'
    )
    return rocketmq_frame(11, ext, at, b"")


async def fill(broker: Broker, count: int, *, files: bool) -> None:
    """Put so many messages into each queue; with `files` have MetaQ's files of all written."""
    session = broker.ports.metaq.protocol_factory()
    session.connection_made(Wire())
    for first in range(0, count * QUEUES, BATCH):
        session.data_received(b"".join(map(metaq_put, range(first, first + BATCH))))
        await asyncio.sleep(0)
    if files:
        await write_files(broker)
    session.connection_lost(None)


async def write_files(broker: Broker) -> None:
    """Have MetaQ's files of all messages written."""
    broker.topics.materialise("bench")
    parts = broker.store.components.storage
    deadline = time.monotonic() + FILES_WAIT_SECONDS
    while any(partition.behind for partition in parts.materialiser) or not len(parts.queues):
        if time.monotonic() > deadline:
            raise SystemExit("MetaQ's files were not written in time")
        broker.store.tick()
        await asyncio.sleep(0.01)


async def follow(
    broker: Broker, sessions: Sequence[tuple[Any, Loopback, list[bytes]]], rounds: range
) -> int:
    """Have every connection wait once a round, and put a message for each; return as `read_on`."""
    putter, size = broker.ports.metaq.protocol_factory(), 0
    putter.connection_made(Wire())
    for turn in rounds:
        for session, _, asked in sessions:
            session.data_received(asked[turn])
        for number in range(QUEUES):
            putter.data_received(metaq_put(number))
        await asyncio.sleep(0)
        for session, wire, _ in sessions:
            session.channel.flush()
            size += wire.taken()
    putter.connection_lost(None)
    return size


async def read_on(
    protocol: str, sessions: Sequence[tuple[Any, Loopback, list[bytes]]], rounds: range
) -> int:
    """Have every connection ask once a round; return how many bytes that gave."""
    size = 0
    for turn in rounds:
        for session, wire, asked in sessions:
            session.data_received(asked[turn])
            if protocol == "pull":
                session.channel.flush()
            size += wire.taken()
    return size


def connect(
    broker: Broker, protocol: str, connections: int, places: Sequence[int]
) -> list[tuple[Any, Loopback, list[bytes]]]:
    """Open the connections, each with its requests for these places of a queue."""
    metaq = protocol in {"get", "first"}
    listener = broker.ports.metaq if metaq else broker.ports.rocketmq
    sessions = []
    for number in range(connections):
        session, wire = listener.protocol_factory(), Loopback()
        session.connection_made(wire)
        asked = [request(protocol, number % QUEUES, place) for place in places]
        sessions.append((session, wire, asked))
    return sessions


async def rounds(options: argparse.Namespace, folder: str) -> float:
    """Fill, then read on; return the seconds that the rounds took."""
    protocol, count = options.protocol, MESSAGES[options.protocol]
    turns = options.rounds + WARM_ROUNDS
    clock = RoundClock()
    if protocol == "first":
        async with bench_broker(folder, clock) as broker:
            await fill(broker, turns * count, files=False)
    async with bench_broker(folder, clock) as broker:
        begin = 0
        if protocol == "follow":
            await fill(broker, 1, files=False)
            begin = BATCH // QUEUES
        elif protocol != "first":
            await fill(broker, turns * count, files=True)
        places = [begin + turn * count for turn in range(turns)]
        sessions = connect(broker, protocol, options.connections, places)
        settle_garbage_collector()
        read = partial(follow, broker) if protocol == "follow" else partial(read_on, protocol)
        await read(sessions, range(WARM_ROUNDS))
        with measured(options) as taken:
            size = await read(sessions, range(WARM_ROUNDS, turns))
        asked_for: int = options.connections * options.rounds * count
        assert size > asked_for * len(BODY), f"{size} bytes were sent for {asked_for} messages"
        for session, _, _ in sessions:
            session.connection_lost(None)
    return taken.seconds / asked_for * count * 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hot_reads", description=__doc__)
    parser.add_argument("protocol", choices=list(MESSAGES))
    parser.add_argument("connections", type=int)
    parser.add_argument("rounds", type=int)
    return drive(parser, rounds, arguments, unit="request")


if __name__ == "__main__":
    sys.exit(main())
