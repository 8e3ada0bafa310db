"""The broker's read path: a buffer of many commands in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.records import HOST, NOW_MS
from imago_testing.frames.text import commands, garbage_text, golden_metaq_frames, i32, i64
from imago_wire.crc import crc31
from imago_wire.errors import ProtocolError
from imago_wire.text._text_py import scan_text
from imago_wire.text.commands import Command, Get, Put, Quit, Stats, Value, Version
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode, encode_items, result
from imago_wire.text.items import BAD, GET, OTHER, PUT

if TYPE_CHECKING:
    from imago_testing.frames.twins import Twin

LINE_MAX = 4096
BODY_MAX = 1 << 20


def as_item(command: Command) -> tuple[Any, ...]:
    match command:
        case Put():
            checksum = -1 if command.checksum is None else command.checksum
            return (
                PUT, command.topic, command.partition, command.flag, checksum,
                command.transaction, command.opaque, command.body,
            )  # fmt: skip
        case Get():
            return (
                GET, command.topic, command.group, command.partition, command.offset,
                command.max_size, command.opaque,
            )  # fmt: skip
        case _:
            return (OTHER, command)


def by_decoder(data: bytes, line_max: int, body_max: int) -> list[tuple[Any, ...]]:
    """What the decoder, which knows no hot path, makes of the same bytes."""
    decoder = Decoder(line_bytes_max=line_max, body_bytes_max=body_max)
    decoder.feed(data)
    items: list[tuple[Any, ...]] = []
    try:
        while (command := decoder.next_command()) is not None:
            items.append(as_item(command))
    except ProtocolError as error:
        items.append((BAD, str(error)))
    return items


@given(sent=st.lists(commands, max_size=6))
def test_scan_finds_every_command(twin: Twin, sent: list[Command]) -> None:
    data = b"".join(map(encode, sent))
    assert twin.scan_text(data, LINE_MAX, BODY_MAX) == (list(map(as_item, sent)), len(data))
    assert twin.scan_text(bytearray(data), LINE_MAX, BODY_MAX)[1] == len(data)


@given(sent=st.lists(commands, min_size=1, max_size=3))
def test_scan_leaves_what_has_not_wholly_arrived(twin: Twin, sent: list[Command]) -> None:
    parts = list(map(encode, sent))
    data = b"".join(parts)
    for cut in range(len(data)):
        items, consumed = twin.scan_text(data[:cut], LINE_MAX, BODY_MAX)
        whole = max(n for n in range(len(parts)) if sum(map(len, parts[:n])) <= cut)
        assert (len(items), consumed) == (whole, sum(map(len, parts[:whole])))
        rest, more = twin.scan_text(data[consumed:], LINE_MAX, BODY_MAX)
        assert items + rest == list(map(as_item, sent))
        assert consumed + more == len(data)


@given(data=garbage_text, line_max=st.integers(0, 40), body_max=st.integers(0, 12))
def test_scan_agrees_with_the_decoder_on_garbage(
    twin: Twin, data: bytes, line_max: int, body_max: int
) -> None:
    items, consumed = twin.scan_text(data, line_max, body_max)
    expected = by_decoder(data, line_max, body_max)
    assert items == expected
    assert 0 <= consumed <= len(data)
    assert all(item[0] != BAD for item in items[:-1])


@pytest.mark.parametrize(
    "line",
    [
        b"put t 0 0 0 0 1", b"put t 0 0 0 0 +1", b"put t 0 0 0 0 2147483647",
        b"put t 0 0 0 0 2147483648", b"put t 0 0 0 0 -2147483648", b"put t 0 0 0 0 -2147483649",
        b"put t 0 0 0 -2147483648 1", b"put t 0 0 0 -2147483649 1", b"put t 2147483648 0 0 0 1",
        b"put t -2147483649 0 0 0 1", b"put t 0 0 2147483648 0 1", b"put t 0 00000000000 0 0 1",
        b"put t 0 99999999999 0 0 1", b"put t 0 -0 0 0 1", b"put t 0 0 0 0 0000000000000000001",
        b"put t 0 0 0 0 1 ", b"put t 0 0 0 0 1  ", b"put t 0 0 0 0  1", b"put  t 0 0 0 0 1",
        b"put t 0 0 0 0 1\r", b"put t 0 0 0 0 1\n", b"put t\x7f 0 0 0 0 1", b"put t\x00 0 0 0 0 1",
        b"put \xc3\xa9 0 0 0 0 1", b"put \xc3 0 0 0 0 1", b"put t 0 0 0 0", b"put t 0 0 0 0 -",
        b"put t - 0 0 0 1", b"put t 0 0 0 0 1 2", b"put t 0 0 0 TX:a:1 1", b"put t 0 0 0 null 0",
        b"put t 0 0 0 0 null 1", b"put t 0 0 0 x 1", b"puts t 0 0 0 0 1", b"pu", b"put ", b"put",
        b"get t g 0 0 10 1", b"get t g 0 9223372036854775807 10 1", b"get t g 0 0 10 1 more words",
        b"get t g 0 9223372036854775808 10 1", b"get t g 0 -9223372036854775808 10 1",
        b"get t g 0 -9223372036854775809 10 1", b"get t g 2147483648 0 10 1", b"get t g 0 0 10",
        b"get t g 0 0 2147483648 1", b"get t g 0 0 10 2147483648", b"get t g 0 0 10 1x",
        b"get t  0 0 10 1", b"get  g 0 0 10 1", b"get t g\t 0 0 10 1", b"get t g 0 0 10 1 ",
        b"get t g 0 0 10 1 \xff", b"get t g 0 0 10 1\xc3\xa9", b"get t g +0 0 10 1", b"get",
        b"gets",
        b"get t g 0 00000000000000000000000007 10 1", b"get t g 0 0 10 1\n", b"get \n g 0 0 1 1",
    ],
)  # fmt: skip
def test_scan_reads_borderline_lines_by_the_rules(twin: Twin, line: bytes) -> None:
    data = line + b"\r\nquit\r\n"
    items, consumed = twin.scan_text(data, LINE_MAX, BODY_MAX)
    assert items == by_decoder(data, LINE_MAX, BODY_MAX)
    assert consumed == (0 if items[0][0] == BAD else len(data))


@pytest.mark.parametrize("line", [b"put t 0 5 0 1 2", b"get t g 0 0 10 1", b"version 12345678"])
def test_line_limit_holds_for_every_command(twin: Twin, line: bytes) -> None:
    data = line + b"\r\nhello" if line.startswith(b"put") else line + b"\r\n"
    items, consumed = twin.scan_text(data, len(line), BODY_MAX)
    assert (len(items), consumed) == (1, len(data))
    items, consumed = twin.scan_text(data, len(line) - 1, BODY_MAX)
    assert (items[0][0], len(items), consumed) == (BAD, 1, 0)
    assert items[0][1].startswith("line: ")


def test_line_that_never_ends_is_refused_at_the_limit(twin: Twin) -> None:
    assert twin.scan_text(b"a" * 4097, LINE_MAX, BODY_MAX) == ([], 0)
    items, _ = twin.scan_text(b"a" * 4098, LINE_MAX, BODY_MAX)
    assert items == [(BAD, "line: 4098 bytes, the limit is 4096")]


def test_body_over_the_limit_is_refused_by_its_line(twin: Twin) -> None:
    ahead = b"version 1\r\n"
    items, consumed = twin.scan_text(ahead + b"put t 0 101 0 5 7\r\n", LINE_MAX, 100)
    assert items == [(OTHER, Version(1)), (BAD, "body: 101 bytes, the limit is 100")]
    assert consumed == len(ahead)
    items, consumed = twin.scan_text(b"put t 0 100 0 5 7\r\n" + bytes(100), LINE_MAX, 100)
    assert (len(items), consumed) == (1, 119)


def test_body_over_the_limit_is_refused_though_it_is_there(twin: Twin) -> None:
    items, consumed = twin.scan_text(b"put t 0 101 0 5 7\r\n" + bytes(101), LINE_MAX, 100)
    assert items == [(BAD, "body: 101 bytes, the limit is 100")]
    assert consumed == 0


def test_commands_after_a_bad_one_are_not_read(twin: Twin) -> None:
    items, consumed = twin.scan_text(b"quit\r\nGET x\r\nquit\r\n", LINE_MAX, BODY_MAX)
    assert items == [(OTHER, Quit()), (BAD, "unknown command 'GET'")]
    assert consumed == 6


def test_golden_frames_of_the_original_client_in_one_read(twin: Twin) -> None:
    frames = [frame.data for frame in golden_metaq_frames()]
    items, consumed = twin.scan_text(b"".join(frames), LINE_MAX, BODY_MAX)
    assert len(items) == len(frames)
    assert consumed == sum(map(len, frames))
    assert items[0] == (PUT, "bench", 1, 0, 907060870, None, -2147483648, b"hello")
    assert items[4][5] == "TX:192.0.2.2-1795258135851-1:1"
    assert items[6] == (GET, "bench", "wiregroup", 1, 0, 1048576, -2147483641)
    assert isinstance(items[8][1], Value)
    assert items[9] == (OTHER, Stats("offsets", -2147483618))


def test_body_that_looks_like_commands_is_a_body(twin: Twin) -> None:
    body = b"quit\r\nput t 0 1 0 1\r\n"
    data = encode(Put("t", 0, 0, body, 1, 5)) + b"quit\r\n"
    items, _ = twin.scan_text(data, LINE_MAX, BODY_MAX)
    assert [item[0] for item in items] == [PUT, OTHER]
    assert items[0][7] == body


@given(results=st.lists(st.tuples(i32, i64, i32, i64), max_size=5), first=st.integers(0, 2))
def test_put_results_are_plain_answers(
    twin: Twin, results: list[tuple[int, int, int, int]], first: int
) -> None:
    expected = b"".join(
        result(200, f"{message_id} {partition} {position}", opaque)
        for opaque, message_id, partition, position in results[first:]
    )
    asked = [(opaque, partition, "t") for opaque, _, partition, _ in results]
    placed = [(0, 0, 0, position, message_id) for _, message_id, _, position in results]
    assert twin.encode_put_results(asked, placed, first, len(results)) == expected


def test_put_results_have_known_bytes(twin: Twin) -> None:
    asked = [(-2147483648, 1, "t"), (-2147483639, 0, "t")]
    placed = [(7, 8, 9, 0, -5468923584887914496), (7, 8, 9, -1, -5468922380556435456)]
    assert twin.encode_put_results(asked, placed, 0, 2) == (
        b"result 200 24 -2147483648\r\n-5468923584887914496 1 0"
        b"result 200 25 -2147483639\r\n-5468922380556435456 0 -1"
    )


@given(st.lists(commands, max_size=5))
def test_scanned_commands_as_bytes_again_are_scanned_alike(several: list[Command]) -> None:
    items, _ = scan_text(b"".join(map(encode, several)), LINE_MAX, BODY_MAX)
    assert scan_text(encode_items(items), LINE_MAX, BODY_MAX)[0] == items


def test_what_is_no_command_is_none_as_bytes_either() -> None:
    items, _ = scan_text(b"version 1\r\nnonsense\r\n", LINE_MAX, BODY_MAX)
    again, _ = scan_text(encode_items(items), LINE_MAX, BODY_MAX)
    assert [item[0] for item in again] == [item[0] for item in items] == [0, -1]


class Taking:
    """A broker's topics, and what is taken for them."""

    def __init__(self, twin: Twin) -> None:
        self.tails = [twin.QueueTail(b"t", 0, dual=True), None]
        self.entries: list[tuple[Any, ...]] = []
        self.asked: list[tuple[int, int, str]] = []
        self.twin = twin

    def take(
        self, data: bytes | bytearray, line_max: int = LINE_MAX, body_max: int = BODY_MAX
    ) -> int:
        used: int = self.twin.take_puts(
            data, (line_max, body_max), {"t": self.tails}, (NOW_MS, HOST), self.entries, self.asked
        )
        assert len(self.entries) == len(self.asked)
        return used


def test_puts_of_a_read_become_entries(twin: Twin) -> None:
    taking = Taking(twin)
    tagged = (1).to_bytes(4, "big") + b"Abody"
    puts = [Put("t", 0, 0, b"one", 7, crc31(b"one")), Put("t", 0, 1, tagged, 8, None)]
    data = encode(puts[0]) + b"put t 0 9 1 -1 8\r\n" + tagged
    assert taking.take(data) == len(data)
    assert taking.asked == [(7, 0, "t"), (8, 0, "t")]
    tail = taking.tails[0]
    assert taking.entries == [
        twin.metaq_entry(tail, b"one", 0, crc31(b"one"), NOW_MS, HOST),
        twin.metaq_entry(tail, tagged, 1, -1, NOW_MS, HOST),
    ]
    assert taking.take(bytearray(data)) == len(data)
    assert taking.entries[2:] == taking.entries[:2]


@pytest.mark.parametrize(
    "data",
    [
        b"put t 1 1 0 -1 7\r\nx",  # a partition that nobody has used yet
        b"put t 2 1 0 -1 7\r\nx",
        b"put t -1 1 0 -1 7\r\nx",
        b"put u 0 1 0 -1 7\r\nx",
        b"put t 0 1 0 5 7\r\nx",  # a wrong checksum
        b"put t 0 1 0 -1 key 7\r\nx",
        b"put t 0 1 0 7\r\nx",
        b"put t 0 101 0 -1 7\r\n" + bytes(101),
        b"put t 0 1 0 -1 2147483648\r\nx",
        b"put t 0 6 1 -1 7\r\n\0\0\0\x01\x02x",  # an attribute that cannot be a property
        b"put t 0 90 0 -1 7\r\nx",
        b"put t 0 1 0 -1 7\r",
        b"pu\r\n",
        b"version\r\n",
    ],
)
def test_puts_that_need_a_closer_look_end_what_is_taken(twin: Twin, data: bytes) -> None:
    taking = Taking(twin)
    plain = b"put t 0 1 0 -1 6\r\ny"
    assert taking.take(plain + data + plain, body_max=100) == len(plain)
    assert taking.asked == [(6, 0, "t")]
