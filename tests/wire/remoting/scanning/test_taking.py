"""Sends straight from a read: the compiled twin takes what the reference takes, and no more."""

from __future__ import annotations

import struct
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.records import HOST
from imago_testing.frames.remoting import commands
from imago_testing.searching import examples
from imago_wire.hot import QueueTail, make_entry
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import FRAME_BYTES_MAX, encode_frame
from imago_wire.remoting.scanning import _remoting_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.remoting.scanning import _remoting_py as plain
from imago_wire.remoting.scanning import items as items_of
from imago_wire.remoting.scanning.granting import UserGrants
from imago_wire.remoting.scanning.waiting import ParkingSpace
from imago_wire.remoting.texts.handles import RecallHandle, parse_recall_handle

TAILS: list[Any] = [QueueTail(b"topic", n, dual=True) for n in range(3)]
NAMES = {"topic": [*TAILS, None], "tôpic": TAILS, "empty": []}
USUAL = {
    "a": "group", "b": "topic", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795258220883",
    "h": "0", "i": "UNIQ_KEY\x01U\x02", "j": "0", "k": "false", "m": "false", "n": "shard-0",
}  # fmt: skip
LONG_NAMES = {
    "a": "producerGroup", "b": "topic", "c": "defaultTopic", "d": "defaultTopicQueueNums",
    "e": "queueId", "f": "sysFlag", "g": "bornTimestamp", "h": "flag", "i": "properties",
    "j": "reconsumeTimes", "k": "unitMode", "m": "batch", "n": "bname",
}  # fmt: skip
properties = st.sampled_from(
    [
        "UNIQ_KEY\x01U\x02", "UNIQ_KEY\x01U", "TAGS\x01a\x02UNIQ_KEY\x01U\x02WAIT\x01true\x02",
        "TAGS\x01标签\x02UNIQ_KEY\x01U\x02",
        'TAGS\x01"\\\n\x02UNIQ_KEY\x01"U\x02', "", "TAGS\x01a\x02",
        "UNIQ_KEY\x01\x02", "UNIQ_KEY\x01U\x02DELAY\x013\x02", "UNIQ_KEY\x01U\x02CLUSTER\x01c\x02",
        "UNIQ_KEY\x01U\x02__IMAGO_PID\x01x\x02", "UNIQ_KEY\x01U\x02X\x01" + "\x03y" * 3000 + "\x02",
        "UNIQ_KEY\x01U\x02X\x01" + "y" * 32_000 + "\x02", "UNIQ_KEY\x01U\x02X\x01" + "y" * 40_000,
    ]
)  # fmt: skip
pieces = st.sampled_from(
    [
        "UNIQ_KEY\x01U1\x02", "TAGS\x01标签\x02", "TAGS\x01a\x02", "DELAY\x013\x02",
        "DELAY\x0199\x02", "DELAY\x010\x02", "DELAY\x01-1\x02", "DELAY\x01\x02", "DELAY\x02",
        "TRAN_MSG\x01true\x02",
        "TRAN_MSG\x01TrUe\x02", "TRAN_MSG\x01false\x02", "PGROUP\x01g\x02", "PGROUP\x01\x02",
        "TIMER_DELAY_SEC\x015\x02", "TIMER_DELAY_MS\x01700\x02", "TIMER_DELAY_MS\x01-700\x02",
        "TIMER_DELIVER_MS\x011795258221000\x02", "TIMER_DELIVER_MS\x011\x02", "CLUSTER\x01c\x02",
        "TIMER_DELAY_SEC\x019999999999999\x02", "TIMER_OUT_MS\x015\x02", "REAL_TOPIC\x01t\x02",
        "\x02", "POP_CK\x01c\x02", "RETRY_TOPIC\x01t\x02", "MIN_OFFSET\x011\x02",
        "__IMAGO_PID\x010123456789abcdef\x02", "__IMAGO_EPOCH\x010\x02", "__IMAGO_SEQ\x0107\x02",
        "__IMAGO_PID\x010123456789abcdef\x02__IMAGO_EPOCH\x010\x02__IMAGO_SEQ\x017\x02",
        "__IMAGO_PID\x010123456789abcdef\x02__IMAGO_EPOCH\x010\x02__IMAGO_SEQ\x018",
        "__METAQ_ID\x011\x02", "__SHARDINGKEY\x01s\x02", "x\x01" + "z" * 4_000 + "\x02", "y",
        "".join(f"n{n}\x01v\x02" for n in range(70)),
    ]
)  # fmt: skip
waiting = st.lists(pieces, max_size=4).map(lambda parts: "UNIQ_KEY\x01U\x02" + "".join(parts)) | (
    st.lists(pieces, max_size=3).map("".join)
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "b": st.sampled_from(["topic", "tôpic", "empty", "other", ""]),
        "e": st.sampled_from(["0", "2", "3", "4", "-1", "+1", "x", "01"]),
        "a": st.sampled_from(["group", "g g", "", 'g"', "grüppe"]),
        "f": st.sampled_from(["0", "1", "-0", "7", "", "4", "4", "5"]),
        "g": st.sampled_from(["0", "-1", "9223372036854775807", "9223372036854775808", "x"]),
        "h": st.sampled_from(["7", "-2147483648", "2147483648", ""]),
        "i": properties | waiting,
        "j": st.sampled_from(["0", "1", ""]),
        "m": st.sampled_from(["true", "false", "TRUE"]),
    },
)


@st.composite
def sends(draw: st.DrawFn) -> bytes:
    """One send in either form, often as a plain one is; sometimes as no known client writes it."""
    ext = USUAL | draw(changes)
    if draw(st.booleans()):
        ext = {LONG_NAMES[name]: value for name, value in ext.items()}
    for name in draw(st.lists(st.sampled_from(sorted(ext)), max_size=1)):
        if draw(st.booleans()):
            del ext[name]
    code = draw(st.sampled_from([310, 310, 10, 320, 11, 34]))
    flag, opaque = draw(st.sampled_from([0, 0, 2, 1, 3])), draw(st.integers(-(2**31), 2**31 - 1))
    body = draw(st.binary(max_size=40))
    if draw(st.booleans()):
        command = RemotingCommand(code, flag, opaque, 479, ext=ext, body=body)
        command.serialize = SerializeType.ROCKETMQ
        return encode_frame(command)
    fields = {"code": code, "extFields": ext, "flag": flag, "language": "JAVA", "opaque": opaque}
    header = orjson.dumps(fields | {"serializeTypeCurrentRPC": "JSON", "version": 479})
    header = draw(st.sampled_from([header, header, header + b"\n", header.replace(b",", b", ")]))
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


LEVELS: list[Any] = [QueueTail(b"levels", n, dual=False) for n in range(4)]
BUCKETS: list[Any] = [QueueTail(b"buckets", n, dual=False) for n in range(7)]
HALVES: Any = QueueTail(b"halves", 0, dual=False)


class Lot:
    """Where sends wait; the producer of the examples comes to number 7."""

    def __init__(self, room: int = 2, owner: str = "somebody") -> None:
        self.owner = owner
        self.space: ParkingSpace | None = None
        self.expected: dict[Any, list[int]] = {}
        self._room = room

    def look(self) -> ParkingSpace:
        self.space = ParkingSpace(
            now_ms=1795258220883,
            delays_ms=(1000, 5000, 10_000, 30_000),
            level_tails=[LEVELS[0], LEVELS[1], None, LEVELS[3]],
            timer_delay_ms_max=10_000,
            bucket_ms=3000,
            bucket_count=7,
            bucket_tails=[*BUCKETS[:3], None, *BUCKETS[4:]],
            half_tail=HALVES if self._room >= 0 else None,
            half_room=self._room,
            broker_name="shard-0",
        )
        return self.space

    def level_tail(self, level: int) -> Any:
        return LEVELS[level - 1]

    def bucket_tail(self, bucket: int) -> Any:
        return BUCKETS[bucket]

    def expect(self, producer: str, tail: Any) -> list[int]:
        self.expected[producer, tail] = state = [0, 7] if tail is TAILS[1] else [-1, -1]
        return state


class Granted(dict[str, Any]):
    """Whoever sends is one user, who may send to all topics."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.user = UserGrants(None, AllTopics(), {}, tag=tag)

    def __missing__(self, key: str) -> UserGrants:
        return self.user


class AllTopics(dict[str, bool]):
    def __missing__(self, topic: str) -> bool:
        return True


def taken(
    twin: Any,
    data: bytes | bytearray,
    limits: tuple[int, int, int],
    lot: Lot | None = None,
    grants: Granted | None = None,
) -> Any:
    entries: list[Any] = []
    asked: list[Any] = []
    used = twin.take_sends(
        data, limits, NAMES, HOST, b"CLUSTER\x01c\x02", entries, asked, lot, grants
    )
    return used, entries, asked


@settings(max_examples=examples(400))
@given(
    frames=st.lists(sends() | commands().map(encode_frame), max_size=4),
    changes=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=2),
    cut=st.none() | st.integers(0, 900),
    frame_max=st.sampled_from([FRAME_BYTES_MAX, 500, 100]),
    body_max=st.sampled_from([1 << 20, 20, 0]),
    count_max=st.sampled_from([10, 2, 0, -1]),
    room=st.sampled_from([2, 2, 1, 0, -1, None]),
    owner=st.sampled_from(["somebody", "somebody", ""]),
    tag=st.sampled_from([None, None, "", "f" * 16, "0123", "ümlaut" + "0" * 10]),
)
def test_sends_are_taken_alike(
    frames: list[bytes],
    changes: list[tuple[int, int]],
    cut: int | None,
    frame_max: int,
    body_max: int,
    count_max: int,
    room: int | None,
    owner: str,
    tag: str | None,
) -> None:
    data = bytearray(b"".join(frames))
    for at, value in changes:
        if at < len(data):
            data[at] = value
    read = data[:cut]
    limits = (frame_max, body_max, count_max)
    lots = [None if room is None else Lot(room, owner) for _ in range(2)]
    grants = None if tag is None else Granted(tag)
    expected = taken(plain, read, limits, lots[0], grants)
    assert taken(compiled, read, limits, lots[1], grants) == expected
    assert [lot and (lot.space, lot.expected) for lot in lots[:1]] == [
        lot and (lot.space, lot.expected) for lot in lots[1:]
    ]
    used, entries, asked = expected
    assert len(entries) == len(asked) <= max(0, count_max)
    items, _ = plain.scan_frames(bytes(read[:used]), frame_max)
    assert [item[0] for item in items] == [items_of.SEND] * len(entries)


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("form", list(SerializeType))
def test_plain_sends_are_taken_up_to_the_first_other(twin: Any, form: SerializeType) -> None:
    frames = []
    for opaque, ext in enumerate([USUAL, USUAL | {"e": "2"}, USUAL | {"f": "1"}, USUAL]):
        command = RemotingCommand(310, 0, opaque, 479, ext=ext, body=b"%d" % opaque)
        command.serialize = form
        frames.append(encode_frame(command))
    limits = (FRAME_BYTES_MAX, 100, 10)
    used, entries, asked = taken(twin, b"".join(frames), limits)
    assert used == len(frames[0]) + len(frames[1])
    assert [(entry[0].queue_id, entry[1]) for entry in entries] == [(1, b"0"), (2, b"1")]
    assert {entry[2] for entry in entries} == {b"UNIQ_KEY\x01U\x02CLUSTER\x01c\x02"}
    assert asked == [(0, int(form), 1, b"U", False, b""), (1, int(form), 2, b"U", False, b"")]


_NUMBERS = "__IMAGO_PID\x010123456789abcdef\x02__IMAGO_EPOCH\x010\x02__IMAGO_SEQ\x01"
_WHERE = b"REAL_TOPIC\x01topic\x02REAL_QID\x011\x02"


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("form", list(SerializeType))
@pytest.mark.parametrize(
    ("more", "sys_flag", "tail", "properties", "unit_tag"),
    [
        ("DELAY\x012\x02", 0, LEVELS[1], b"CLUSTER\x01c\x02DELAY\x012\x02" + _WHERE, 5000),
        ("DELAY\x0199\x02", 0, LEVELS[3], b"CLUSTER\x01c\x02DELAY\x014\x02" + _WHERE, 30_000),
        ("TIMER_DELAY_SEC\x015\x02", 0, BUCKETS[6],
         b"TIMER_DELAY_SEC\x015\x02CLUSTER\x01c\x02TIMER_OUT_MS\x011795258225883\x02" + _WHERE,
         5000),
        ("TRAN_MSG\x01true\x02", 0, HALVES,
         b"TRAN_MSG\x01true\x02CLUSTER\x01c\x02PGROUP\x01group\x02" + _WHERE
         + b"__transactionId__\x01U\x02", None),
        ("PGROUP\x01p\x02", 4, HALVES,
         b"PGROUP\x01p\x02CLUSTER\x01c\x02" + _WHERE + b"__transactionId__\x01U\x02", None),
        (_NUMBERS + "7\x02", 0, TAILS[1],
         b"__IMAGO_SENT\x010123456789abcdef.0.7\x02CLUSTER\x01c\x02", None),
    ],
)  # fmt: skip
def test_sends_that_wait_are_taken_to_where_they_wait(
    twin: Any,
    form: SerializeType,
    more: str,
    sys_flag: int,
    tail: Any,
    properties: bytes,
    unit_tag: int | None,
) -> None:
    ext = USUAL | {"f": str(sys_flag), "i": "UNIQ_KEY\x01U\x02" + more}
    command = RemotingCommand(310, 0, 1, 479, ext=ext, body=b"x")
    command.serialize = form
    lot = Lot()
    frame = encode_frame(command)
    used, entries, asked = taken(twin, frame, (FRAME_BYTES_MAX, 100, 10), lot)
    assert used == len(frame)
    due_ms = None if unit_tag is None else 1795258220883 + unit_tag
    assert entries == [make_entry(
        tail, b"x", b"UNIQ_KEY\x01U\x02" + properties, born_ms=1795258220883, born_host=HOST,
        unit_tag=due_ms,
    )]  # fmt: skip
    recall = asked[0][5].decode()
    if "TIMER" in more:
        handle = RecallHandle("topic", "shard-0", due_ms or 0, "U")
        assert parse_recall_handle(recall) == handle
        assert recall == str(handle)
    else:
        assert not recall
    assert lot.space is not None
    assert lot.space.halves == (
        [(0, "p" if "PGROUP" in more else "group", "somebody")] * (tail is HALVES)
    )
    if "IMAGO" in more:
        owned = taken(twin, frame, (FRAME_BYTES_MAX, 100, 10), users := Lot(), Granted("f" * 16))
        sent = b"__IMAGO_SENT\x010123456789abcdefffffffffffffffff.0.7\x02CLUSTER\x01c\x02"
        assert owned[1][0][2] == b"UNIQ_KEY\x01U\x02" + sent
        assert list(users.expected) == [("0123456789abcdef" + "f" * 16, TAILS[1])]
    nobody = Lot(owner="")
    assert bool(taken(twin, frame, (FRAME_BYTES_MAX, 100, 10), nobody)[0]) == (tail is not HALVES)
    assert lot.space.numbered == ([(0, "0123456789abcdef", 0, 7)] if "IMAGO" in more else [])


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("more", ["DELAY\x013\x02", "DELAY\x0199\x02", "TIMER_DELAY_SEC\x015\x02"])
def test_a_queue_that_there_is_not_gets_a_closer_look(twin: Any, more: str) -> None:
    """Memory behind the queues of a topic that has fewer than it should is nobody's."""
    lot = Lot()
    short = lot.look()
    short.level_tails, short.bucket_tails = list(LEVELS[:1]), list(BUCKETS[:1])
    ext = USUAL | {"i": "UNIQ_KEY\x01U\x02" + more}
    frame = encode_frame(RemotingCommand(310, 0, 1, 479, ext=ext, body=b"x"))
    assert taken(twin, frame, (FRAME_BYTES_MAX, 100, 10), lot) == (0, [], [])


asked_sends = st.tuples(
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0, 1]),
    st.integers(0, 2**31 - 1),
    st.binary(max_size=9) | st.sampled_from([b'"\\', b"u" * 3000]),
    st.booleans(),
    st.sampled_from([b"", b"", b"djEgdG9waWM=", b"r" * 2000]),
)


@given(
    rows=st.lists(
        st.tuples(asked_sends, st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))),
        max_size=6,
    ),
    first=st.integers(0, 3),
    end=st.integers(0, 6),
    code=st.sampled_from([0, 10]),
)
def test_sends_are_answered_alike(rows: list[Any], first: int, end: int, code: int) -> None:
    end = min(end, len(rows))
    first = min(first, end)
    asked, placed = [row[0] for row in rows], [row[1] for row in rows]
    expected = plain.answer_sends(asked, placed, first, end, HOST, code)
    assert compiled.answer_sends(asked, placed, first, end, HOST, code) == expected
    answers, used = plain.scan_frames(expected, FRAME_BYTES_MAX)
    assert used == len(expected)
    assert len(answers) == sum(not each[4] for each in asked[first:end])
