"""Frames whose bytes are known: of the original client and broker, and computed by hand."""

from __future__ import annotations

import pytest

from imago_testing.frames.text import GoldenFrame, golden_metaq_frames
from imago_wire.text.commands import (
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
from imago_wire.text.decoder import Decoder
from imago_wire.text.encoder import encode

SESSION = "127.0.0.1-1795228142972-1"
XID = "XID:100:676c:6271:uq"
PUT_FAILED = "Put message to [broker 'meta://127.0.0.1:18123'] [partition '{}'] failed.Detail:{}"

REQUESTS: dict[str, tuple[bytes, list[Command]]] = {
    "R1": (b"put test 1 5 0 0\r\nhello", [Put("test", 1, 0, b"hello", 0)]),
    "R2": (
        b"put test 1 5 0 907060870 -2147483648\r\nhello",
        [Put("test", 1, 0, b"hello", -2147483648, 907060870)],
    ),
    "R3": (
        b"put test -1 5 0 907060870 -2147483648\r\nhello",
        [Put("test", -1, 0, b"hello", -2147483648, 907060870)],
    ),
    "R4": (
        b"put test 1 5 0 TX:test:100 0\r\nhello",
        [Put("test", 1, 0, b"hello", 0, None, "TX:test:100")],
    ),
    "R5": (
        b"put test 1 5 0 907060870 TX:test:100 0\r\nhello",
        [Put("test", 1, 0, b"hello", 0, 907060870, "TX:test:100")],
    ),
    "R6": (
        b"put test 0 14 1 1434734634 7\r\n\x00\x00\x00\x05colorhello",
        [Put("test", 0, 1, b"\x00\x00\x00\x05colorhello", 7, 1434734634)],
    ),
    "R7": (
        b"put test 0 9 1 372983093 8\r\n\x00\x00\x00\x00hello",
        [Put("test", 0, 1, b"\x00\x00\x00\x00hello", 8, 372983093)],
    ),
    "R8": (b"put test 0 0 0 0 8\r\n", [Put("test", 0, 0, b"", 8, 0)]),
    "R9": (
        b"put test 1 5 0 907060870 XID:100:676c:6271:uq 48\r\nhello",
        [Put("test", 1, 0, b"hello", 48, 907060870, XID)],
    ),
    "R10": (
        b"get test g1 0 0 1024 -2147483646\r\n",
        [Get("test", "g1", 0, 0, 1024, -2147483646)],
    ),
    "R11": (
        b"get test g1 0 9223372036854775807 1048576 15\r\n",
        [Get("test", "g1", 0, 9223372036854775807, 1048576, 15)],
    ),
    "R12": (b"offset test g1 0 230 19\r\n", [Offset("test", "g1", 0, 230, 19)]),
    "R13": (b"version -2147483645\r\n", [Version(-2147483645)]),
    "R14": (b"version\r\n", [Version()]),
    "R15": (b"stats  -2147483644\r\n", [Stats("", -2147483644)]),
    "R16": (b"stats offsets 1\r\n", [Stats("offsets", 1)]),
    "R17": (b"stats config\r\nquit\r\n", [Stats("config"), Quit()]),
    "R18": (
        f"transaction TX:{SESSION}:1 {SESSION} BEGIN -2147483640\r\n".encode(),
        [Transaction(f"TX:{SESSION}:1", SESSION, TransactionType.BEGIN, -2147483640)],
    ),
    "R19": (
        f"transaction TX:{SESSION}:2 {SESSION} BEGIN 7 -2147483636\r\n".encode(),
        [Transaction(f"TX:{SESSION}:2", SESSION, TransactionType.BEGIN, -2147483636, 7)],
    ),
    "R20": (
        f"transaction TX:{SESSION}:1 {SESSION} COMMIT_ONE_PHASE -2147483637\r\n".encode(),
        [Transaction(f"TX:{SESSION}:1", SESSION, TransactionType.COMMIT_ONE_PHASE, -2147483637)],
    ),
    "R21": (
        b"transaction XID:100:676c:6271:uq s1 BEGIN 5 uq 44\r\n",
        [Transaction(XID, "s1", TransactionType.BEGIN, 44, 5, "uq")],
    ),
    "R22": (
        b"transaction XID:100:676c:6271:uq s1 PREPARE uq 51\r\n",
        [Transaction(XID, "s1", TransactionType.PREPARE, 51, None, "uq")],
    ),
    "R23": (
        b"transaction null s1 RECOVER uq 53\r\n",
        [Transaction("null", "s1", TransactionType.RECOVER, 53, None, "uq")],
    ),
    "R24": (b"sync test 1 5 0 9999 -7\r\nhello", [Sync("test", 1, 0, 9999, b"hello", -7)]),
    "R25": (
        b"sync test 1 5 0 9999 907060870 -7\r\nhello",
        [Sync("test", 1, 0, 9999, b"hello", -7, 907060870)],
    ),
    "R26": (
        b"sync _metaq_slave_status_test 0 4 0 1 1484750348 -2147483648\r\ntest",
        [Sync("_metaq_slave_status_test", 0, 0, 1, b"test", -2147483648, 1484750348)],
    ),
}

ANSWERS: dict[str, tuple[bytes, Result]] = {
    "A1": (b"result 200 9 0\r\n10000 1 0", Result(200, b"10000 1 0", 0)),
    "A2": (
        b"result 200 24 -2147483648\r\n-5468923584887914496 1 0",
        Result(200, b"-5468923584887914496 1 0", -2147483648),
    ),
    "A3": (
        b"result 200 25 -2147483639\r\n-5468922380556435456 0 -1",
        Result(200, b"-5468922380556435456 0 -1", -2147483639),
    ),
    "A4": (
        b"result 404 37 13\r\nCould not find message at position 95",
        Result(404, b"Could not find message at position 95", 13),
    ),
    "A5": (
        b"result 404 47 17\r\nThe topic `test` in partition `9` is not exists",
        Result(404, b"The topic `test` in partition `9` is not exists", 17),
    ),
    "A6": (b"result 301 2 15\r\n95", Result(301, b"95", 15)),
    "A7": (b"result 200 3 19\r\n220", Result(200, b"220", 19)),
    "A8": (
        b"result 400 30 18\r\nBad request,invalid max size:0",
        Result(400, b"Bad request,invalid max size:0", 18),
    ),
    "A9": (
        b"result 403 114 21\r\nPut message to [broker 'meta://127.0.0.1:18123'] "
        b"[partition 'test-0'] failed.Detail:partition[0-0] has been closed",
        Result(403, PUT_FAILED.format("test-0", "partition[0-0] has been closed").encode(), 21),
    ),
    "A10": (
        b"result 403 30 22\r\nPartition[0-0] has been closed",
        Result(403, b"Partition[0-0] has been closed", 22),
    ),
    "A11": (
        b"result 500 101 6\r\nPut message to [broker 'meta://127.0.0.1:18123'] "
        b"[partition 'test-9'] failed.Detail:wrong partition 9",
        Result(500, PUT_FAILED.format("test-9", "wrong partition 9").encode(), 6),
    ),
    "A12": (
        b"result 500 119 7\r\nPut message to [broker 'meta://127.0.0.1:18123'] "
        b"[partition 'nope-0'] failed.Detail:The server do not accept topic nope",
        Result(500, PUT_FAILED.format("nope-0", "The server do not accept topic nope").encode(), 7),
    ),
    "A13": (
        b"result 500 157 3\r\nPut message to [broker 'meta://127.0.0.1:18123'] [partition 'test-0']"
        b" failed.Detail:Checksum failure,message may be corrupted when transf"
        b"ering on networking.",
        Result(
            500,
            PUT_FAILED.format(
                "test-0",
                "Checksum failure,message may be corrupted when transf" + "ering on networking.",
            ).encode(),
            3,
        ),
    ),
    "A14": (b"result 200 0 30\r\n", Result(200, b"", 30)),
    "A15": (b"result 200 1 51\r\n0", Result(200, b"0", 51)),
    "A16": (b"result 200 20 53\r\nXID:100:676c:6271:uq", Result(200, XID.encode(), 53)),
    "A17": (
        b"result 500 48 52\r\nXAException:code=-6,msg=Cannot call prepare now.",
        Result(500, b"XAException:code=-6,msg=Cannot call prepare now.", 52),
    ),
    "A18": (
        b"result 500 49 37\r\nLocal transaction 'TX:s1:1' has not been started.",
        Result(500, b"Local transaction 'TX:s1:1' has not been started.", 37),
    ),
    "A19": (b"result 200 7 2147483647\r\n1.4.6.2", Result(200, b"1.4.6.2", 2147483647)),
    "A20": (
        b"result 503 92 44\r\n\xe6\x9c\xaa\xe6\xb3\xa8\xe5\x86\x8c\xe8\xaf\xb7\xe6\xb1\x82\xe5\xa4"
        b"\x84\xe7\x90\x86\xe5\x99\xa8\xef\xbc\x8c\xe8\xaf\xb7\xe6\xb1\x82\xe5\xa4\x84\xe7\x90\x86"
        b"\xe5\x99\xa8\xe7\xb1\xbb\xe4\xb8\xbacom.taobao.metamorphosis.network.SyncCommand",
        Result(
            503,
            "未注册请求处理器，请求处理器类为com.taobao.metamorphosis.network.SyncCommand".encode(),  # noqa: RUF001 — the original broker's own text
            44,
        ),
    ),
    "A21": (
        b"result 200 52 5\r\nSTATS\r\ntest part 0 min_offset 0 max_offset 25\r\nEND\r\n",
        Result(200, b"STATS\r\ntest part 0 min_offset 0 max_offset 25\r\nEND\r\n", 5),
    ),
}

VALUE_OF_TWO = bytes.fromhex(
    "76616c75652035302039390d0a000000053610a68600000000000000010000000068656c6c6f"
    "000000053a771143000000000000000200000000776f726c64"
)
VALUE_CUT = bytes.fromhex(
    "76616c75652034302039390d0a000000053610a68600000000000000010000000068656c6c6f"
    "000000053a77114300000000000000"
)


def decoded(data: bytes) -> list[Command]:
    decoder = Decoder(line_bytes_max=4096, body_bytes_max=1 << 20)
    decoder.feed(data)
    commands: list[Command] = []
    while (command := decoder.next_command()) is not None:
        commands.append(command)
    assert decoder.buffered_size == 0
    return commands


@pytest.mark.parametrize("name", REQUESTS)
def test_request_has_known_bytes_both_ways(name: str) -> None:
    data, commands = REQUESTS[name]
    assert decoded(data) == commands
    assert b"".join(map(encode, commands)) == data


def test_java_clients_first_put_in_hexadecimal() -> None:
    assert encode(REQUESTS["R2"][1][0]) == bytes.fromhex(
        "707574207465737420312035203020393037303630383730202d323134373438333634380d0a68656c6c6f"
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_answer_has_known_bytes_both_ways(name: str) -> None:
    data, answer = ANSWERS[name]
    assert decoded(data) == [answer]
    assert encode(answer) == data


@pytest.mark.parametrize(("data", "size"), [(VALUE_OF_TWO, 50), (VALUE_CUT, 40)])
def test_value_has_known_bytes_both_ways(data: bytes, size: int) -> None:
    value = Value(data[-size:], 99)
    assert decoded(data) == [value]
    assert encode(value) == data


@pytest.mark.parametrize("frame", golden_metaq_frames(), ids=str)
def test_frame_of_the_original_is_read_and_written_byte_for_byte(frame: GoldenFrame) -> None:
    commands = decoded(frame.data)
    assert b"".join(map(encode, commands)) == frame.data
    answers = [isinstance(command, Result | Value) for command in commands]
    assert answers == [frame.sender == "broker"]
