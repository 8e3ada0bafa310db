"""Idle, slow and stalled peers, at a time that the test turns."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.rocketmq.rows import build_table
from imago_broker.server.remoting.remoting_limits import RemotingLimits
from imago_broker.server.remoting.remoting_server import RemotingServer
from imago_broker.server.remoting.remoting_session import RemotingSession

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer


class Wire(asyncio.Transport):
    """A transport whose peer takes as much as the test says."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.1", 1)})
        self.unread = 0
        self.state = "open"
        self.reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The test calls pause_writing itself."""

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: Any) -> None:
        self.unread += len(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return self.state != "open"

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "aborted"


LIMITS = RemotingLimits(idle_ms=1000, input_stall_ms=300, output_stall_ms=300)


@pytest.fixture
async def session() -> RemotingSession:
    server = RemotingServer(table=build_table([]), loop=asyncio.get_running_loop(), limits=LIMITS)
    made = RemotingSession(server)
    made.connection_made(Wire())
    return made


def wire(session: RemotingSession) -> Wire:
    assert isinstance(session.transport, Wire)
    return session.transport


async def test_silent_connection_is_closed(session: RemotingSession) -> None:
    began = session.last_read_ms
    session.sweep(began + 1000)
    assert wire(session).state == "open"
    session.sweep(began + 1001)
    assert wire(session).state == "closed"


async def test_unfinished_frame_closes_the_connection(session: RemotingSession) -> None:
    began = session.last_read_ms
    session.data_received(b"\x00\x00\x00\x20\x00")
    session.sweep(began + 300)
    assert wire(session).state == "open"
    session.sweep(began + 301)
    assert wire(session).state == "closed"


async def test_slow_reader_is_borne_and_a_stalled_one_is_not(session: RemotingSession) -> None:
    now = session.last_read_ms
    wire(session).unread = 10_000
    session.pause_writing()
    for _ in range(20):
        now += 250
        session.last_read_ms = now
        wire(session).unread -= 1
        session.sweep(now)
    assert wire(session).state == "open"
    for _ in range(2):
        now += 250
        session.last_read_ms = now
        session.sweep(now)
    assert wire(session).state == "aborted"


async def test_reading_stays_paused_while_the_connection_drains(session: RemotingSession) -> None:
    session.pause_writing()
    session.drain()
    session.resume_writing()
    assert not wire(session).reading


async def test_first_connection_after_a_quiet_time_is_not_taken_for_idle(
    broker: Broker, connect: Callable[..., Awaitable[RemotingPeer]]
) -> None:
    listener = broker.ports.rocketmq
    factory: Any = listener.protocol_factory
    server = factory.__self__
    assert isinstance(server, RemotingServer)
    server.now_ms -= 10 * 60_000
    peer = await connect()
    for session in list(listener._sessions):
        session.sweep(time.monotonic_ns() // 1_000_000)
    assert (await peer.call(30, {"topic": "T", "queueId": 0})).code == 0
