"""Strategies and golden frames for the tests of the text protocol and of records."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

from imago_wire.text.commands import (
    Auth,
    Command,
    Get,
    Offset,
    Put,
    Quit,
    Result,
    Stats,
    Sync,
    Transaction,
    TransactionType,
    Value,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

GOLDEN: Final = Path(__file__).parents[3] / "golden"


@dataclass(frozen=True)
class GoldenFrame:
    """A frame as an original client or broker sent it."""

    sender: str
    name: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.sender}: {self.name}"


def golden_metaq_frames() -> list[GoldenFrame]:
    """Frames captured between MetaQ 1.4.6.2's own client and broker."""
    entries = json.loads((GOLDEN / "metaq_frames.json").read_text())
    return [GoldenFrame(e["sender"], e["name"], bytes.fromhex(e["hex"])) for e in entries]


def chunks(data: bytes, size: int) -> Iterator[bytes]:
    """Cut data into pieces of ``size`` bytes."""
    for at in range(0, len(data), size):
        yield data[at : at + size]


i32 = st.integers(-(1 << 31), (1 << 31) - 1)
i64 = st.integers(-(1 << 63), (1 << 63) - 1)

_word_characters = st.characters(codec="utf-8", exclude_characters=" \r\n")
words = st.text(_word_characters, min_size=1, max_size=12)
ascii_words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
bodies = st.binary(max_size=200)

_session_ids = st.text(st.characters(min_codepoint=48, max_codepoint=57), min_size=1, max_size=8)
_qualifiers = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=8)
local_keys = st.builds("TX:{}:{}".format, _session_ids, i32)
xa_keys = st.builds(
    lambda number, gtrid, bqual, q: f"XID:{number}:{gtrid.hex()}:{bqual.hex()}:{q}",
    i32,
    st.binary(max_size=8),
    st.binary(max_size=8),
    _qualifiers,
)
transaction_keys = local_keys | xa_keys | st.just("null")

puts = st.builds(Put, words, i32, i32, bodies, i32, st.none() | i32, st.none() | transaction_keys)
gets = st.builds(Get, words, words, i32, i64, i32, i32)
transactions = st.builds(
    Transaction,
    transaction_keys,
    _session_ids,
    st.sampled_from(TransactionType),
    i32,
    st.none() | st.integers(0, (1 << 31) - 1),
    st.none() | _qualifiers,
)
commands: st.SearchStrategy[Command] = st.one_of(
    puts,
    gets,
    st.builds(Offset, words, words, i32, i64, i32),
    st.builds(Version, st.none() | i32),
    st.builds(Stats, st.just("") | words, st.none() | i32),
    st.builds(Quit),
    st.builds(Auth, words, words, i32),
    transactions,
    st.builds(Sync, words, i32, i32, i64, bodies, i32, st.none() | i32),
    st.builds(Result, i32, bodies, i32),
    st.builds(Value, bodies, i32),
)

# Nearly commands: what mutation of valid text gives, joined with spaces and line ends.
_fragments = st.sampled_from(
    [
        b"put", b"get", b"offset", b"version", b"stats", b"quit", b"transaction", b"sync",
        b"result", b"value", b"test", b"auth",
        b"0", b"1", b"5", b"-1", b"+7", b"907060870", b"hello",
        b"2147483647", b"2147483648", b"-2147483648", b"9223372036854775807", b"TX:a:1",
        b"XID:1:00:ff:q", b"null", b"BEGIN", b"\r\n", b"\r\n", b"\r", b"\n", b" ", b" ", b" ",
        b"\x00", b"\xff", b"\xc3\xa9", b"00000000000000000005", b"1_0", b"\t",
    ]
)  # fmt: skip
garbage_text = st.one_of(
    st.binary(max_size=80),
    st.lists(_fragments, max_size=24).map(b"".join),
    st.lists(_fragments, max_size=12).map(lambda words: b" ".join(words) + b"\r\n"),
)
