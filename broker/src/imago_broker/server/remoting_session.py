"""One connection of RocketMQ's remoting protocol.

Bytes come in as they come; one scan cuts them into frames. Sends take the short way: what the
scanner found goes straight to the put path, without a command object. Everything else becomes a
command and goes through the table. Answers of one turn leave in one write.

A connection stops being read while its peer does not read, while one of its sends has to be
inflated elsewhere (the order of a connection's sends is kept), and never holds more input than one
frame and one read.
"""

from __future__ import annotations

import logging
import struct
import time
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.exchange import Exchange
from imago_broker.server.relay_ledgers import HEARTBEAT_BYTES_MAX, FrameLedger
from imago_broker.server.remoting_calls import ClientCalls
from imago_broker.server.remoting_peer import peer_bytes, peer_text
from imago_broker.server.session import OWN_REQUEST, TAKEN_OVER, Session
from imago_broker.server.unfinished import Unfinished
from imago_broker.server.write_backlog import WriteBacklog
from imago_wire.errors import ProtocolError
from imago_wire.hot import scan_frames
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand
from imago_wire.remoting.header import decode_raw_header, encode_header
from imago_wire.remoting.items import FRAME, SEND, frame_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.processors.rocketmq.exchange import Reply
    from imago_broker.server.remoting_port import RemotingPort
    from imago_broker.server.session import Takeover
    from imago_wire.remoting.items import Item, SendItem

log = logging.getLogger(__name__)

_PREFIX = struct.Struct(">II")
_JOIN_BYTES_MAX = 64 << 10
"""Answers of one turn up to this size are joined; larger ones are handed over in pieces."""


class RemotingSession(Session):
    """One connection: bytes to requests, answers to bytes, both in bounded memory."""

    _waits_for = 0
    """Why nothing is served for now, beside a peer that does not read: TAKEN_OVER, OWN_REQUEST."""
    _relay: Takeover | None = None
    """Who has the connection, or gets it as soon as its own request is served."""
    _ledger: FrameLedger | None = None
    """The account of the relay that has the connection."""

    def __init__(self, server: RemotingPort) -> None:
        self.server = server
        self.peer = ""
        self.born_host = b""
        """The peer's address as it stands in records: 4 or 16 bytes, then the port in 4."""
        self.last_read_ms = server.now_ms
        self._limits = server.limits
        self._send = server.send_path.send if server.send_path else RemotingSession.serve_send
        self._take = server.take
        self._frame_bytes_max = server.limits.frame_bytes_max
        self._unsent = server.unsent
        self._buffer = bytearray()
        self._backlog: Sequence[Item] = []
        """Frames that are scanned and have to wait: only while blocked."""
        self._blocked = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._write_paused = False
        self._partial_since_ms = 0
        self._write_backlog = WriteBacklog(server.budget)
        self.unfinished = Unfinished(server.input_budget, self)
        self._closing = False
        self._draining = False
        self._calls = ClientCalls(server.loop, calls_max=server.limits.calls_max)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = (transport.get_extra_info("peername") or ("0.0.0.0", 0))[:2]  # noqa: S104
        self.born_host = peer_bytes(host, port)
        self.peer = f"{peer_text(host)}:{port}"
        # The server's time stands still while it has no connection.
        self.server.now_ms = self.last_read_ms = time.monotonic_ns() // 1_000_000
        self.transport.set_write_buffer_limits(high=self._limits.output_bytes_pause)
        self.opened()

    def data_received(self, data: bytes) -> None:
        self.last_read_ms = self.server.now_ms
        if self._buffer or self._blocked:
            self._buffer += data
            if self._blocked:
                # The loop begins to read a new connection even where that was paused.
                self.steer_reading()
                self.unfinished.note(len(self._buffer))
            else:
                self._scan_buffer()
            return
        used = self._take(self, data, self._frame_bytes_max)
        if used == len(data):
            return
        if used:
            data = data[used:]
        items, consumed = scan_frames(data, self._frame_bytes_max)
        if consumed != len(data):
            self._partial_since_ms = self.server.now_ms
            self._buffer += data[consumed:]
            self.unfinished.note(len(self._buffer))
        self._serve(items)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._write_paused = True
        self._write_backlog.count(self.transport.get_write_buffer_size())
        self.steer_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._write_backlog.count(0)
        self._unblock_if_free()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._closing = True
        self._write_backlog.count(0)
        self.unfinished.end()
        self._buffer.clear()
        self._backlog = []
        self._out.clear()
        self._calls.fail_all()
        if self.server.on_close is not None:
            self.server.on_close(self)

    def _scan_buffer(self) -> None:
        self._drop(self._take(self, self._buffer, self._frame_bytes_max))
        if self._buffer:
            items, consumed = scan_frames(self._buffer, self._frame_bytes_max)
            self._drop(consumed)
            self.unfinished.note(len(self._buffer))
            self._serve(items)

    def _drop(self, consumed: int) -> None:
        if consumed:
            del self._buffer[:consumed]
            self._partial_since_ms = self.server.now_ms if self._buffer else 0
            self.unfinished.left(len(self._buffer))

    def _serve(self, items: Sequence[Item]) -> bool:
        """Serve frames in order; False when the rest has to wait, or nothing more may come."""
        send = self._send
        for served, item in enumerate(items, 1):
            if item.kind == FRAME:
                self._serve_frame(item.command)
            elif item.kind == SEND:
                send(self, item)
            else:
                log.info("bad_frame peer=%s reason=%s", self.peer, item.reason)
                self.close()
                return False
            if self._out_bytes > self._limits.output_bytes_pause:
                # Now, not at the end of the turn: what the socket does not take has to count
                # before other connections get answers as large.
                self.flush()
            if self._blocked or self._write_paused:
                self._backlog = items[served:]
                self._block()
                return False
        return True

    def _serve_frame(self, command: RemotingCommand) -> None:
        if command.is_response:
            self._calls.answered(command)
            return
        if command.code == RequestCode.HEART_BEAT:
            self.heartbeat = command if len(command.body) <= HEARTBEAT_BYTES_MAX else None
        self.server.table.dispatch(Exchange(self, command))

    def serve_send(self, item: SendItem) -> None:
        """Serve a send as any other request: it needs more than the short way does."""
        self._serve_frame(decode_raw_header(item.raw_header, item.body))

    def hold_back(self) -> None:
        """Serve nothing more of this connection until `go_on`: a send of it needs time."""
        self._waits_for |= OWN_REQUEST
        self._block()

    def go_on(self) -> None:
        """Serve what had to wait for a send of this connection."""
        self._waits_for &= ~OWN_REQUEST
        if self._relay is not None:
            self._leave_to(self._relay)
        else:
            self._unblock_if_free()

    def hold(self) -> None:
        if not self._closing:
            self._waits_for |= TAKEN_OVER
            self._block()

    def release(self) -> None:
        self._waits_for &= ~TAKEN_OVER
        self._unblock_if_free()

    def hand_over(self, relay: Takeover) -> bool:
        if self._closing or self._draining:
            return False
        self._block()
        former, self._relay = self._relay, relay
        if former is not None:
            former.finish(patient=True)
        own = self._waits_for & OWN_REQUEST
        if not own and self._ledger is None and self._relay is relay:
            self._leave_to(relay)
        self._waits_for &= ~TAKEN_OVER
        return True

    def take_back(self, relay: Takeover, unread: bytes) -> None:
        if self._ledger is not None:
            self.heartbeat = self._ledger.heartbeat
        self._ledger = None
        self._buffer += unread
        if self._relay is not relay and self._relay is not None:
            self._leave_to(self._relay)
            return
        self._relay = None
        if self._draining:
            self.transport.pause_reading()
            self.server.drain(self)
        else:
            self._unblock_if_free()

    def touch(self) -> None:
        self.last_read_ms = self.server.now_ms

    def _leave_to(self, relay: Takeover) -> None:
        backlog, self._backlog = self._backlog, []
        unread = b"".join(map(frame_of, backlog)) + self._buffer
        self._buffer.clear()
        self._partial_since_ms = 0
        self.unfinished.left(0)
        self._ledger = FrameLedger(self.heartbeat)
        relay.take(self, self._ledger, unread, slow=self._write_paused)

    def _block(self) -> None:
        self._blocked = True
        self.steer_reading()

    def _unblock_if_free(self) -> None:
        waits = self._waits_for or self._write_paused or self._relay is not None
        if self._blocked and not waits:
            self._blocked = False
            items, self._backlog = self._backlog, []
            if self._serve(items) and self._buffer:
                self._scan_buffer()
        self.steer_reading()

    def steer_reading(self) -> None:
        if self._ledger is not None and self._relay is not None:
            self._relay.steer()
        if self._closing or self._draining or self._ledger is not None:
            return
        if self._blocked or self._write_paused or self.unfinished.waits:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def sweep(self, now_ms: int) -> None:
        """Close a connection that is silent, or whose peer stopped in the middle."""
        self.server.now_ms = now_ms
        limits = self._limits
        waiting = self.transport.get_write_buffer_size()
        self._write_backlog.count(waiting)
        if self._ledger is None and len(self._buffer) > self.unfinished.counted:
            self.unfinished.grown(len(self._buffer))
        if self._write_backlog.stalled_ms(waiting, now_ms) > limits.output_stall_ms:
            log.info("connection_aborted peer=%s reason=reads_nothing", self.peer)
            self.abort()
        elif self._stalled_input_ms(now_ms) > limits.input_stall_ms:
            log.info("connection_closed peer=%s reason=unfinished_frame", self.peer)
            self.close()
        elif now_ms - self.last_read_ms > limits.idle_ms:
            log.info("connection_closed peer=%s reason=idle", self.peer)
            self.close()

    def _stalled_input_ms(self, now_ms: int) -> int:
        # While the connection itself is held back, the unfinished frame is not the peer's fault.
        if not self._partial_since_ms or self._blocked or self._write_paused:
            return 0
        return now_ms - self._partial_since_ms

    def drain(self) -> None:
        self._draining = True
        if self._ledger is not None and self._relay is not None:
            self._relay.finish(patient=True)
        else:
            self.transport.pause_reading()
            self.server.drain(self)

    # -- answers out --------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether answers still reach the peer."""
        return not self._closing

    def push(self, data: bytes) -> None:
        """Add an answer that `RemotingPort.flush` will write: only for the end of a put."""
        out = self._out
        if not out:
            self._unsent.append(self)
        out.append(data)

    def stored(self, answers: bytes) -> None:
        """Write the answers to the sends of one read, behind what was added before."""
        if self._out:
            self._out.append(answers)
        elif not self._closing:
            self.transport.write(answers)

    def write(self, data: bytes) -> None:
        """Add bytes that are written at the end of this turn."""
        if self._closing:
            return
        self.push(data)
        self.server.flush_soon()
        self._out_bytes += len(data)

    def reply(self, request: RemotingCommand, reply: Reply) -> None:
        """Write the answer to a request, its header in the request's own form."""
        pieces = [reply.body] if isinstance(reply.body, bytes) else reply.body
        response = RemotingCommand(
            code=int(reply.code),
            flag=FLAG_RESPONSE,
            opaque=request.opaque,
            remark=reply.remark,
            ext=dict(reply.ext) if reply.ext else {},
            serialize=request.serialize,
        )
        self._write_command(response, [piece for piece in pieces if piece])

    def notify(self, code: int, ext: Mapping[str, str], body: bytes = b"") -> None:
        """Send a one-way request to the client."""
        self._write_command(self._calls.oneway(code, ext), [body] if body else [])

    def call(
        self,
        code: int,
        ext: Mapping[str, str],
        body: bytes,
        timeout_ms: int,
        done: Callable[[RemotingCommand | None], None],
    ) -> None:
        """Send a request to the client; `done` gets its answer, or None when none comes."""
        command = None if self._closing else self._calls.start(code, ext, timeout_ms, done)
        if command is None:
            done(None)
            return
        self._write_command(command, [body] if body else [])

    def _write_command(self, command: RemotingCommand, pieces: Sequence[bytes]) -> None:
        try:
            header = encode_header(command)
        except ProtocolError as error:
            # A header this large is made of what a client asked for: it cannot be answered.
            log.warning("answer_dropped peer=%s code=%d error=%s", self.peer, command.code, error)
            return
        size = 4 + len(header) + sum(map(len, pieces))
        self.write(_PREFIX.pack(size, command.serialize << 24 | len(header)) + header)
        for piece in pieces:
            self.write(piece)

    def flush(self) -> None:
        """Hand the gathered answers to the transport."""
        out = self._out
        if self._closing or not out:
            return
        if len(out) == 1 and not self._out_bytes:
            # The answer to one send: small, and most of what is ever written.
            self.transport.write(out.pop())
        else:
            self._flush_many()

    def _flush_many(self) -> None:
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if size <= _JOIN_BYTES_MAX:
            self.transport.write(b"".join(out))
        else:
            self.transport.writelines(out)
        if self._write_paused:
            waiting = self.transport.get_write_buffer_size()
            self._write_backlog.count(waiting)
            if waiting > self._limits.output_bytes_max:
                log.info("connection_aborted peer=%s reason=reads_nothing", self.peer)
                self.abort()
        elif self._blocked:
            self._unblock_if_free()

    def close(self) -> None:
        """Close after what is written; nothing more is read."""
        self.flush()
        self._closing = True
        self.unfinished.left(0)
        self._buffer.clear()
        self._backlog = []
        self.transport.close()

    def abort(self) -> None:
        self._closing = True
        self.transport.abort()
