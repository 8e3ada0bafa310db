"""One connection of the gRPC port: bytes to calls, answers to bytes, in bounded memory.

HTTP/2 itself is `imago_wire.grpc.connection`; here is what needs a transport and a clock. Answers
of one turn leave in one write. A connection is not read while its peer does not take its answers,
while its user has used up a quota, and while all connections hold too much that is not whole.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from imago_broker.server.grpc.grpc_calls import GrpcCalls
from imago_broker.server.grpc.grpc_relay import RELAYED
from imago_broker.server.peer_address import peer_bytes, peer_text
from imago_broker.server.session import Session
from imago_broker.server.unfinished import Unfinished
from imago_broker.server.write_backlog import WriteBacklog
from imago_wire.grpc.connection import Http2Connection

if TYPE_CHECKING:
    from imago_broker.server.grpc.grpc_port import GrpcPort
    from imago_broker.server.grpc.grpc_relay import GrpcRelay

log = logging.getLogger(__name__)

LEAVE_SECONDS = 1.0
"""How long a peer that was told to leave has for the calls that it has begun."""


class GrpcSession(Session):
    """One connection."""

    def __init__(self, port: GrpcPort) -> None:
        self._port = port
        self.write_backlog = WriteBacklog(port.budget)
        self.unfinished = Unfinished(port.input_budget, self)
        self._http = Http2Connection(port.limits.http2)
        self._calls = GrpcCalls(port.service, self._http, self, self._flush_soon)
        self._calls.used_ms = self._calls.now_ms = time.monotonic_ns() // 1_000_000
        self._partial_since_ms = 0
        self._peer_reads = True
        self._paused: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._closed = False
        self._begun = self._passed_on = self._leaving = False
        """Whether something has come; whether a member has passed it on; whether it is to end."""
        self._relay: GrpcRelay | None = None
        """What has the connection, where the master serves it."""
        self.peer = self.shown_address = ""
        self.born_host = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, number = self.peer_name[0] or "0.0.0.0", self.peer_name[1]  # noqa: S104
        self.born_host, self.shown_address = peer_bytes(host, number), peer_text(host)
        self.peer = f"{self.shown_address}:{number}"
        self.transport.set_write_buffer_limits(high=self._port.limits.output_bytes_pause)
        self.opened()
        if not self._served_elsewhere:
            self._flush()

    @property
    def _served_elsewhere(self) -> bool:
        """Whether the master serves connections like this one, and is another broker."""
        relays = self._port.relays
        if relays is None or self._passed_on or self.introduced is not None:
            return False
        return relays.to() is not None

    def data_received(self, data: bytes) -> None:
        if self._relay is not None:
            self._relay.data_received(data)
            return
        if not self._begun:
            self._begun = True
            if data[:1] == RELAYED:
                self._passed_on, data = True, data[1:]
            elif self._served_elsewhere and self._pass_on_to_master(data):
                return
        self._take_in(data)

    def _pass_on_to_master(self, data: bytes) -> bool:
        assert self._port.relays is not None
        self._relay = self._port.relays.open(self, self, data)
        return self._relay is not None

    def serve_here(self, data: bytes) -> None:
        """Serve the connection, of which this has come: the master was not reached."""
        self._relay = None
        if not self._closed:
            self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        self._calls.serve(self._http.feed(data))
        partial = self._http.buffered
        self._partial_since_ms = (self._partial_since_ms or self._calls.now_ms) if partial else 0
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._closed:
            return
        self._calls.look_all()
        if held := self._http.buffered + self._calls.begun_bytes:
            self.unfinished.note(held)
        else:
            self.unfinished.left(0)
        if data := self._http.take_output():
            self.transport.write(data)
        waiting = self.transport.get_write_buffer_size() + self._http.unsent
        self.write_backlog.count(waiting)
        if waiting > self._port.limits.output_bytes_max:
            log.info("connection_aborted peer=%s reason=reads_nothing", self.peer)
            self.abort()
        elif self._http.closing:
            log.info("connection_closed peer=%s reason=%s", self.peer, self._http.closing)
            self.transport.close()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._relay is not None:
            self._relay.end()
        if self._paused is not None:
            self._paused.cancel()
        self._calls.end_all()
        del self._calls  # each knows the other: together they would stay until a collection
        self.write_backlog.count(0)
        self.unfinished.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Read nothing more of a peer that does not take its answers."""
        self._peer_reads = False
        if self._relay is not None:
            self._relay.client_slow(True)
        self.steer_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._peer_reads = True
        if self._relay is not None:
            self._relay.client_slow(False)
        self.steer_reading()

    def throttle(self, milliseconds: float) -> None:
        """Read nothing more for so long."""
        if self._closed:
            return
        if self._paused is not None:
            self._paused.cancel()
        loop = asyncio.get_running_loop()
        self._paused = loop.call_later(milliseconds / 1000, self._go_on)
        self.steer_reading()

    def _go_on(self) -> None:
        self._paused = None
        self.steer_reading()

    def steer_reading(self) -> None:
        """Read, or do not, as everything says that has a say in it."""
        if self._closed or self._relay is not None or self.transport.is_closing():
            return
        if self._peer_reads and self._paused is None and not self.unfinished.waits:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def drain(self) -> None:
        """Begin no more calls; those that are under way have a little time."""
        if self._closed:
            return
        if self._relay is not None:
            self.transport.close()
            return
        self._http.leave()
        self._flush()
        delay = LEAVE_SECONDS if self._calls else 0.0
        asyncio.get_running_loop().call_later(delay, self.transport.close)

    def sweep(self, now_ms: int) -> None:
        """Close a connection that is idle, or whose peer stopped in the middle."""
        self._calls.now_ms = now_ms
        if self._relay is not None:
            self._sweep_relay(self._relay)
            return
        if self._begun and not self._leaving and self._served_elsewhere:
            self._leaving = True
            self.drain()  # it comes again, and is passed on
            return
        self._http.tick()
        limits = self._port.limits
        waiting = self.transport.get_write_buffer_size() + self._http.unsent
        self.write_backlog.count(waiting)
        if self.write_backlog.stalled_ms(waiting, now_ms) > limits.output_stall_ms:
            log.info("connection_aborted peer=%s reason=reads_nothing", self.peer)
            self.abort()
            return
        if self._partial_since_ms and now_ms - self._partial_since_ms > limits.input_stall_ms:
            self._close("unfinished_message")
        elif self._calls:
            self._calls.sweep(limits.input_stall_ms)
        elif now_ms - self._calls.used_ms > limits.idle_ms:
            self._close("idle")
        elif not self._http.greeted and now_ms - self._calls.used_ms > limits.input_stall_ms:
            self._close("no_request")
        self._flush()

    def _sweep_relay(self, relay: GrpcRelay) -> None:
        """End a connection that is passed on to a broker which is the master no more."""
        relays = self._port.relays
        if relays is None or relays.to() != relay.to:
            self.transport.close()

    def close(self) -> None:
        """Close the connection: its client is silent, or was told to leave."""
        self._close("silent")

    def _close(self, reason: str) -> None:
        log.info("connection_closed peer=%s reason=%s", self.peer, reason)
        self._http.leave()
        self._flush()
        self.transport.close()
