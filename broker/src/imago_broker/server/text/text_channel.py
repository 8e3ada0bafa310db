"""One connection of MetaQ's text protocol as processors see it: the answers to its commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.server.connection_states import WaitReason
from imago_broker.server.peer_channel import PeerChannel
from imago_broker.server.text.file_sender import FileSender

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.server.relay.relay_handover import ConnectionHandover
    from imago_log.results import FileSlice
    from imago_wire.remoting.scanning.granting import UserGrants

JOIN_BYTES_MAX = 64 << 10
"""Answers up to this size are copied into one buffer; larger ones are written as they are."""
UNKNOWN_HOST = bytes(8)
# Bound once: an enumeration finds its members' values again each time that they are named.
_PEER, _HOLDING = WaitReason.PEER.value, (WaitReason.OWN_REQUEST | WaitReason.QUOTA).value


class TextChannel(PeerChannel):
    """What goes to one peer. Nothing is written any more once the connection is closed."""

    sends_files = True
    """Whether files may go past the transport: never where that encrypts."""

    def __init__(
        self, handover: ConnectionHandover, *, output_bytes_pause: int, output_bytes_max: int
    ) -> None:
        super().__init__(handover)
        self.born_host = UNKNOWN_HOST
        self.on_user: Callable[[str], None] | None = None
        """Told whom the peer has proved to be."""
        self.grants: UserGrants | None = None
        self.puts = 0
        self.reads: dict[str, str] = {}
        self.answered_bytes = 0
        self._on_lost: Callable[[Peer], None] | None = None
        self.finishing = False
        """Whether the peer has said that it is done: what it sent afterwards counts no more."""
        self._output_bytes_pause = output_bytes_pause
        self._output_bytes_max = output_bytes_max
        self._replies: list[bytes] = []
        self._reply_size = 0
        self._files = FileSender()

    @property
    def owes(self) -> bool:
        """Whether the peer has asked for something that it has no answer to."""
        return bool(self.puts or self._replies)

    def stored(self, answers: bytes) -> None:
        """Write the answers to successful puts now: they are all of one read."""
        if self._state.closed:
            return
        self.transport.write(answers)
        if not self._state.reads:
            self._handover.answered()

    def reply(self, *parts: bytes) -> None:
        self._replies += parts
        size = sum(map(len, parts))
        self._reply_size += size
        self.answered_bytes += size

    def reply_file(self, head: bytes, data: FileSlice) -> None:
        """Write an answer whose body is part of a file, after everything that was added.

        The kernel moves as much as the socket takes; only what is left is read into memory and
        queued like any other answer.
        """
        if self._replies:
            self.flush()
        if self._state.closed:
            return
        sent = 0
        if self.sends_files and self.transport.get_write_buffer_size() == 0:
            sent = self._files.send(self.transport, head, data)
            self.answered_bytes += sent
        if sent < len(head):
            self.reply(head[sent:], data.read())
        elif sent - len(head) < data.size:
            self.reply(_rest(data, sent - len(head)).read())
        if self._replies:
            self.flush()

    def is_full(self) -> bool:
        if self._reply_size > self._output_bytes_pause:
            self.flush()
        return self._state.waits & _PEER != 0

    def flush(self) -> None:
        """Write everything that was added."""
        if self._state.closed:
            return
        if self._replies:
            self._write_replies()
        if not self._state.reads:
            self._handover.answered()

    def finish(self) -> None:
        """Serve no further request, and close once everything is answered."""
        self.finishing = True
        self._handover.end()

    @property
    def held(self) -> bool:
        return self._state.waits & _HOLDING != 0

    def become(self, user: str) -> None:
        self.certificate_user = user
        if self.on_user is not None:
            self.on_user(user)

    def when_lost(self, told: Callable[[Peer], None]) -> None:
        self._on_lost = told

    def lost(self) -> None:
        """The connection is gone: drop what waits."""
        self._files.end()
        self._replies.clear()
        if self._on_lost is not None:
            self._on_lost(self)
            self._on_lost = None
        # Its session holds the input, and would wait with it for the collector of cycles.
        self.on_user = None

    def _write_replies(self) -> None:
        replies, self._replies = self._replies, []
        size, self._reply_size = self._reply_size, 0
        if size <= JOIN_BYTES_MAX:
            self.transport.write(b"".join(replies))
        else:
            self.transport.writelines(replies)
        if self.transport.get_write_buffer_size() > self._output_bytes_max:
            self.transport.abort()


def _rest(data: FileSlice, skip: int) -> FileSlice:
    return data._replace(offset=data.offset + skip, size=data.size - skip)
