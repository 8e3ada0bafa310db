"""Ends of transactions straight from a read: the twins take the same, and what clients write."""

from __future__ import annotations

import struct
from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.remoting import commands
from imago_testing.searching import examples
from imago_wire.records.record import make_entry
from imago_wire.records.record_twins import QueueTail
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.frame import FRAME_BYTES_MAX, encode_frame
from imago_wire.remoting.scanning import _ending_py as plain
from imago_wire.remoting.scanning import _remoting_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.remoting.scanning.granting import UserGrants
from imago_wire.remoting.scanning.halves import Half

if TYPE_CHECKING:
    from imago_wire.records.record import Entry

USUAL = {
    "bname": "shard-0", "producerGroup": "group", "tranStateTableOffset": "7",
    "commitLogOffset": "4711", "commitOrRollback": "8", "fromTransactionCheck": "false",
    "msgId": "U", "transactionId": "U",
}  # fmt: skip
OUTCOMES = ("commit", "roll back")
TOPICS = ("", "topic", "tôpic", 't"')
HOST = bytes(8)


def opened_by(twin: Any, **more: Any) -> dict[int, Any]:
    """Return half messages that the usual request, and some others, may mean."""
    kind = Half if twin is plain else compiled.Half
    opened = {}
    for offset in (7, 1):
        half = opened[offset] = kind(offset, 4711, "group", b"U", 5, False)
        for name, value in more.items():
            setattr(half, name, value)
    return opened


def state_of(half: Any) -> tuple[Any, ...]:
    return half.offset, half.ending, half.asker, half.opaque, half.form, half.oneway


class Publish(dict[str, bool]):
    def __missing__(self, _topic: str) -> bool:
        return False


def granted(**topics: bool) -> Any:
    """Return what one who shows no credentials may send to."""
    user = UserGrants(None, cast("Any", Publish(topics)), cast("Any", Publish()), None)
    return defaultdict(lambda: None, {"": user})


def half_of(topic: str) -> Entry:
    text = b"REAL_TOPIC\x01%b\x02REAL_QID\x010\x02" % topic.encode()
    tail = QueueTail(b"halves", 0, dual=False)
    return make_entry(tail, b"body", text, born_ms=9, born_host=HOST)


changes = st.fixed_dictionaries(
    {},
    optional={
        "producerGroup": st.sampled_from(["", "grüppe", 'g"']),
        "tranStateTableOffset": st.sampled_from(["", "-1", "x", "01", "9" * 18, "9" * 19, "+1"]),
        "commitLogOffset": st.sampled_from(["", "-1", "0", "04711", "9" * 18, "\u0661"]),
        "commitOrRollback": st.sampled_from(["12", "0", "4", "", "08", "8 "]),
        "fromTransactionCheck": st.sampled_from(["true", "false", "FALSE", ""]),
        "msgId": st.sampled_from(["", "\\", "ü", "m" * 100]),
        "topic": st.sampled_from(["", "topic", 't"', "tôpic"]),
    },
)


@st.composite
def ends(draw: st.DrawFn) -> bytes:
    ext: dict[str, Any] = USUAL | draw(changes)
    for name in draw(st.lists(st.sampled_from(sorted(ext)), max_size=1)):
        if draw(st.booleans()):
            del ext[name]
    code = draw(st.sampled_from([37, 37, 37, 38]))
    flag, opaque = draw(st.sampled_from([0, 0, 2, 1])), draw(st.integers(-(2**31), 2**31 - 1))
    if draw(st.booleans()):
        command = RemotingCommand(code, flag, opaque, 479, ext=ext, body=b"b")
        command.serialize = SerializeType.ROCKETMQ
        return encode_frame(command)
    if draw(st.booleans()) and ext.get("tranStateTableOffset") == "7":
        ext |= {"tranStateTableOffset": 7, "fromTransactionCheck": False}
    fields = {"code": code, "extFields": ext, "flag": flag, "language": "JAVA", "opaque": opaque}
    header = orjson.dumps(fields | {"serializeTypeCurrentRPC": "JSON", "version": 479})
    header = draw(st.sampled_from([header, header + b"\n", header.replace(b",", b", ")]))
    return struct.pack(">II", 4 + len(header), len(header)) + header


@settings(max_examples=examples(400))
@given(
    frames=st.lists(ends() | commands().map(encode_frame), max_size=4),
    changes=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=2),
    cut=st.none() | st.integers(0, 900),
    at=st.sampled_from([0, 0, 1, 9000]),
    frame_max=st.sampled_from([FRAME_BYTES_MAX, 200]),
    count_max=st.sampled_from([10, 1, 0]),
    known=st.fixed_dictionaries(
        {},
        optional={
            "unique": st.sampled_from([b"", b"\\", "ü".encode(), b"m" * 100]),
            "group": st.sampled_from(["", "grüppe", 'g"']),
            "limited": st.just(value=True),
            "ending": st.just("commit"),
        },
    ),
    topic=st.none() | st.sampled_from(TOPICS[1:]),
    allowed=st.none() | st.sets(st.sampled_from(TOPICS)),
)
def test_ends_are_taken_alike(
    frames: list[bytes],
    changes: list[tuple[int, int]],
    cut: int | None,
    at: int,
    frame_max: int,
    count_max: int,
    known: dict[str, Any],
    topic: str | None,
    allowed: set[str] | None,
) -> None:
    data = bytearray(b"".join(frames))
    for place, value in changes:
        if place < len(data):
            data[place] = value
    found: list[Any] = []
    grants = None if allowed is None else granted(**dict.fromkeys(allowed, True))
    for twin in (plain, compiled):
        taken: list[Any] = []
        opened = opened_by(twin, entry=None if topic is None else half_of(topic), **known)
        limits = (frame_max, count_max)
        end = twin.take_ends(data[:cut], at, limits, opened, OUTCOMES, "asker", taken, grants)
        found.append((list(map(state_of, taken)), end, list(map(state_of, opened.values()))))
    assert found[0] == found[1]
    maybe = plain.may_be_end(data[:cut], at)
    assert compiled.may_be_end(data[:cut], at) == maybe
    assert maybe or not found[0][0], "one look leaves none out"


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("form", list(SerializeType))
def test_ends_are_taken_up_to_the_first_that_needs_a_closer_look(
    twin: Any, form: SerializeType
) -> None:
    frames = []
    second = {"commitOrRollback": "12", "topic": "t", "tranStateTableOffset": "1"}
    changed = [{}, second, {"fromTransactionCheck": "true"}, {}]
    for opaque, change in enumerate(changed):
        command = RemotingCommand(37, 2 * opaque, opaque, 479, ext=USUAL | change)
        command.serialize = form
        frames.append(encode_frame(command))
    taken: list[Any] = []
    opened = opened_by(twin)
    data, limits = b"ab" + b"".join(frames), (FRAME_BYTES_MAX, 10)
    end = twin.take_ends(data, 2, limits, opened, OUTCOMES, "asker", taken)
    assert end == 2 + len(frames[0]) + len(frames[1])
    assert list(map(state_of, taken)) == [
        (7, "commit", "asker", 0, int(form), False),
        (1, "roll back", "asker", 1, int(form), True),
    ]
    assert taken == list(opened.values())
    again = twin.take_ends(data, 2, limits, opened, OUTCOMES, "asker", taken)
    assert again == 2, "a repeat needs a closer look"


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize(
    ("named", "topics", "ends"),
    [
        ("", {"own": True}, True),
        ("own", {"own": True}, True),
        ("other", {"own": True, "other": True}, True),
        ("other", {"own": True}, False),
        ("other", {"other": True}, False),
        ("", {}, False),
    ],
)
def test_ends_are_taken_of_those_who_may_send_to_both_topics(
    twin: Any, named: str, topics: dict[str, bool], ends: bool
) -> None:
    data = encode_frame(RemotingCommand(37, 0, 1, 479, ext=USUAL | {"topic": named}))
    for entry in (half_of("own"), None):
        taken: list[Any] = []
        opened, limits = opened_by(twin, entry=entry), (FRAME_BYTES_MAX, 9)
        twin.take_ends(data, 0, limits, opened, OUTCOMES, "asker", taken, granted(**topics))
        assert len(taken) == (ends and entry is not None)
        assert (opened[7].ending is not None) == bool(taken)


@pytest.mark.parametrize("form", list(SerializeType))
@pytest.mark.parametrize("opaque", [0, 123456, -(2**31)])
def test_short_answer_is_that_of_the_encoder(form: SerializeType, opaque: int) -> None:
    answer = RemotingCommand(0, FLAG_RESPONSE, opaque, serialize=form)
    assert plain.answer_done(opaque, int(form)) == encode_frame(answer)


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("opaque", [0, 7, -1, 2**31 - 1, -(2**31)])
def test_answers_are_alike(opaque: int, form: int) -> None:
    assert compiled.answer_done(opaque, form) == plain.answer_done(opaque, form)
