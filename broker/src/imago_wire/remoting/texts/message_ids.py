"""Message ids: where a message is stored, and what its client named it.

An offset message id is the hexadecimal form of address (4 or 16 bytes), port (4) and physical
offset (8). A unique key is that of address (4 or 16), process id (2), a hash (4), milliseconds
since the start of the month (4) and a counter (2). Both have 32 or 56 digits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from imago_wire.errors import ProtocolError
from imago_wire.records.record import offset_message_id

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "UniqueKey",
    "UniqueKeys",
    "month_start",
    "offset_message_id",
    "parse_offset_message_id",
    "parse_unique_key",
]

_DIGITS: Final = (32, 56)
_TAIL: Final = struct.Struct(">HIIH")


def parse_offset_message_id(text: str) -> tuple[bytes, int]:
    """Return host (address, then port as 4 bytes) and physical offset."""
    data = _from_hex(text)
    return data[:-8], int.from_bytes(data[-8:], "big", signed=True)


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The parts of a client's message id."""

    address: bytes
    process_id: int
    seed: int
    """In Java, the hash of a class loader."""
    month_ms: int
    """Milliseconds since the client's month began."""
    counter: int

    def __str__(self) -> str:
        tail = _TAIL.pack(self.process_id, self.seed, self.month_ms, self.counter)
        return (self.address + tail).hex().upper()

    def born_ms(self, now_ms: int) -> int:
        """Return when the id was made, taken for the latest month that is not after now."""
        born = month_start(now_ms) + self.month_ms
        if born > now_ms:
            born = month_start(month_start(now_ms) - 1) + self.month_ms
        return born


def parse_unique_key(text: str) -> UniqueKey:
    """Return the parts of a unique key; ProtocolError if it is none."""
    data = _from_hex(text)
    return UniqueKey(data[: -_TAIL.size], *_TAIL.unpack(data[-_TAIL.size :]))


def month_start(now_ms: int) -> int:
    """Return the first millisecond of the month, in UTC."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return int(datetime(now.year, now.month, 1, tzinfo=UTC).timestamp()) * 1000


class UniqueKeys:
    """Makes the ids of one client process, never the same twice within 65,536 a millisecond."""

    def __init__(
        self, address: bytes, process_id: int, seed: int, clock: Callable[[], int]
    ) -> None:
        """`address`: 4 or 16 bytes; `seed`: 32 bits that tell instances apart; `clock` in ms."""
        head = address + _TAIL.pack(process_id & 0xFFFF, seed & 0xFFFF_FFFF, 0, 0)[:6]
        self._head = head.hex().upper()
        self._clock = clock
        self._counter = 0
        self._month_start = self._month_end = 0

    def next(self) -> str:
        now = self._clock()
        if not self._month_start <= now < self._month_end:
            self._month_start = month_start(now)
            self._month_end = month_start(self._month_start + 32 * 86_400_000)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._head}{now - self._month_start:08X}{counter:04X}"


def _from_hex(text: str) -> bytes:
    if len(text) in _DIGITS:
        try:
            return bytes.fromhex(text)
        except ValueError:
            pass
    raise ProtocolError(f"{text[:64]!r} is no message id of 32 or 56 hexadecimal digits")
