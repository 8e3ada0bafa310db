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

from imago_broker.server.grpc.grpc_stream import GrpcStream
from imago_broker.server.peer_address import peer_bytes, peer_text
from imago_broker.server.session import Session
from imago_broker.server.unfinished import Unfinished
from imago_broker.server.write_backlog import WriteBacklog
from imago_wire.grpc import headers as heads
from imago_wire.grpc.connection import Http2Connection
from imago_wire.grpc.events import CallOpened, Came, Ended
from imago_wire.grpc.streams import UNIMPLEMENTED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_broker.server.grpc.grpc_port import GrpcPort
    from imago_wire.grpc.events import Event

log = logging.getLogger(__name__)

LEAVE_SECONDS = 1.0
"""How long a peer that was told to leave has for the calls that it has begun."""


STREAM_BYTES = 2048
"""What a call takes before its request has come, beside what its headers say. A table shortens
headers, so that a byte on the wire may be kilobytes here: what they say counts as input."""


class GrpcSession(Session):
    """One connection."""

    def __init__(self, port: GrpcPort) -> None:
        self._port = port
        self.write_backlog = WriteBacklog(port.budget)
        self.unfinished = Unfinished(port.input_budget, self)
        self._http = Http2Connection(port.limits.http2)
        self._streams: dict[int, GrpcStream] = {}
        self._begun_bytes = 0
        """Of the calls whose request has not come."""
        self._used_ms = self._now_ms = time.monotonic_ns() // 1_000_000
        self._partial_since_ms = 0
        self._peer_reads = True
        self._paused: asyncio.TimerHandle | None = None
        self._flush_planned = False
        self._closed = False
        self.peer = self.shown_address = ""
        self.born_host = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, number = self.peer_name[0] or "0.0.0.0", self.peer_name[1]  # noqa: S104
        self.born_host, self.shown_address = peer_bytes(host, number), peer_text(host)
        self.peer = f"{self.shown_address}:{number}"
        self.transport.set_write_buffer_limits(high=self._port.limits.output_bytes_pause)
        self.opened()
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._serve(self._http.feed(data))
        partial = self._http.buffered
        self._partial_since_ms = (self._partial_since_ms or self._now_ms) if partial else 0
        self._flush_soon()

    def _serve(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, CallOpened):
                self._open(event.stream, event.headers)
                continue
            stream = self._streams.get(event.stream)
            if stream is None:
                continue
            if isinstance(event, Came):
                stream.whole = True
                self._begun_bytes -= stream.settled()
                self._used_ms = self._now_ms
                self._port.service.serve(stream.method, stream.call, event.message)
            elif isinstance(event, Ended):
                self._half_closed(stream)
            else:
                self._leave(event.stream)

    def _open(self, number: int, headers: Mapping[str, str]) -> None:
        service = self._port.service
        method = service.method(headers.get(":path", ""))
        if method is None or headers.get(":method") != "POST":
            self._http.fail(number, UNIMPLEMENTED, f"no method {headers.get(':path', '')[:64]}")
            return
        stream = GrpcStream(self, number, method, self._now_ms)
        said = heads.said(headers)
        stream.cost = STREAM_BYTES + sum(map(len, said.values()))
        self._begun_bytes += stream.cost
        stream.call = service.call(method, stream, said)
        self._streams[number] = stream
        service.begun(method, stream.call)

    def _half_closed(self, stream: GrpcStream) -> None:
        """The peer asks for nothing more: a stream of commands ends then."""
        if not stream.whole:
            self.fail(stream, UNIMPLEMENTED, "the call has no request")
        elif self._port.service.lasts(stream.method):
            self._port.service.ended(stream.method, stream.call)
            self.send(stream, (), last=True)

    def _take_out(self, number: int) -> GrpcStream:
        """Return a call that ends here, however it came to: it counts for nothing any more."""
        stream = self._streams.pop(number)
        self._begun_bytes -= stream.settled()
        return stream

    def _leave(self, number: int) -> None:
        stream = self._take_out(number)
        call = stream.call
        stream.gone()
        self._port.service.ended(stream.method, call)

    def send(self, stream: GrpcStream, messages: Sequence[bytes], *, last: bool) -> None:
        """Send messages of an answer."""
        if stream.number not in self._streams:
            return
        self._http.send(stream.number, messages, last=last)
        self._look(stream)

    def fail(self, stream: GrpcStream, status: int, text: str) -> None:
        """End a call with a status of gRPC's own."""
        if stream.number in self._streams:
            self._http.fail(stream.number, status, text)
            self._look(stream)

    def _look(self, stream: GrpcStream) -> None:
        """Let a stream go whose answer is on its way; a peer that leaves much unread, too."""
        if not self._http.has(stream.number):
            self._take_out(stream.number)
            ended, call = self._port.service.lasts(stream.method) and stream.is_open, stream.call
            stream.answered()
            if ended:
                self._port.service.ended(stream.method, call)
        self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._closed:
            return
        for number in [number for number in self._streams if not self._http.has(number)]:
            self._take_out(number).answered()  # windows had room for the rest of its answer
        if held := self._http.buffered + self._begun_bytes:
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
        if self._paused is not None:
            self._paused.cancel()
        while self._streams:
            self._leave(next(iter(self._streams)))
        self.write_backlog.count(0)
        self.unfinished.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Read nothing more of a peer that does not take its answers."""
        self._peer_reads = False
        self.steer_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._peer_reads = True
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
        if self._closed or self.transport.is_closing():
            return
        if self._peer_reads and self._paused is None and not self.unfinished.waits:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def drain(self) -> None:
        """Begin no more calls; those that are under way have a little time."""
        if self._closed:
            return
        self._http.leave()
        self._flush()
        delay = LEAVE_SECONDS if self._streams else 0.0
        asyncio.get_running_loop().call_later(delay, self.transport.close)

    def sweep(self, now_ms: int) -> None:
        """Close a connection that is idle, or whose peer stopped in the middle."""
        self._now_ms = now_ms
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
        elif self._streams:
            self._sweep_streams(now_ms)
        elif now_ms - self._used_ms > limits.idle_ms:
            self._close("idle")
        elif not self._http.greeted and now_ms - self._used_ms > limits.input_stall_ms:
            self._close("no_request")
        self._flush()

    def _sweep_streams(self, now_ms: int) -> None:
        """End calls whose request does not come."""
        self._used_ms = now_ms
        stalled = self._port.limits.input_stall_ms
        for number, stream in list(self._streams.items()):
            if not stream.whole and now_ms - stream.begun_ms > stalled:
                self._http.cancel(number)
                self._leave(number)

    def close(self) -> None:
        """Close the connection: its client is silent, or was told to leave."""
        self._close("silent")

    def _close(self, reason: str) -> None:
        log.info("connection_closed peer=%s reason=%s", self.peer, reason)
        self._http.leave()
        self._flush()
        self.transport.close()
