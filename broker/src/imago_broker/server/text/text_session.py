"""One connection of MetaQ's text protocol: bytes to commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from imago_broker.core.client_hello import HANDSHAKE_RECORD
from imago_broker.server.connection_states import ConnectionPhase, WaitReason
from imago_broker.server.peer_address import peer_text
from imago_broker.server.relay.relay_handover import ClientSession
from imago_broker.server.relay.relay_ledgers import TextLedger
from imago_broker.server.text.line_refusals import LineRefusals
from imago_broker.server.text.text_channel import TextChannel
from imago_wire.hot import scan_text
from imago_wire.records.record import host_bytes
from imago_wire.text.encoder import encode_items

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.core.budget import InputBudget, OutputBudget
    from imago_broker.processors.metaq.access.guard import GuardedProcessors
    from imago_broker.processors.metaq.table import MetaqProcessors
    from imago_broker.server.relay.relay_ledgers import Ledger
    from imago_wire.text.items import Item

TLS_BEGINS = bytes((HANDSHAKE_RECORD, 3))
"""A handshake, and TLS's version: no command begins so."""


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


class TextSession(ClientSession):
    """One client: bytes to commands. All work is done in `data_received`, except the puts' answers,
    which come at the end of the loop turn (or later, where a put waits for a disk or a replica)."""

    def __init__(
        self,
        processors: MetaqProcessors | GuardedProcessors,
        limits: TextLimits,
        budget: OutputBudget,
        input_budget: InputBudget,
    ) -> None:
        super().__init__(budget, input_budget)
        self.channel = TextChannel(
            self.handover,
            output_bytes_pause=limits.output_bytes_pause,
            output_bytes_max=limits.output_bytes_max,
        )
        self._processors = processors
        self._take_puts = processors.take_puts
        self._refusals = LineRefusals(
            partial(processors.refusal, self.channel),
            limits.line_bytes_max,
            limits.body_bytes_max,
            self.unfinished.crowded,
        )
        self._line_bytes_max = limits.line_bytes_max
        self._body_bytes_max = limits.body_bytes_max
        self._limits = limits
        self._buffer = bytearray()
        self._left: Sequence[Item] = ()
        """Commands that wait for the peer to read its answers."""
        self._working = False
        """Whether requests are being worked on: not all of their answers are there."""
        self._active = True
        self._seen_ms = 0
        self._partial_since_ms: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        super().connection_made(transport)
        self.channel.transport, self.channel.watchers = self.transport, self.watchers
        self.channel.sends_files = not self.secure
        self.transport.set_write_buffer_limits(high=self._limits.output_bytes_pause)
        if self.address:
            self.channel.born_host = host_bytes(self.address.partition("%")[0], self.peer_name[1])
            self.channel.address = peer_text(self.address)
        self.channel.certificate_user, self.channel.on_user = self.certificate_user, self._is_of
        self._processors.met(self.channel)
        self.opened()

    def _is_of(self, user: str) -> None:
        """Be introduced as this user where another broker has to serve the connection."""
        self.certificate_user = user

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._left = ()
        self.channel.lost()

    def data_received(self, data: bytes) -> None:
        """Work on the whole commands among all bytes that have come."""
        if not self.state.reads:
            self._hold_input(data)
            return
        self._active = True
        if self._buffer:
            self._go_on(data)
            return
        used = self._take_puts(self.channel, data)
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
        if self._buffer:
            self._look()

    def eof_received(self) -> bool:
        """Answer what was asked, then close; a peer may half-close after its last request."""
        self.handover.eof()
        return not self.secure  # TLS has no half-open connections

    def drain(self) -> None:
        self.handover.end()
        self.channel.flush()

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
        paused = self.state.waits & WaitReason.PEER.value
        stalled_ms = self.write_backlog.stalled_ms(self.transport.get_write_buffer_size(), now_ms)
        reader_stalled = stalled_ms > limits.output_stall_ms
        if reader_stalled or (partial_ms > limits.input_stall_ms and not paused):
            self.transport.abort()
        elif now_ms - self._seen_ms > limits.idle_ms and not self.channel.puts and not paused:
            self.transport.close()

    @property
    def settled(self) -> bool:
        return not (self._working or self.channel.owes)

    def unserved(self) -> bytes:
        left, self._left = self._left, ()
        if answer := self._refusals.leave(self._buffer):
            self.transport.write(answer)
        unread = encode_items(left) + self._buffer
        self._buffer.clear()
        self._partial_since_ms = None
        self.unfinished.left(0)
        return unread

    def ledger(self) -> Ledger:
        return TextLedger(self._line_bytes_max, self._body_bytes_max)

    def returned(self, ledger: Ledger, unread: bytes) -> None:
        del ledger  # it knows nothing of the peer
        self._buffer += unread

    def serve_on(self) -> None:
        if self._left and self.state.serves:
            left, self._left = self._left, ()
            self._run(left)
        if self._buffer and not self._left and self.state.reads:
            self._go_on(b"")
        self.steer_reading()

    def ends(self) -> None:
        self.transport.pause_reading()
        self.answered()

    def answered(self) -> None:
        """Close the connection, which ends, once everything is answered that was read."""
        if self.settled and not self._left:
            self.transport.close()

    def _hold_input(self, data: bytes) -> None:
        """Keep what comes for later: a new connection is read even where that was paused."""
        if self.state.phase not in (ConnectionPhase.ENDING, ConnectionPhase.CLOSED):
            self._active = True
            if self._refusals.left:
                data = self._pass_over(data)
            self._buffer += data
            self.transport.pause_reading()
            self.unfinished.note(len(self._buffer))
            self.channel.flush()

    def _go_on(self, data: bytes) -> None:
        """Add bytes to those of an unfinished command."""
        if self._refusals.left:
            data = self._pass_over(data)
            if self._refusals.left:
                return
            self.channel.flush()
        self._buffer += data
        used = self._take_puts(self.channel, self._buffer)
        if used:
            self._drop(used)
        if self._buffer:
            self._scan_buffer()
            self.unfinished.note(len(self._buffer))
            self._look()

    def _look(self) -> None:
        """Refuse the command that begins the buffer by its line, where that is enough."""
        if self._left or not self.state.reads:
            return
        if self._buffer.startswith(TLS_BEGINS):
            self.transport.close()  # a client with TLS would wait for more than an end
            return
        self._refusals.look(self._buffer)
        if self._refusals.left:
            self.unfinished.grown(len(self._buffer))

    def _pass_over(self, data: bytes) -> bytes:
        """Take what has come of the refused command's body; return what is behind it."""
        answer, data = self._refusals.pass_over(data)
        if not self._refusals.left:
            self._drop(len(self._buffer))
        if answer:
            self.channel.reply(answer)
        return data

    def _scan_buffer(self) -> None:
        """Work on what begins with something else than a plain put, or has not wholly arrived."""
        items, used = scan_text(self._buffer, self._line_bytes_max, self._body_bytes_max)
        if items:
            self._drop(used)
            self._run(items)

    def _drop(self, used: int) -> None:
        del self._buffer[:used]
        self._refusals.begin()
        self._partial_since_ms = None
        self.unfinished.left(len(self._buffer))

    def _run(self, items: Sequence[Item], at: int = 0) -> None:
        if self._left:
            self._left = [*self._left, *items[at:]]
            return
        self._working = True
        try:
            at = self._processors.run(self.channel, items, at)
        finally:
            self._working = False
        if at < len(items):
            self._left = items[at:]
        self.channel.flush()
