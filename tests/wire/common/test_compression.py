from __future__ import annotations

import contextlib
import zlib

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from imago_wire.compression import compress, inflate
from imago_wire.errors import LimitExceededError, ProtocolError

KINDS = [0x000, 0x100, 0x200, 0x300]


@given(body=st.binary(max_size=2000), kind=st.sampled_from(KINDS))
def test_body_survives(body: bytes, kind: int) -> None:
    assert inflate(compress(body, kind), kind | 1, len(body)) == body


@pytest.mark.parametrize("kind", KINDS)
def test_bomb_is_refused_at_the_limit(kind: int) -> None:
    bomb = compress(bytes(50_000_000), kind)
    assert len(bomb) < 500_000
    with pytest.raises(LimitExceededError, match="the limit is 1000000"):
        inflate(bomb, kind | 1, 1_000_000)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [0, 1, 5, 12, 20])
def test_cut_body_is_refused(kind: int, cut: int) -> None:
    whole = compress(bytes(range(256)) * 4, kind)
    with pytest.raises(ProtocolError):
        inflate(whole[:cut], kind | 1, 10_000)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_body_is_refused(kind: int) -> None:
    whole = compress(bytes(range(256)) * 4, kind)
    with pytest.raises(ProtocolError):
        inflate(b"\x00\x00" + whole, kind | 1, 10_000)


@given(body=st.binary(max_size=200), kind=st.sampled_from([*KINDS, 0x400, 0x700]))
def test_garbage_is_refused_or_inflated_within_the_limit(body: bytes, kind: int) -> None:
    with contextlib.suppress(ProtocolError):
        assert len(inflate(body, kind | 1, 1000)) <= 1000


def test_zstd_stream_that_does_not_say_its_size_is_bounded_too() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(5000))
    assert inflate(stream, 0x201, 5000) == bytes(5000)
    with pytest.raises(LimitExceededError):
        inflate(stream, 0x201, 4999)
    with pytest.raises(ProtocolError, match="damaged"):
        inflate(stream[:-1], 0x201, 5000)


def test_unknown_type_is_refused_both_ways() -> None:
    with pytest.raises(ProtocolError, match="compression type 5"):
        inflate(b"", 0x500, 10)
    with pytest.raises(ProtocolError, match="compression type 5"):
        compress(b"", 0x500)


def test_zlib_without_type_bits_is_what_old_clients_send() -> None:
    assert inflate(zlib.compress(b"hello"), 1, 5) == b"hello"
