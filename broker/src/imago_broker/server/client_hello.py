"""The first message of TLS, until it is whole: the costly step of a handshake is the answer to it.

It may come in several reads, and in several records, each with five bytes before it.
"""

from __future__ import annotations

from typing import Final

HANDSHAKE_RECORD: Final = 22
"""First byte of a TLS connection."""
_RECORD_HEAD: Final = 5
_MESSAGE_HEAD: Final = 4
_CLIENT_HELLO: Final = 1


class ClientHello:
    """What was read of it. Who keeps it limits `data`: lengths in it are the peer's."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._record = 0
        """Where the first record begins that is not whole."""
        self._head = bytearray()
        """Of the message, whose records are cut anywhere."""
        self._size = 0
        """What is there of the message."""

    def add(self, data: bytes) -> bool:
        """Take what was read; whether TLS can answer now: it is whole, or no such message."""
        self.data += data
        while len(self.data) >= self._record + _RECORD_HEAD:
            begin = self._record + _RECORD_HEAD
            end = begin + int.from_bytes(self.data[begin - 2 : begin])
            if len(self.data) < end:
                return False
            if self.data[self._record] == HANDSHAKE_RECORD:
                self._head += self.data[begin : min(end, begin + _MESSAGE_HEAD - len(self._head))]
                self._size += end - begin
            self._record = end
            if self._is_whole:
                return True
        return False

    @property
    def _is_whole(self) -> bool:
        head = self._head
        if head and head[0] != _CLIENT_HELLO:
            return True
        whole = _MESSAGE_HEAD + int.from_bytes(head[1:])
        return len(head) == _MESSAGE_HEAD and self._size >= whole
