from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.text import chunks, commands, garbage_text
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.text.commands import Command, Quit, Value, Version
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode


def decoded(data: bytes, *, chunk_size: int) -> list[Command]:
    decoder = Decoder(line_bytes_max=4096, body_bytes_max=1 << 16)
    found: list[Command] = []
    for chunk in chunks(data, chunk_size):
        decoder.feed(chunk)
        while (command := decoder.next_command()) is not None:
            found.append(command)
    assert decoder.buffered_size == 0
    return found


@given(sent=st.lists(commands, max_size=6), chunk_size=st.integers(1, 64))
def test_commands_survive_any_chunking(sent: list[Command], chunk_size: int) -> None:
    assert decoded(b"".join(map(encode, sent)), chunk_size=chunk_size) == sent


@given(command=commands)
def test_command_is_whole_only_with_its_last_byte(command: Command) -> None:
    data = encode(command)
    for cut in range(len(data)):
        decoder = Decoder(line_bytes_max=4096, body_bytes_max=1 << 16)
        decoder.feed(data[:cut])
        assert decoder.next_command() is None
        decoder.feed(data[cut:])
        assert decoder.next_command() == command
        assert decoder.next_command() is None


@given(data=garbage_text, chunk_size=st.integers(1, 40))
def test_garbage_gives_commands_or_a_protocol_error(data: bytes, chunk_size: int) -> None:
    decoder = Decoder(line_bytes_max=64, body_bytes_max=64)
    try:
        for chunk in chunks(data, chunk_size):
            decoder.feed(chunk)
            while decoder.next_command() is not None:
                pass
    except ProtocolError as error:
        with pytest.raises(type(error)):
            decoder.next_command()
    else:
        assert decoder.buffered_size <= 64 + 1 + 64


def test_line_of_the_limit_is_accepted() -> None:
    decoder = Decoder(line_bytes_max=9, body_bytes_max=0)
    decoder.feed(b"version 5\r\n")
    assert decoder.next_command() == Version(5)


def test_line_without_an_end_is_refused_at_the_limit() -> None:
    decoder = Decoder(line_bytes_max=9, body_bytes_max=0)
    decoder.feed(b"version 5x")
    assert decoder.next_command() is None
    decoder.feed(b"\r")
    with pytest.raises(LimitExceededError, match="line: 11 bytes, the limit is 9"):
        decoder.next_command()


def test_body_over_the_limit_is_refused_by_its_line() -> None:
    decoder = Decoder(line_bytes_max=64, body_bytes_max=100)
    decoder.feed(b"value 100 1\r\n" + bytes(100))
    assert decoder.next_command() == Value(bytes(100), 1)
    decoder.feed(b"value 101 1\r\n")
    with pytest.raises(LimitExceededError, match="body: 101 bytes, the limit is 100"):
        decoder.next_command()


def test_decoder_stays_broken_after_an_error() -> None:
    decoder = Decoder(line_bytes_max=64, body_bytes_max=0)
    decoder.feed(b"quit\r\nnonsense\r\nquit\r\n")
    assert decoder.next_command() == Quit()
    for _ in range(2):
        with pytest.raises(ProtocolError, match="unknown command 'nonsense'"):
            decoder.next_command()


def test_lone_line_feed_ends_no_line() -> None:
    decoder = Decoder(line_bytes_max=64, body_bytes_max=0)
    decoder.feed(b"version 5\n")
    assert decoder.next_command() is None
