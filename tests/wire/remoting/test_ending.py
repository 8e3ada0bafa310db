"""Ends of transactions straight from a read: the twins take the same, and what clients write."""

from __future__ import annotations

import struct
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.remoting import commands
from imago_testing.searching import examples
from imago_wire.remoting import _ending_py as plain
from imago_wire.remoting import _remoting_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.frame import FRAME_BYTES_MAX, encode_frame

USUAL = {
    "bname": "shard-0", "producerGroup": "group", "tranStateTableOffset": "7",
    "commitLogOffset": "4711", "commitOrRollback": "8", "fromTransactionCheck": "false",
    "msgId": "U", "transactionId": "U",
}  # fmt: skip
changes = st.fixed_dictionaries(
    {},
    optional={
        "producerGroup": st.sampled_from(["", "grüppe", 'g"']),
        "tranStateTableOffset": st.sampled_from(["", "-1", "x", "01", "9" * 18, "9" * 19, "+1"]),
        "commitLogOffset": st.sampled_from(["", "-1", "0", "9" * 18, "\u0661"]),
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
)
def test_ends_are_taken_alike(
    frames: list[bytes],
    changes: list[tuple[int, int]],
    cut: int | None,
    at: int,
    frame_max: int,
    count_max: int,
) -> None:
    data = bytearray(b"".join(frames))
    for place, value in changes:
        if place < len(data):
            data[place] = value
    found: list[list[Any]] = []
    for twin in (plain, compiled):
        taken: list[Any] = []
        twin.take_ends(data[:cut], at, frame_max, count_max, taken)
        found.append(taken)
    assert found[0] == found[1]
    maybe = plain.may_be_end(data[:cut], at)
    assert compiled.may_be_end(data[:cut], at) == maybe
    assert maybe or not found[0], "one look leaves none out"


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("form", list(SerializeType))
def test_ends_are_taken_up_to_the_first_that_needs_a_closer_look(
    twin: Any, form: SerializeType
) -> None:
    frames = []
    changed = [{}, {"commitOrRollback": "12", "topic": "t"}, {"fromTransactionCheck": "true"}, {}]
    for opaque, change in enumerate(changed):
        command = RemotingCommand(37, 2 * opaque, opaque, 479, ext=USUAL | change)
        command.serialize = form
        frames.append(encode_frame(command))
    taken: list[Any] = []
    twin.take_ends(b"ab" + b"".join(frames), 2, FRAME_BYTES_MAX, 10, taken)
    first = 2 + len(frames[0])
    assert taken == [
        (0, int(form), False, "group", 7, 4711, 8, "U", "", first),
        (1, int(form), True, "group", 7, 4711, 12, "U", "t", first + len(frames[1])),
    ]


@pytest.mark.parametrize("form", list(SerializeType))
@pytest.mark.parametrize("opaque", [0, 123456, -(2**31)])
def test_short_answer_is_that_of_the_encoder(form: SerializeType, opaque: int) -> None:
    answer = RemotingCommand(0, FLAG_RESPONSE, opaque, serialize=form)
    assert plain.answer_done(opaque, int(form)) == encode_frame(answer)


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("opaque", [0, 7, -1, 2**31 - 1, -(2**31)])
def test_answers_are_alike(opaque: int, form: int) -> None:
    assert compiled.answer_done(opaque, form) == plain.answer_done(opaque, form)
