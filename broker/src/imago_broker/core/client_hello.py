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
_RECORD_HEAD: Final = 5
_MESSAGE_HEAD: Final = 4
_CLIENT_HELLO: Final = 1
_VERSION: Final = (0x03, 0x03)
"""What a second one says, whatever is negotiated; a first one may say less."""


class ClientHello:
    """What was read of it. Who keeps it limits `data`: lengths in it are the peer's."""

    def __init__(self) -> None:
        self.data = bytearray()
        self._record = 0
        """Where the first record begins that is not whole."""
        self._head = bytearray()
        """Of the message, whose records are cut anywhere, and the version in it."""
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
                lacks = _MESSAGE_HEAD + len(_VERSION) - len(self._head)
                self._head += self.data[begin : min(end, begin + lacks)]
                self._size += end - begin
            self._record = end
            if self._is_whole:
                return True
        return False

    @property
    def is_second(self) -> bool:
        """Whether it can be a second one: what is encrypted begins with any byte."""
        head = self._head
        return (
            head[:1] == bytes([_CLIENT_HELLO])
            and self._message_size <= FIRST_BYTES_MAX
            and tuple(head[_MESSAGE_HEAD:]) == _VERSION
        )

    @property
    def is_another(self) -> bool:
        """Whether enough is there to tell that it is no second one."""
        return len(self._head) == _MESSAGE_HEAD + len(_VERSION) and not self.is_second

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
    """Finds a second first message in what a client says after its first one.

    It is the next record of a handshake that is not encrypted, if there is one. Before it there may
    be records that TLS leaves out.
    """

    def __init__(self) -> None:
        self.kept: ClientHello | None = None
        """What was read from that record on."""
        self.whole = False
        """Whether that is whole, or no such message."""
        self._head = bytearray()
        """Of another record."""
        self._rest = 0
        """What is to come of it."""

    def add(self, data: bytes) -> bytes:
        """Take what was read; return what is before that record: TLS may have it at once."""
        at = 0
        while at < len(data) and self.kept is None:
            if self._rest:
                step = min(self._rest, len(data) - at)
                self._rest -= step
                at += step
            elif not self._head and data[at] == HANDSHAKE_RECORD:
                self.kept = ClientHello()
            else:
                self._head.append(data[at])
                at += 1
                if len(self._head) == _RECORD_HEAD:
                    self._rest = int.from_bytes(self._head[3:])
                    self._head.clear()
        if self.kept is not None:
            self.whole = self.kept.add(data[at:]) or self.kept.is_another
        return data[:at]
