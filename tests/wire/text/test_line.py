"""The rules by which a line is a command, and which."""

from __future__ import annotations

import pytest

from imago_wire.errors import ProtocolError
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
from imago_wire.text.line import Pending, parse_line


def parsed(line: bytes, body: bytes = b"") -> Command:
    command = parse_line(line)
    if isinstance(command, Pending):
        assert command.size == len(body)
        return command.finish(body)
    return command


ACCEPTED: list[tuple[bytes, Command]] = [
    (b"vfoo 5", Version(5)),
    (b"v", Version()),
    (b"valueless", Version()),
    (b"version +7 surplus", Version(7)),
    (b"version 00000000000000000005", Version(5)),
    (b"version -0", Version(0)),
    (b"qqq", Quit()),
    (b"quit now please", Quit()),
    (b"stats", Stats()),
    (b"stats 5", Stats("5")),
    (b"stats  -1000", Stats("", -1000)),
    (b"stats topics 3 surplus", Stats("topics", 3)),
    (b"stats   ", Stats()),
    (b"get t g 0 0 10 1 surplus words", Get("t", "g", 0, 0, 10, 1)),
    (b"get t g -1 -9223372036854775808 -1 1", Get("t", "g", -1, -(1 << 63), -1, 1)),
    (b"offset t g 0 0 1 surplus", Offset("t", "g", 0, 0, 1)),
    (b"put t 0 0 0 1  ", Put("t", 0, 0, b"", 1)),  # empty words at the end are dropped
    (b"put t 0 0 0 -1 1", Put("t", 0, 0, b"", 1, -1)),
    (b"put t 0 0 0 null 1", Put("t", 0, 0, b"", 1, None, "null")),
    (b"put t 0 0 0 5 XID:-1:::q 1", Put("t", 0, 0, b"", 1, 5, "XID:-1:::q")),
    ("put 主题 0 0 0 1".encode(), Put("主题", 0, 0, b"", 1)),
    (b"sync t 0 0 0 -9 1", Sync("t", 0, 0, -9, b"", 1)),
    (b"auth ann 00ff -1", Auth("ann", "00ff", -1)),
    (b"result 200 0 1 surplus", Result(200, b"", 1)),
    (b"value 0 1 surplus", Value(b"", 1)),
    (b"transaction TX::1 s END 1", Transaction("TX::1", "s", TransactionType.END, 1)),
    (
        b"transaction null s RECOVER 12 1",  # an all-digit qualifier reads as a time-out
        Transaction("null", "s", TransactionType.RECOVER, 1, 12),
    ),
    (
        b"transaction null s FORGET -12 1",
        Transaction("null", "s", TransactionType.FORGET, 1, None, "-12"),
    ),
    (
        b"transaction null s ROLLBACK -3 q 1",
        Transaction("null", "s", TransactionType.ROLLBACK, 1, -3, "q"),
    ),
]

REFUSED: list[bytes] = [
    b"", b" ", b"   ", b" version 5", b"hello world", b"GET t g 0 0 10 1", b"Version", b"\xff",
    b"puts t 0 5 0 1", b"p", b"put", b"put t", b"put t 0 5", b"put test 0 5", b"put t 0 5 0",
    b"put t 0 5 0 1 2 3 4", b"put t 0 -5 0 1 2", b"put t x 5 0 1", b"put  t 0 5 0 1",
    b"put  0 5 0 1", b"put t 0 5 0 1_0", b"put t 0 5 0 \xd9\xa1", b"put t 2147483648 5 0 1",
    b"put t 0 2147483648 0 1", b"put t 0 5 -2147483649 1", b"put t 0 5 0 2147483648 1",
    b"put t 0 5 0 +5 1", b"put t 0 5 0  1", b"put t 0 5 0 - 1", b"put t 0 5 0 1 abc 1",
    b"put t 0 5 0 1 TX:a 1", b"put t 0 5 0 1 TX:a:b 1", b"put t 0 5 0 1 TX:a:1:2 1",
    b"put t 0 5 0 1 TX:a: 1", b"put t 0 5 0 1 TX:a:2147483648 1",
    b"put t 0 5 0 1 XID:100:676c:6271 1", b"put t 0 5 0 1 XID:100:676c:6271: 1",
    b"put t 0 5 0 1 XID:x:676c:6271:q 1", b"put t 0 5 0 1 XID:1:676:6271:q 1",
    b"put t 0 5 0 1 XID:1:zz:6271:q 1", b"put t 0 5 0 1 XID:1:00:00:q\t 1",
    b"put t\rx 0 5 0 1", b"put t\nx 0 5 0 1", b"put t 0 5 0 1\n", b"put t 0 5\t0 1",
    b"getx t g 0 0 10 1", b"get t g 0 0 10", b"get t  0 0 10 1", b"get t g 0 0 1e3 1",
    b"get t g 0 9223372036854775808 10 1", b"get t g 0 0 10 99999999999",
    b"offsets t g 0 0 1", b"offset t g 0 0", b"offset t g x 0 1",
    b"version five", b"vx 2147483648", b"version 5\nversion 6", b"version  5",
    b"statsx 1", b"stats a b", b"s", b"syn t 0 5 0 1 1", b"sync t 0 5 0 1",
    b"sync t 0 5 0 1 2 3 4", b"sync t 0 5 0 x 1", b"sync t 0 -1 0 1 1",
    b"results 200 0 1", b"result 200 0", b"result 200 -1 1", b"result ok 0 1",
    b"auth ann 00ff", b"auth ann 00ff x", b"auth  00ff 1", b"author a b 1", b"auth a b 1 2",
    b"value 5", b"value -1 5", b"value x 5",
    b"transactions null s BEGIN 1", b"transaction null s BEGIN",
    b"transaction null s BEGIN 1 2 3 4",
    b"transaction null s begin 1", b"transaction TX:s1:9 s1 FOO 58", b"transaction x s BEGIN 1",
    b"transaction null s BEGIN x q 1", b"transaction null s BEGIN 99999999999 1",
]  # fmt: skip


@pytest.mark.parametrize(("line", "command"), ACCEPTED)
def test_line_is_this_command(line: bytes, command: Command) -> None:
    assert parsed(line) == command


@pytest.mark.parametrize("line", REFUSED)
def test_line_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_line(line)


def test_error_names_the_command_but_not_a_whole_long_line() -> None:
    with pytest.raises(ProtocolError, match="unknown command") as caught:
        parse_line(b"x" * 4096)
    assert len(str(caught.value)) < 64
