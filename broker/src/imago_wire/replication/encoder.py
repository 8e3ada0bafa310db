"""Values of the protocol between members to bytes."""

from __future__ import annotations

import zlib

from imago_wire.errors import LimitExceededError
from imago_wire.replication.frames import (
    DATA_BYTES_MAX,
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


def _head(kind: FrameType, epoch: int, size: int, flags: int = 0) -> bytes:
    unchecked = HEADER.pack(MAGIC, VERSION, kind, flags, epoch, size, 0)[:HEADER_UNCHECKED]
    return unchecked + zlib.crc32(unchecked).to_bytes(4, "big")


def _framed(kind: FrameType, epoch: int, payload: bytes | memoryview, flags: int = 0) -> bytes:
    if len(payload) > SIZE_MAX[kind]:
        raise LimitExceededError(kind.name, size=len(payload), size_max=SIZE_MAX[kind])
    return b"".join((_head(kind, epoch, len(payload), flags), payload))


def data_header(
    *,
    epoch: int,
    offset: int,
    data_epoch: int,
    epoch_start: int,
    high_watermark: int,
    leader_end: int,
    size: int,
    flags: int = 0,
) -> bytes:
    """Return the front of a DATA frame of `size` log bytes; they follow as they are."""
    if size > DATA_BYTES_MAX:
        raise LimitExceededError("DATA", size=size, size_max=DATA_BYTES_MAX)
    head = _head(FrameType.DATA, epoch, DATA_NUMBERS.size + size, flags)
    return head + DATA_NUMBERS.pack(offset, data_epoch, epoch_start, high_watermark, leader_end)


def repair_header(*, epoch: int, offset: int, size: int) -> bytes:
    """Return the front of a REPAIR frame of `size` log bytes; they follow as they are."""
    if size > REPAIR_BYTES_MAX:
        raise LimitExceededError("REPAIR", size=size, size_max=REPAIR_BYTES_MAX)
    return _head(FrameType.REPAIR, epoch, REPAIR_NUMBERS.size + size) + REPAIR_NUMBERS.pack(offset)


def encode(frame: Frame) -> bytes:
    """Return one whole frame. LimitExceededError: a text or a list is too long for its place."""
    match frame:
        case Hello():
            return _framed(FrameType.HELLO, frame.epoch, _hello(frame))
        case Welcome():
            return _framed(FrameType.WELCOME, frame.epoch, _welcome(frame))
        case Refuse(epoch, code, text):
            return _framed(FrameType.REFUSE, epoch, U16.pack(code) + _text(text))
        case Fetch(epoch, offset, last_epoch, flags):
            return _framed(FrameType.FETCH, epoch, PAIR.pack(offset, last_epoch), flags)
        case Ack(epoch, end, durable_end):
            return _framed(FrameType.ACK, epoch, PAIR.pack(end, durable_end))
        case RepairAsk(epoch, offset, size):
            return _framed(FrameType.REPAIR_ASK, epoch, REPAIR_ASK_NUMBERS.pack(offset, size))
        case Data() | Repair() | Metadata():
            return _with_bytes(frame)


def _with_bytes(frame: Data | Repair | Metadata) -> bytes:
    if isinstance(frame, Metadata):
        return _framed(FrameType.METADATA, frame.epoch, frame.data, frame.flags)
    if isinstance(frame, Repair):
        size = len(frame.data)
        head = repair_header(epoch=frame.epoch, offset=frame.offset, size=size)
        return b"".join((head, frame.data))
    head = data_header(
        epoch=frame.epoch,
        offset=frame.offset,
        data_epoch=frame.data_epoch,
        epoch_start=frame.epoch_start,
        high_watermark=frame.high_watermark,
        leader_end=frame.leader_end,
        size=len(frame.data),
        flags=frame.flags,
    )
    return b"".join((head, frame.data))


def _hello(frame: Hello) -> bytes:
    numbers = (frame.shard, frame.incarnation, frame.log_start, frame.log_end)
    names = (_text(frame.cluster_id), _text(frame.uuid))
    parts = (*names, _epochs(frame.epochs), _extensions(frame.extensions))
    return b"".join((HELLO_NUMBERS.pack(*numbers), *parts))


def _welcome(frame: Welcome) -> bytes:
    numbers = (frame.incarnation, frame.log_start, frame.log_end, frame.high_watermark)
    parts = (_text(frame.uuid), _epochs(frame.epochs), _extensions(frame.extensions))
    return b"".join((WELCOME_NUMBERS.pack(*numbers), *parts))


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > TEXT_BYTES_MAX:
        raise LimitExceededError("text", size=len(data), size_max=TEXT_BYTES_MAX)
    return U16.pack(len(data)) + data


def _epochs(epochs: Epochs) -> bytes:
    if len(epochs) > EPOCHS_MAX:
        raise LimitExceededError("epochs", size=len(epochs), size_max=EPOCHS_MAX)
    return U16.pack(len(epochs)) + b"".join(PAIR.pack(*pair) for pair in epochs)


def _extensions(extensions: tuple[tuple[int, bytes], ...]) -> bytes:
    parts = [U16.pack(kind) + U16.pack(len(value)) + value for kind, value in extensions]
    return b"".join(parts)
