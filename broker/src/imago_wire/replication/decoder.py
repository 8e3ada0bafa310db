"""Bytes of the protocol between members to values."""

from __future__ import annotations

import struct
import zlib
from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

from imago_wire.errors import ChecksumError, LimitExceededError, ProtocolError
from imago_wire.replication.frames import (
    DATA_NUMBERS,
    EPOCHS_MAX,
    HEADER,
    HEADER_UNCHECKED,
    HELLO_NUMBERS,
    MAGIC,
    PAIR,
    REPAIR_ASK_NUMBERS,
    REPAIR_BYTES_MAX,
    REPAIR_NUMBERS,
    SIZE_MAX,
    TEXT_BYTES_MAX,
    U16,
    VERSION,
    WELCOME_NUMBERS,
    Ack,
    Buffer,
    Data,
    Epochs,
    Fetch,
    Frame,
    FrameType,
    Hello,
    Metadata,
    Refuse,
    Repair,
    RepairAsk,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class FrameDecoder:
    """Bytes in, frames out. Touches no socket and no clock.

    The log bytes of DATA and REPAIR are views of what was fed: use them before feeding again, or
    copy. After a ProtocolError the stream is lost: close the connection.
    """

    def __init__(self, expected: frozenset[FrameType] = frozenset(FrameType)) -> None:
        """Frames of other than the `expected` types are refused by their header alone."""
        self.expected = expected
        self._parts: list[Buffer] = []
        self._size = 0
        self._wanted = 1  # a stranger's first bytes are enough to see that it is one

    @property
    def buffered_size(self) -> int:
        """Bytes of a frame whose end has not come yet."""
        return self._size

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes; return the frames that they complete.

        A wrong magic, version, type or checksum and a size over the limit of the frame's type
        raise as soon as the header is there, so that nothing is kept for a lying size. Frames
        before the wrong one are lost with it.
        """
        self._size += len(data)
        if self._size < self._wanted:
            self._parts.append(data)
            return []
        if self._parts:
            self._parts.append(data)
            view = memoryview(b"".join(self._parts))
            self._parts = []
        else:
            view = memoryview(data)
        at, frames = 0, []
        while (end := self._end(view, at)) <= len(view):
            frames.append(_decode(view, at, end))
            at = end
        self._wanted = end - at
        self._size = len(view) - at
        if self._size:
            self._parts.append(view[at:])
        return frames

    def _end(self, view: memoryview, at: int) -> int:
        """Return where the frame at `at` ends, or its header as long as that is not whole."""
        have = len(view) - at
        if have < HEADER.size:
            if have and not MAGIC.startswith(view[at : at + 4]):
                raise ProtocolError(f"unknown magic {bytes(view[at : at + 4]).hex()}")
            return at + HEADER.size
        magic, version, kind, _, epoch, size, checksum = HEADER.unpack_from(view, at)
        if magic != MAGIC:
            raise ProtocolError(f"unknown magic {magic.hex()}")
        actual = zlib.crc32(view[at : at + HEADER_UNCHECKED])
        if actual != checksum:
            raise ChecksumError(expected=checksum, actual=actual)
        if version != VERSION:
            raise ProtocolError(f"version {version} of the protocol, this side speaks {VERSION}")
        if epoch < 0:
            raise ProtocolError(f"epoch {epoch}")
        self._check_kind(kind, size)
        return at + HEADER.size + cast("int", size)

    def _check_kind(self, kind: int, size: int) -> None:
        size_max = SIZE_MAX.get(cast("FrameType", kind))
        if size_max is None or kind not in self.expected:
            raise ProtocolError(f"frame of type {kind}, which may not be sent here")
        if size > size_max:
            raise LimitExceededError(FrameType(kind).name, size=size, size_max=size_max)


class _Payload:
    """A cursor over a payload. ProtocolError where it ends too early or too late."""

    def __init__(self, view: memoryview) -> None:
        self.view, self.at = view, 0

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self.view, self.at)
        except struct.error as error:
            raise ProtocolError("payload ends too early") from error
        if min(values) < 0:
            raise ProtocolError(f"negative number in a payload: {values}")
        self.at += layout.size
        return values

    def take(self, size: int) -> memoryview:
        if self.at + size > len(self.view):
            raise ProtocolError("payload ends too early")
        self.at += size
        return self.view[self.at - size : self.at]

    def text(self) -> str:
        (size,) = self.numbers(U16)
        if size > TEXT_BYTES_MAX:
            raise LimitExceededError("text", size=size, size_max=TEXT_BYTES_MAX)
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError("text is not UTF-8") from error

    def epochs(self) -> Epochs:
        (count,) = self.numbers(U16)
        if count > EPOCHS_MAX:
            raise LimitExceededError("epochs", size=count, size_max=EPOCHS_MAX)
        flat = self.numbers(struct.Struct(f">{2 * count}q")) if count else ()
        epochs = tuple(zip(flat[::2], flat[1::2], strict=True))
        for (epoch, start), (following, begins) in pairwise(epochs):
            if following <= epoch or begins < start:
                raise ProtocolError("epochs are not in order")
        return epochs

    def extensions(self) -> tuple[tuple[int, bytes], ...]:
        found = []
        while self.at < len(self.view):
            kind, size = (*self.numbers(U16), *self.numbers(U16))
            found.append((kind, bytes(self.take(size))))
        return tuple(found)

    def rest(self) -> memoryview:
        return self.take(len(self.view) - self.at)

    def end(self) -> None:
        if self.at != len(self.view):
            raise ProtocolError("payload is longer than its content")


def _decode(view: memoryview, at: int, end: int) -> Frame:
    _, _, kind, flags, epoch, _, _ = HEADER.unpack_from(view, at)
    payload = _Payload(view[at + HEADER.size : end])
    frame = _READERS[FrameType(kind)](epoch, flags, payload)
    payload.end()
    return frame


def _read_data(epoch: int, flags: int, payload: _Payload) -> Frame:
    offset, data_epoch, start, high_watermark, leader_end = payload.numbers(DATA_NUMBERS)
    data = payload.rest()
    return Data(epoch, flags, offset, data_epoch, start, high_watermark, leader_end, data)


def _read_metadata(epoch: int, flags: int, payload: _Payload) -> Frame:
    return Metadata(epoch, flags, payload.rest())


def _read_hello(epoch: int, _flags: int, payload: _Payload) -> Frame:
    shard, incarnation, log_start, log_end = payload.numbers(HELLO_NUMBERS)
    return Hello(
        epoch=epoch,
        shard=shard,
        incarnation=incarnation,
        log_start=log_start,
        log_end=log_end,
        cluster_id=payload.text(),
        uuid=payload.text(),
        epochs=payload.epochs(),
        extensions=payload.extensions(),
    )


def _read_welcome(epoch: int, _flags: int, payload: _Payload) -> Frame:
    incarnation, log_start, log_end, high_watermark = payload.numbers(WELCOME_NUMBERS)
    return Welcome(
        epoch=epoch,
        incarnation=incarnation,
        log_start=log_start,
        log_end=log_end,
        high_watermark=high_watermark,
        uuid=payload.text(),
        epochs=payload.epochs(),
        extensions=payload.extensions(),
    )


def _read_refuse(epoch: int, _flags: int, payload: _Payload) -> Frame:
    return Refuse(epoch, payload.numbers(U16)[0], payload.text())


def _read_fetch(epoch: int, flags: int, payload: _Payload) -> Frame:
    offset, last_epoch = payload.numbers(PAIR)
    return Fetch(epoch, offset, last_epoch, flags)


def _read_ack(epoch: int, _flags: int, payload: _Payload) -> Frame:
    end, durable_end = payload.numbers(PAIR)
    return Ack(epoch, end, durable_end)


def _read_repair_ask(epoch: int, _flags: int, payload: _Payload) -> Frame:
    offset, size = payload.numbers(REPAIR_ASK_NUMBERS)
    if size > REPAIR_BYTES_MAX:
        raise LimitExceededError("REPAIR_ASK", size=size, size_max=REPAIR_BYTES_MAX)
    return RepairAsk(epoch, offset, size)


def _read_repair(epoch: int, _flags: int, payload: _Payload) -> Frame:
    (offset,) = payload.numbers(REPAIR_NUMBERS)
    return Repair(epoch, offset, payload.rest())


_READERS: Final[dict[FrameType, Callable[[int, int, _Payload], Frame]]] = {
    FrameType.HELLO: _read_hello,
    FrameType.WELCOME: _read_welcome,
    FrameType.REFUSE: _read_refuse,
    FrameType.FETCH: _read_fetch,
    FrameType.DATA: _read_data,
    FrameType.ACK: _read_ack,
    FrameType.REPAIR_ASK: _read_repair_ask,
    FrameType.REPAIR: _read_repair,
    FrameType.METADATA: _read_metadata,
}
