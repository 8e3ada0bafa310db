"""The first message of TLS, until it is whole: the costly step of a handshake is the answer to it.

It may come in several reads, and in several records, each with five bytes before it. A client that
has offered no key that the server takes is asked for another first message (TLS 1.3).
"""

from __future__ import annotations

from typing import Final

HANDSHAKE_RECORD: Final = 22
"""First byte of a TLS connection."""
FIRST_BYTES_MAX: Final = 16 << 10
"""Of what a handshake begins with: some 2 KB are usual, and it is kept while that waits."""
SECOND_RECORDS_MAX: Final = 8
"""In which a second first message may be cut: one is usual, and each has a turn."""
_RECORD_HEAD: Final = 5
_MESSAGE_HEAD: Final = 4
_CLIENT_HELLO: Final = 1


class ClientHello:
    """What was read of it. Who keeps it limits `data`: lengths in it are the peer's."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._record = 0
        """Where the first record begins that is not whole, or is behind the message."""
        self._head = bytearray()
        """Of the message, whose records are cut anywhere."""
        self._size = 0
        """What is there of the message."""

    def add(self, data: bytes) -> bool:
        """Take what was read; whether TLS can answer now: it is whole, or no such message."""
        self.data += data
        while not self._is_whole and len(self.data) >= self._record + _RECORD_HEAD:
            begin = self._record + _RECORD_HEAD
            end = begin + int.from_bytes(self.data[begin - 2 : begin])
            if len(self.data) < end:
                return False
            if self.data[self._record] == HANDSHAKE_RECORD:
                lacks = _MESSAGE_HEAD - len(self._head)
                self._head += self.data[begin : min(end, begin + lacks)]
                self._size += end - begin
            self._record = end
        return self._is_whole

    @property
    def message(self) -> bytes:
        """Its records, once it is whole."""
        return bytes(self.data[: self._record])

    @property
    def behind(self) -> bytes:
        """What was read behind it, which the peer may say before it has an answer."""
        return bytes(self.data[self._record :])

    @property
    def problem(self) -> str:
        """Why TLS may not have it: it is too long, or its last record begins another message."""
        if len(self.data) > FIRST_BYTES_MAX:
            return "its first words are too long for a handshake"
        if self._is_whole and self._head[0] == _CLIENT_HELLO and self._size > self._message_size:
            return "its first message has another one in its record"
        return ""

    @property
    def _message_size(self) -> int:
        return _MESSAGE_HEAD + int.from_bytes(self._head[1:_MESSAGE_HEAD])

    @property
    def _is_whole(self) -> bool:
        head = self._head
        if head and head[0] != _CLIENT_HELLO:
            return True
        return len(head) >= _MESSAGE_HEAD and self._size >= self._message_size


class SecondHello:
    """Keeps each record that can be part of a second first message until it has had a turn.

    Such a message begins the next record of a handshake that is not encrypted, if there is one.
    Before it there may be records of other kinds, which TLS leaves out. What is encrypted (the end
    of a resumed handshake of TLS 1.2) can look like it, whatever lengths and versions are looked
    at, and those of a real one are up to the peer: it has a turn for nothing.
    """

    def __init__(self) -> None:
        self._kept = bytearray()
        """What TLS may not have yet, from the beginning of a record on."""
        self._rest = 0
        """What is to come of a record that TLS may have."""
        self._found = False
        """Whether one began as such a message does: all that follow may go on with it."""
        self._turns = 0
        self._ended = False
        """Whether another message was said: none can follow."""

    def add(self, data: bytes) -> bytes:
        """Take what was read; return what TLS may have at once."""
        self._kept += data
        return self._passed(0)

    @property
    def is_due(self) -> bool:
        """Whether a record is kept that is whole: TLS may have it after a turn."""
        kept = self._kept
        return len(kept) > _RECORD_HEAD and len(kept) >= self._end_of(0)

    def after_turn(self) -> bytes:
        """Return the record that is due, and what TLS may have behind it."""
        if not self.is_due:
            return b""
        self._turns += 1
        return self._passed(self._end_of(0))

    def rest(self) -> bytes:
        """Return all that is kept, once the handshake is done."""
        self._ended = True
        return self._passed(len(self._kept))

    @property
    def problem(self) -> str:
        """Why the rest may not be waited for."""
        if len(self._kept) > FIRST_BYTES_MAX or (self._kept and self._turns == SECOND_RECORDS_MAX):
            return "its second message is too long for a handshake"
        return ""

    def _passed(self, at: int) -> bytes:
        """Return what is before the next record that is to have a turn, from `at` on."""
        kept = self._kept
        while not self._ended:
            step = min(self._rest, len(kept) - at)
            self._rest -= step
            at += step
            if len(kept) <= at + _RECORD_HEAD or self._is_next(at):
                break
            self._rest = self._end_of(at) - at
        if self._ended:
            at = len(kept)
        passed = bytes(kept[:at])
        del kept[:at]
        return passed

    def _is_next(self, at: int) -> bool:
        """Whether the record there is to have a turn."""
        begin = at + _RECORD_HEAD
        if self._kept[at] != HANDSHAKE_RECORD or self._end_of(at) == begin:
            return False
        if not self._found and self._kept[begin] != _CLIENT_HELLO:
            self._ended = True
            return False
        self._found = True
        return True

    def _end_of(self, at: int) -> int:
        begin = at + _RECORD_HEAD
        return begin + int.from_bytes(self._kept[begin - 2 : begin])
