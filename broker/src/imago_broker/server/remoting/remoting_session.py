"""One connection of RocketMQ's remoting protocol: bytes to requests.

Bytes come in as they come; one scan cuts them into frames. Sends, and pulls that find messages,
take fast paths: what the scanner found goes straight to the put path, or is answered with what the
log has, without a command object. Everything else becomes a command and goes through the table.
Answers leave through the connection's channel.

A port that closes serves what was read. Clients that know GO_AWAY are read for a little longer, and
get that for whatever they still ask: so they know that it was not done.

A connection stops being read while its peer does not read, while one of its sends has to be
inflated elsewhere (the order of a connection's sends is kept), and never holds more input than one
frame and one read.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from imago_broker.server.connection_states import RELAYED, ConnectionPhase, WaitReason
from imago_broker.server.peer_address import peer_bytes, peer_text
from imago_broker.server.relay.relay_handover import ClientSession
from imago_broker.server.relay.relay_ledgers import HEARTBEAT_BYTES_MAX, FrameLedger
from imago_broker.server.remoting.fast_failure import fail_sends
from imago_broker.server.remoting.header_refusals import HeaderRefusals
from imago_broker.server.remoting.remoting_channel import RemotingChannel
from imago_broker.service.groups.channel import Reply
from imago_wire.hot import scan_frames
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.peer import Version
from imago_wire.remoting.scanning.items import FRAME, SEND, frame_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from imago_broker.server.relay.relay_ledgers import Ledger
    from imago_broker.server.remoting.remoting_port import RemotingPort
    from imago_wire.remoting.command import RemotingCommand
    from imago_wire.remoting.scanning.items import Item

log = logging.getLogger(__name__)

GO_AWAY_SECONDS = 0.5
"""How long a connection that the port has to close stays for requests that are under way."""
GO_AWAY = Reply(ResponseCode.GO_AWAY, "please go away")


class RemotingSession(ClientSession):
    """One connection: bytes to requests, in bounded memory."""

    def __init__(self, server: RemotingPort) -> None:
        super().__init__(server.budget, server.input_budget)
        self.server = server
        self.channel = RemotingChannel(server, self.handover, self.write_backlog)
        self.last_read_ms = server.now_ms
        self.heartbeat: RemotingCommand | None = None
        """The last one that was served: what the peer is."""
        self._peer_version = 0
        """Of the last request that took no fast path; a member's heartbeats take none."""
        self._limits = server.limits
        self._send = server.send_path.send if server.send_path else RemotingChannel.serve_send
        self._ways = (server.take_sends, server.take_pulls, server.take_ends)
        """The fast paths; the one that took something last comes first, but for ends."""
        self._frame_bytes_max = server.limits.frame_bytes_max
        self._buffer = bytearray()
        self._backlog: Sequence[Item] = []
        """Frames that are scanned and have to wait."""
        self._partial_since_ms = 0
        self._waits_since_ms = 0
        """Since when nothing is served; 0: what comes is."""
        self._refusals = HeaderRefusals(server.table, self.channel, self.unfinished.crowded)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        host, port = self.peer_name[0] or "0.0.0.0", self.peer_name[1]  # noqa: S104
        channel = self.channel
        channel.transport, channel.watchers = self.transport, self.watchers
        channel.born_host = peer_bytes(host, port)
        channel.address, channel.certificate_user = peer_text(host), self.certificate_user
        channel.peer = f"{channel.address}:{port}"
        if self.server.grants is not None:
            channel.grants = self.server.grants.of(channel.address, channel.certificate_user)
        # The server's time stands still while it has no connection.
        self.server.now_ms = self.last_read_ms = time.monotonic_ns() // 1_000_000
        self.transport.set_write_buffer_limits(high=self._limits.output_bytes_pause)
        self.opened()

    def data_received(self, data: bytes) -> None:
        self.last_read_ms = self.server.now_ms
        if self._buffer or not self.state.reads:
            self._add(data)
            return
        used = self._ways[0](self.channel, data, self._frame_bytes_max)
        if not used:
            used = self._take_otherwise(data)
        if used == len(data):
            return
        if used:
            data = data[used:]
            if not self.state.serves:
                self._add(data)
                return
        items, consumed = scan_frames(data, self._frame_bytes_max)
        if consumed != len(data):
            self._partial_since_ms = self.server.now_ms
            self._buffer += data[consumed:]
            self._refusals.look(self._buffer)
            self.unfinished.note(len(self._buffer))
        self._serve(items)

    def _take_otherwise(self, data: bytes) -> int:
        """Try the fast paths behind the first one; return how many bytes that took."""
        first, second, third = self._ways
        ends = self.server.take_ends
        used = second(self.channel, data, self._frame_bytes_max)
        if used:
            # Ends stay in front once there were any: one look tells that there are none, and
            # who sends half messages ends them.
            self._ways = (first, second, third) if first is ends else (second, first, third)
            return used
        used = third(self.channel, data, self._frame_bytes_max)
        if used:
            self._ways = (first, third, second) if first is ends else (third, first, second)
        return used

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._buffer.clear()
        self._backlog = []
        self.channel.lost()
        if self.server.on_close is not None:
            self.server.on_close(self.channel)

    def _add(self, data: bytes) -> None:
        if self.state.closed:
            return
        if (refused := self._refusals.refused) is not None:
            data = self._refusals.pass_over(refused, data)
            if refused.left:
                return
            self._drop(len(self._buffer))
        self._buffer += data
        if self.state.reads:
            self._scan_buffer()
        elif self._turns_away:
            self._turn_away()
        else:
            # The loop begins to read a new connection even where that was paused.
            self.steer_reading()
            self.unfinished.note(len(self._buffer))

    def _scan_buffer(self) -> None:
        for take in self._ways:
            if self._buffer and self.state.serves:
                self._drop(take(self.channel, self._buffer, self._frame_bytes_max))
        if self._buffer and self.state.serves:
            items, consumed = scan_frames(self._buffer, self._frame_bytes_max)
            self._drop(consumed)
            self._refusals.look(self._buffer)
            self.unfinished.note(len(self._buffer))
            self._serve(items)

    def _drop(self, consumed: int) -> None:
        if consumed:
            del self._buffer[:consumed]
            self._refusals.begin()
            self._partial_since_ms = self.server.now_ms if self._buffer else 0
            self.unfinished.left(len(self._buffer))

    def _serve(self, items: Sequence[Item]) -> bool:
        """Serve frames in order; False when the rest has to wait, or nothing more may come."""
        send, channel, state = self._send, self.channel, self.state
        for served, item in enumerate(items, 1):
            if item.kind == FRAME:
                self._serve_frame(item.command)
            elif item.kind == SEND:
                send(channel, item)
            else:
                log.info("bad_frame peer=%s reason=%s", channel.peer, item.reason)
                channel.close()
            if channel.waiting_bytes > self._limits.output_bytes_pause:
                # Now, not at the end of the turn: what the socket does not take has to count
                # before other connections get answers as large.
                channel.flush()
            if not state.serves:
                if not state.closed:
                    self._backlog = items[served:]
                return False
        return True

    def _serve_frame(self, command: RemotingCommand) -> None:
        if command.is_response:
            self.channel.calls.answered(command)
            return
        if command.code == RequestCode.HEART_BEAT:
            self.heartbeat = command if len(command.body) <= HEARTBEAT_BYTES_MAX else None
        self._peer_version = command.version
        self.channel.serve(command)

    @property
    def _turns_away(self) -> bool:
        """Whether what comes now is answered with GO_AWAY."""
        ending = self.state.phase is ConnectionPhase.ENDING and self.state.serves
        return ending and self._peer_version > Version.V5_3_1

    def _turn_away(self) -> None:
        items, consumed = scan_frames(self._buffer, self._frame_bytes_max)
        self._drop(consumed)
        self.unfinished.note(len(self._buffer))
        for item in items:
            if item.kind == FRAME:
                command = item.command
            elif item.kind == SEND:
                command = decode_raw_header(item.raw_header, item.body)
            else:
                self.channel.close()
                return
            if command.is_response:
                self.channel.calls.answered(command)
            elif not command.is_oneway:
                self.channel.reply(command, GO_AWAY)

    @property
    def settled(self) -> bool:
        # Answers to other requests may come while a relay has the connection.
        return not self.state.waits & WaitReason.OWN_REQUEST.value

    def unserved(self) -> bytes:
        backlog, self._backlog = self._backlog, []
        self._refusals.leave(self._buffer)
        unread = b"".join(map(frame_of, backlog)) + self._buffer
        self._buffer.clear()
        self._partial_since_ms = 0
        self.unfinished.left(0)
        return unread

    def ledger(self) -> Ledger:
        return FrameLedger(self.heartbeat)

    def returned(self, ledger: Ledger, unread: bytes) -> None:
        assert isinstance(ledger, FrameLedger), "it is one of ours"
        self.heartbeat = ledger.heartbeat
        self._buffer += unread
        self._waits_since_ms = 0  # it has not waited here

    def serve_on(self) -> None:
        if self.state.serves:
            items, self._backlog = self._backlog, []
            if self._waits_since_ms:
                waited_ms = time.monotonic_ns() // 1_000_000 - self._waits_since_ms
                self._waits_since_ms = 0
                longest_ms = self.server.send_wait_ms()
                if longest_ms is not None and waited_ms >= longest_ms:
                    read, consumed = scan_frames(self._buffer, self._frame_bytes_max)
                    self._drop(consumed)
                    self.unfinished.note(len(self._buffer))
                    items = fail_sends(self.channel, [*items, *read], waited_ms)
            if self._serve(items) and self._buffer:
                self._scan_buffer()
        self.steer_reading()

    def touch(self) -> None:
        self.last_read_ms = self.server.now_ms

    def drain(self) -> None:
        self.handover.end()

    def steer_reading(self) -> None:
        if not self.state.serves and not self._waits_since_ms:
            self._waits_since_ms = time.monotonic_ns() // 1_000_000
        if self._turns_away and not self.transport.is_closing():
            self.transport.resume_reading()
        else:
            super().steer_reading()

    def ends(self) -> None:
        self.steer_reading()
        self.server.drain(self.channel, GO_AWAY_SECONDS if self._turns_away else 0.0)

    def sweep(self, now_ms: int) -> None:
        """Close a connection that is silent, or whose peer stopped in the middle."""
        self.server.now_ms = now_ms
        limits, channel = self._limits, self.channel
        waiting = self.transport.get_write_buffer_size()
        self.write_backlog.count(waiting)
        relayed = self.state.phase in RELAYED
        if not relayed and len(self._buffer) > self.unfinished.counted:
            self.unfinished.grown(len(self._buffer))
        if self.write_backlog.stalled_ms(waiting, now_ms) > limits.output_stall_ms:
            log.info("connection_aborted peer=%s reason=reads_nothing", channel.peer)
            self.abort()
        elif self._stalled_input_ms(now_ms) > limits.input_stall_ms:
            log.info("connection_closed peer=%s reason=unfinished_frame", channel.peer)
            channel.close()
        elif now_ms - self.last_read_ms > limits.idle_ms:
            log.info("connection_closed peer=%s reason=idle", channel.peer)
            channel.close()

    def _stalled_input_ms(self, now_ms: int) -> int:
        # While the connection itself is held back, the unfinished frame is not the peer's fault.
        if not self._partial_since_ms or not self.state.reads:
            return 0
        return now_ms - self._partial_since_ms

    def abort(self) -> None:
        self.handover.close()
        super().abort()
