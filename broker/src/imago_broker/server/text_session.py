"""One connection of MetaQ's text protocol: bytes to commands, answers to bytes."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_broker.server.relay_ledgers import TextLedger
from imago_broker.server.session import OWN_REQUEST, TAKEN_OVER, Session
from imago_broker.server.unfinished import Unfinished
from imago_broker.server.write_backlog import WriteBacklog
from imago_wire.hot import scan_text
from imago_wire.record import host_bytes
from imago_wire.text.encoder import encode_items

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.core.budget import InputBudget, OutputBudget
    from imago_broker.processors.metaq.table import MetaqProcessors
    from imago_broker.server.session import Takeover
    from imago_log.results import FileSlice
    from imago_wire.text.items import Item

JOIN_BYTES_MAX = 64 << 10
"""Answers up to this size are copied into one buffer; larger ones are written as they are."""
UNKNOWN_HOST = bytes(8)
_HEAD_FLAGS = int(socket.MSG_MORE | socket.MSG_DONTWAIT)
"""Of an answer's head: what follows shares its packet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLimits:
    """What one connection may cost."""

    line_bytes_max: int = 4096
    body_bytes_max: int = 4 << 20
    output_bytes_pause: int = 256 << 10
    """Above this nothing more is read or worked on until the peer has read its answers."""
    output_bytes_max: int = 32 << 20
    """Above this the peer is cut off."""
    idle_ms: int = 120_000
    input_stall_ms: int = 30_000
    """An unfinished command older than this ends the connection."""
    output_stall_ms: int = 30_000
    """A peer that has read nothing for this long while answers wait is cut off."""


class TextSession(Session):
    """One client. All work is done in `data_received`, except the puts' answers, which come at
    the end of the loop turn (or later, where a put waits for a disk or a replica)."""

    _waits_for = 0
    """Why nothing is served for now, beside a peer that does not read: TAKEN_OVER, OWN_REQUEST
    (clients hear first of a topic that a put has made)."""
    _relay: Takeover | None = None
    """Who has the connection, or gets it once everything is answered."""
    _away = False
    """Whether the relay has it."""
    _draining = False

    def __init__(
        self,
        processors: MetaqProcessors,
        limits: TextLimits,
        budget: OutputBudget,
        input_budget: InputBudget,
    ) -> None:
        self.born_host = UNKNOWN_HOST
        self.puts = 0
        self._processors = processors
        self._take_puts = processors.take_puts
        self._line_bytes_max = limits.line_bytes_max
        self._body_bytes_max = limits.body_bytes_max
        self._limits = limits
        self._write_backlog = WriteBacklog(budget)
        self.unfinished = Unfinished(input_budget, self)
        self._buffer = bytearray()
        self._replies: list[bytes] = []
        self._reply_size = 0
        self._left: Sequence[Item] = ()
        """Commands that wait for the peer to read its answers."""
        self._paused = False
        self.finishing = False
        """Whether the peer has said that it is done: what it sent afterwards counts no more."""
        self._ending = False
        """Nothing more is read; the connection is left once everything is answered."""
        self._working = False
        """Whether requests are being worked on: not all of their answers are there."""
        self._closed = False
        self._socket: socket.socket | None = None
        self._active = True
        self._seen_ms = 0
        self._partial_since_ms: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=self._limits.output_bytes_pause)
        peer = transport.get_extra_info("peername")
        if peer:
            self.born_host = host_bytes(peer[0].partition("%")[0], peer[1])
        self.opened()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what waits: the answers have no reader any more."""
        self._closed = True
        self._write_backlog.count(0)
        self.unfinished.end()
        if self._socket is not None:
            self._socket.detach()
            self._socket = None
        self._left = ()
        self._replies.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Work on the whole commands among all bytes that have come."""
        if self._ending:
            return
        self._active = True
        if self._waits_for:
            # The loop begins to read a new connection even where that was paused.
            self._buffer += data
            self.transport.pause_reading()
            self.unfinished.note(len(self._buffer))
            return
        if self._buffer:
            self._go_on(data)
            return
        used = self._take_puts(self, data)
        if used == len(data):
            return
        if used:
            data = data[used:]
        items, used = scan_text(data, self._line_bytes_max, self._body_bytes_max)
        if used < len(data):
            self._buffer += data[used:]
            self.unfinished.note(len(self._buffer))
        if items:
            self._run(items)

    def eof_received(self) -> bool:
        """Answer what was asked, then close; a peer may half-close after its last request."""
        self._end()
        return True

    def pause_writing(self) -> None:
        """Read nothing more from a peer that does not read its answers."""
        self._paused = True
        self._write_backlog.count(self.transport.get_write_buffer_size())
        if not self._ending:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with what was left, then read again."""
        self._paused = False
        self._write_backlog.count(0)
        self._go_on_with_left()

    def stored(self, answers: bytes) -> None:
        """Write the answers to successful puts now: they are all of one read."""
        if self._closed:
            return
        self.transport.write(answers)
        if self._ending:
            self._close_when_answered()

    def reply(self, *parts: bytes) -> None:
        self._replies += parts
        self._reply_size += sum(map(len, parts))

    def reply_file(self, head: bytes, data: FileSlice) -> None:
        """Write an answer whose body is part of a file, after everything that was added.

        The kernel moves as much as the socket takes; only what is left is read into memory and
        queued like any other answer.
        """
        self.flush()
        if self._closed:
            return
        sent = 0
        if self.transport.get_write_buffer_size() == 0:
            sent = self._send_file(head, data)
        if sent < len(head):
            self.reply(head[sent:], data.read())
        elif sent - len(head) < data.size:
            self.reply(_rest(data, sent - len(head)).read())
        if self._replies:
            self.flush()

    def is_full(self) -> bool:
        if self._reply_size > self._limits.output_bytes_pause:
            self.flush()
        return self._paused

    def flush(self) -> None:
        """Write everything that was added."""
        if self._closed:
            return
        if self._replies:
            self._write_replies()
        if self._ending:
            self._close_when_answered()

    def finish(self) -> None:
        """Serve no further request, and close once everything is answered."""
        self.finishing = True
        self._end()

    def drain(self) -> None:
        if self._relay is not None:
            self._draining = True
            self._relay.finish(patient=True)
        else:
            self._end()
            self.flush()

    def hold(self) -> None:
        self._waits_for |= TAKEN_OVER
        if not (self._ending or self._closed or self.transport.is_closing()):
            self.transport.pause_reading()

    def release(self) -> None:
        self._waits_for &= ~TAKEN_OVER
        self._go_on_with_unread()

    @property
    def held(self) -> bool:
        return bool(self._waits_for & OWN_REQUEST)

    def hold_back(self) -> None:
        self._waits_for |= OWN_REQUEST
        self.steer_reading()

    def go_on(self) -> None:
        self._waits_for &= ~OWN_REQUEST
        self._go_on_with_unread()

    def hand_over(self, relay: Takeover) -> bool:
        former = self._relay
        if former is None and (self._ending or self._closed):
            return False
        self._relay = relay
        if former is not None:
            former.finish(patient=True)
        else:
            left, self._left = self._left, ()
            self._buffer[:0] = encode_items(left)
            self._end()
        self._waits_for &= ~TAKEN_OVER
        return True

    def take_back(self, relay: Takeover, unread: bytes) -> None:
        self._buffer += unread
        self._away = False
        if self._relay is not relay and self._relay is not None:
            self._leave_to(self._relay)
            return
        self._relay = None
        self._ending = self._closed = False
        if self._draining:
            self._end()
        else:
            self._go_on_with_unread()

    def touch(self) -> None:
        self._active = True

    def sweep(self, now_ms: int) -> None:
        limits = self._limits
        if self._active:
            self._active = False
            self._seen_ms = now_ms
        if self._buffer and self._partial_since_ms is None:
            self._partial_since_ms = now_ms
            self.unfinished.grown(len(self._buffer))
        partial_ms = now_ms - (self._partial_since_ms or now_ms)
        stalled_ms = self._write_backlog.stalled_ms(self.transport.get_write_buffer_size(), now_ms)
        reader_stalled = stalled_ms > limits.output_stall_ms
        if reader_stalled or (partial_ms > limits.input_stall_ms and not self._paused):
            self.transport.abort()
        elif now_ms - self._seen_ms > limits.idle_ms and not self.puts and not self._paused:
            self.transport.close()

    def _go_on_with_left(self) -> None:
        if self._waits_for:
            return
        if self._left:
            left, self._left = self._left, ()
            self._run(left)
        self.steer_reading()

    def steer_reading(self) -> None:
        if self._away and self._relay is not None:
            self._relay.steer()
        if self._ending or self._closed or self.transport.is_closing():
            return
        if self._paused or self._waits_for or self.unfinished.waits:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _go_on_with_unread(self) -> None:
        """Go on with what was left, and with what a relay has read."""
        self._go_on_with_left()
        if not (self._waits_for or self._left or self._ending or self._closed):
            self._go_on(b"")

    def _go_on(self, data: bytes) -> None:
        """Add bytes to those of an unfinished command."""
        self._buffer += data
        used = self._take_puts(self, self._buffer)
        if used:
            self._drop(used)
        if self._buffer:
            self._scan_buffer()
            self.unfinished.note(len(self._buffer))

    def _scan_buffer(self) -> None:
        """Work on what begins with something else than a plain put, or has not wholly arrived."""
        items, used = scan_text(self._buffer, self._line_bytes_max, self._body_bytes_max)
        if items:
            self._drop(used)
            self._run(items)

    def _drop(self, used: int) -> None:
        del self._buffer[:used]
        self._partial_since_ms = None
        self.unfinished.left(len(self._buffer))

    def _run(self, items: Sequence[Item], at: int = 0) -> None:
        if self._left:
            self._left = [*self._left, *items[at:]]
            return
        self._working = True
        try:
            at = self._processors.run(self, items, at)
        finally:
            self._working = False
        if at < len(items):
            self._left = items[at:]
        if self._replies or self._ending:
            self.flush()

    def _send_file(self, head: bytes, data: FileSlice) -> int:
        """Send what the socket takes at once; return how many bytes of head and file that is.

        uvloop's transport has no sendfile, and it writes to the socket only while it has bytes of
        its own, which is not now.
        """
        sock = self._socket
        if sock is None:
            fd = self.transport.get_extra_info("socket").fileno()
            # Borrowed: given back, not closed, when the connection is lost.
            sock = self._socket = socket.socket(
                socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=fd
            )
        sent = 0
        try:
            sent = sock.send(head, _HEAD_FLAGS)
            if sent < len(head):
                return sent
            target, source, end = sock.fileno(), data.fileno(), data.offset + data.size
            at = data.offset
            while at < end:
                moved = os.sendfile(target, source, at, end - at)
                if moved == 0:
                    break  # the file is shorter than it was: reading it will say why
                at += moved
                sent += moved
        except (BlockingIOError, InterruptedError):
            pass  # what is left goes through the transport
        except ConnectionError:
            self.transport.abort()
        return sent

    def _write_replies(self) -> None:
        replies, self._replies = self._replies, []
        size, self._reply_size = self._reply_size, 0
        if size <= JOIN_BYTES_MAX:
            self.transport.write(b"".join(replies))
        else:
            self.transport.writelines(replies)
        if self.transport.get_write_buffer_size() > self._limits.output_bytes_max:
            self.transport.abort()

    def _end(self) -> None:
        """Read nothing more; what was read is answered, also what waits for the peer to read."""
        if self._ending:
            return
        self._ending = True
        self.transport.pause_reading()
        self._close_when_answered()

    def _close_when_answered(self) -> None:
        if self.puts or self._replies or self._left or self._working:
            return
        if self._relay is None:
            self.transport.close()
        elif not self._away:
            self._leave_to(self._relay)

    def _leave_to(self, relay: Takeover) -> None:
        unread = bytes(self._buffer)
        self._buffer.clear()
        self._partial_since_ms = None
        self.unfinished.left(0)
        # For this session: the relay speaks from here on.
        self._closed = self._away = True
        ledger = TextLedger(self._line_bytes_max, self._body_bytes_max)
        relay.take(self, ledger, unread, slow=self._paused)


def _rest(data: FileSlice, skip: int) -> FileSlice:
    return data._replace(offset=data.offset + skip, size=data.size - skip)
