"""Frames: cutting the stream, and limits that hold before anything is buffered."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.remoting import commands
from imago_testing.searching import examples
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.remoting.command import RemotingCommand
from imago_wire.remoting.frame import FRAME_BYTES_MAX, FrameDecoder, encode_frame


def decoded(
    data: bytes, *, chunk_size: int, frame_bytes_max: int = FRAME_BYTES_MAX
) -> list[RemotingCommand]:
    decoder = FrameDecoder(frame_bytes_max=frame_bytes_max)
    found = []
    for at in range(0, len(data), chunk_size):
        decoder.feed(data[at : at + chunk_size])
        while (command := decoder.next_frame()) is not None:
            found.append(command)
    return found


@given(st.lists(commands(), max_size=3), st.integers(1, 64))
def test_frames_survive_any_chunking(sent: list[RemotingCommand], chunk_size: int) -> None:
    assert decoded(b"".join(map(encode_frame, sent)), chunk_size=chunk_size) == sent


@settings(max_examples=examples(30))
@given(st.lists(commands(), min_size=1, max_size=2))
def test_frames_survive_a_split_at_every_byte(sent: list[RemotingCommand]) -> None:
    data = b"".join(map(encode_frame, sent))
    for at in range(len(data) + 1):
        decoder = FrameDecoder()
        found = []
        for part in (data[:at], data[at:]):
            decoder.feed(part)
            while (command := decoder.next_frame()) is not None:
                found.append(command)
        assert found == sent


@given(st.binary(max_size=100), st.integers(1, 20))
def test_garbage_raises_nothing_but_protocol_errors(data: bytes, chunk_size: int) -> None:
    try:
        commands_found = decoded(data, chunk_size=chunk_size, frame_bytes_max=64)
    except ProtocolError:
        return
    assert len(commands_found) <= len(data) // 8


def test_frame_of_the_largest_size_is_taken_and_one_more_is_not() -> None:
    frame = encode_frame(RemotingCommand(1, body=b"x" * 100))
    assert len(decoded(frame, chunk_size=7, frame_bytes_max=len(frame))) == 1
    text = f"frame: {len(frame)} bytes, the limit is {len(frame) - 1}"
    with pytest.raises(LimitExceededError, match=text):
        decoded(frame[:4], chunk_size=4, frame_bytes_max=len(frame) - 1)


def test_default_limit_is_16_mebibytes_with_the_length_word() -> None:
    decoder = FrameDecoder()
    decoder.feed((FRAME_BYTES_MAX - 4).to_bytes(4, "big"))
    assert decoder.next_frame() is None
    decoder = FrameDecoder()
    decoder.feed((FRAME_BYTES_MAX - 3).to_bytes(4, "big"))
    with pytest.raises(LimitExceededError):
        decoder.next_frame()


@pytest.mark.parametrize(
    "prefix",
    ["00000000", "00000003", "0000000800000005", "0000000402000000", "0000001001000010"],
)
def test_sizes_that_do_not_fit_are_refused_at_once(prefix: str) -> None:
    decoder = FrameDecoder()
    decoder.feed(bytes.fromhex(prefix))
    with pytest.raises(ProtocolError):
        decoder.next_frame()


def test_header_over_its_own_limit_is_refused() -> None:
    decoder = FrameDecoder(header_bytes_max=16)
    decoder.feed(bytes.fromhex("0000002000000011"))
    with pytest.raises(LimitExceededError, match="header: 17 bytes, the limit is 16"):
        decoder.next_frame()
