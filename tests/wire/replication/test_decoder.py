"""The stream between members: any chunking, and refusal before anything is kept."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.replication import VECTORS, frames
from imago_testing.searching import examples
from imago_wire.errors import ChecksumError, LimitExceededError, ProtocolError
from imago_wire.replication.decoder import FrameDecoder
from imago_wire.replication.encoder import data_header, encode, repair_header
from imago_wire.replication.frames import (
    DATA_BYTES_MAX,
    EPOCHS_MAX,
    HANDSHAKE_BYTES_MAX,
    HEADER,
    REPAIR_BYTES_MAX,
    TEXT_BYTES_MAX,
    Ack,
    Frame,
    FrameType,
    Hello,
    Refuse,
)


def header(
    *, magic: bytes = b"IMGR", version: int = 1, kind: int = 6, epoch: int = 1, size: int = 16
) -> bytes:
    """A header with a right checksum, whatever else it says."""
    unchecked = HEADER.pack(magic, version, kind, 0, epoch, size, 0)[:-4]
    return unchecked + zlib.crc32(unchecked).to_bytes(4, "big")


def decoded(data: bytes, chunk_size: int) -> list[Frame]:
    decoder, found = FrameDecoder(), []
    for at in range(0, len(data), chunk_size):
        found += [copied(frame) for frame in decoder.feed(data[at : at + chunk_size])]
    assert decoder.buffered_size == 0
    return found


def copied(frame: Frame) -> Frame:
    """The frame with bytes of its own, as `feed` asks."""
    return FrameDecoder().feed(encode(frame))[0]


@given(st.lists(frames(), max_size=5), st.integers(1, 300))
def test_frames_survive_any_chunking(sent: list[Frame], chunk_size: int) -> None:
    assert decoded(b"".join(map(encode, sent)), chunk_size) == sent


@settings(max_examples=examples(30))
@given(st.lists(frames(), min_size=1, max_size=2))
def test_frames_survive_a_split_at_every_byte(sent: list[Frame]) -> None:
    data = b"".join(map(encode, sent))
    for at in range(len(data) + 1):
        decoder = FrameDecoder()
        first = [copied(frame) for frame in decoder.feed(data[:at])]
        assert first + decoder.feed(data[at:]) == sent


@given(frames(), st.data())
def test_bit_flip_in_a_header_is_noticed(frame: Frame, draw: st.DataObject) -> None:
    data = bytearray(encode(frame))
    bit = draw.draw(st.integers(0, HEADER.size * 8 - 1))
    data[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(bytes(data))


@given(st.binary(max_size=200), st.integers(1, 30))
def test_garbage_raises_nothing_but_protocol_errors(data: bytes, chunk_size: int) -> None:
    try:
        found = decoded(data, chunk_size)
    except (ProtocolError, AssertionError):
        return
    assert len(found) <= len(data) // HEADER.size


@given(st.sampled_from(list(FrameType)), st.binary(max_size=120))
def test_any_payload_is_a_frame_or_a_protocol_error(kind: FrameType, payload: bytes) -> None:
    data = header(kind=kind, size=len(payload)) + payload
    try:
        found = FrameDecoder().feed(data)
    except ProtocolError:
        return
    assert [encode(frame) for frame in found] == [data]


@pytest.mark.parametrize("greeting", [b"g", b"get test ", b"\0\0\1\x05", b"HTTP"])
def test_other_protocol_is_refused_by_its_first_word(greeting: bytes) -> None:
    with pytest.raises(ProtocolError, match="unknown magic"):
        FrameDecoder().feed(greeting)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"version": 2}, "version 2 of the protocol, this side speaks 1"),
        ({"kind": 0}, "frame of type 0"),
        ({"kind": 10}, "frame of type 10"),
        ({"epoch": -1}, "epoch -1"),
        ({"size": 1025}, "ACK: 1025 bytes, the limit is 1024"),
        ({"kind": 1, "size": HANDSHAKE_BYTES_MAX + 1}, "HELLO: 65537 bytes"),
        ({"kind": 5, "size": (4 << 20) + 1}, "DATA: 4194305 bytes"),
        ({"kind": 5, "size": 0xFFFFFFFF}, "DATA: 4294967295 bytes"),
    ],
)
def test_header_that_cannot_be_served_is_refused_at_once(
    wrong: dict[str, int], reason: str
) -> None:
    decoder = FrameDecoder()
    with pytest.raises(ProtocolError, match=reason):
        decoder.feed(header(**wrong))  # type: ignore[arg-type]  # numbers only


def test_wrong_checksum_is_named() -> None:
    data = bytearray(header())
    data[-1] ^= 1
    with pytest.raises(ChecksumError):
        FrameDecoder().feed(bytes(data))


def test_frames_that_are_not_expected_are_refused_by_their_header() -> None:
    decoder = FrameDecoder(frozenset({FrameType.HELLO}))
    with pytest.raises(ProtocolError, match="type 6, which may not be sent here"):
        decoder.feed(encode(Ack(1, 2, 3))[: HEADER.size])


@pytest.mark.parametrize("name", ["hello", "welcome", "refuse", "fetch", "ack", "repair-ask"])
@pytest.mark.parametrize("change", [-1, 1])
def test_payload_has_no_byte_too_few_or_too_many(name: str, change: int) -> None:
    data = bytes.fromhex(VECTORS[name][0].replace(" ", ""))
    payload = data[HEADER.size :] + b"\0"
    payload = payload[: len(data) - HEADER.size + change]
    with pytest.raises(ProtocolError):
        FrameDecoder().feed(header(kind=data[5], size=len(payload)) + payload)


def hello(**changes: object) -> Hello:
    fields: dict[str, object] = {
        "epoch": 1,
        "cluster_id": "c",
        "shard": 0,
        "uuid": "u",
        "incarnation": 1,
        "epochs": (),
        "log_start": 0,
        "log_end": 0,
        **changes,
    }
    return Hello(**fields)  # type: ignore[arg-type]  # the fields above, some replaced


def test_lists_and_texts_have_limits_in_both_directions() -> None:
    most = tuple((number + 1, number) for number in range(EPOCHS_MAX))
    assert FrameDecoder().feed(encode(hello(epochs=most))) == [hello(epochs=most)]
    with pytest.raises(LimitExceededError, match="epochs"):
        encode(hello(epochs=(*most, (1 << 40, 1 << 40))))
    with pytest.raises(LimitExceededError, match="text"):
        encode(hello(uuid="x" * (TEXT_BYTES_MAX + 1)))
    with pytest.raises(LimitExceededError, match="text"):
        encode(Refuse(1, 1, "\u20ac" * 400))
    with pytest.raises(LimitExceededError, match="HELLO"):
        encode(hello(extensions=((1, b"x" * 40_000), (2, b"x" * 40_000))))
    with pytest.raises(LimitExceededError, match="DATA"):
        data_header(
            epoch=1, offset=0, data_epoch=1, epoch_start=0, high_watermark=0, leader_end=0,
            size=DATA_BYTES_MAX + 1,
        )  # fmt: skip
    with pytest.raises(LimitExceededError, match="REPAIR"):
        repair_header(epoch=1, offset=0, size=REPAIR_BYTES_MAX + 1)


@pytest.mark.parametrize("epochs", [((2, 0), (1, 5)), ((1, 5), (1, 6)), ((1, 5), (2, 4))])
def test_epochs_that_fall_are_refused(epochs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ProtocolError, match="epochs are not in order"):
        FrameDecoder().feed(encode(hello(epochs=epochs)))
