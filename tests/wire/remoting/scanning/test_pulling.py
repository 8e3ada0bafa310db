"""Pulls straight from a read: the compiled twin reads and answers them as the reference does."""

from __future__ import annotations

import struct
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_testing.frames.remoting import commands
from imago_testing.searching import examples
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import FRAME_BYTES_MAX, FrameDecoder, encode_frame
from imago_wire.remoting.scanning import _pulling_py as plain
from imago_wire.remoting.scanning import _remoting_c as compiled  # type: ignore[attr-defined]  # built, not typed

USUAL = {
    "consumerGroup": "group", "topic": "topic", "queueId": "3", "queueOffset": "70",
    "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "64", "suspendTimeoutMillis": "15000",
    "subVersion": "1795258220883", "subscription": "*", "expressionType": "TAG",
}  # fmt: skip
numbers = st.sampled_from(
    ["0", "7", "007", "-1", "+1", "", "x", "٣", "1" * 9, "1" * 10, "1" * 18, "1" * 19]
)
texts = st.sampled_from(["", "*", "a || b", "TAG", "SQL92", "标签", 'a"\\\n', "\x7f"])
changes = st.dictionaries(st.sampled_from(sorted(USUAL)), numbers | texts, max_size=2)
extras = st.dictionaries(
    st.sampled_from(["maxMsgBytes", "imagoBatch", "imagoBulk", "lo", "a", "proxyFrowardClientId"]),
    st.sampled_from(["262144", "-1", "1" * 10, "true", "TRUE", "", "x"]),
    max_size=3,
)


@st.composite
def pulls(draw: st.DrawFn) -> bytes:
    """One pull in either form, often as a plain one is; sometimes as no known client writes it."""
    ext = USUAL | draw(extras) | draw(st.just({}) | changes)
    for name in draw(st.just([]) | st.lists(st.sampled_from(sorted(ext)), max_size=1)):
        del ext[name]
    code = draw(st.sampled_from([11, 11, 11, 361, 12]))
    flag, opaque = draw(st.sampled_from([0, 0, 0, 1, 2])), draw(st.integers(-(2**31), 2**31 - 1))
    body = draw(st.sampled_from([b"", b"", b"x"]))
    if draw(st.booleans()):
        command = RemotingCommand(code, flag, opaque, 479, ext=ext, body=body)
        command.serialize = SerializeType.ROCKETMQ
        return encode_frame(command)
    values: dict[str, Any] = dict(ext)
    if draw(st.booleans()):  # as the C++ client writes numbers, and as others leave fields out
        values |= {"queueId": 3, "lo": None}
    fields = {"code": code, "extFields": values, "flag": flag, "language": "JAVA"}
    header = orjson.dumps(fields | {"opaque": opaque, "version": 479})
    header = draw(st.sampled_from([header, header, header + b"\n", header.replace(b",", b", ")]))
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


@settings(max_examples=examples(600))
@given(
    frames=st.lists(pulls() | commands().map(encode_frame), max_size=3),
    changes=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 255)), max_size=2),
    cut=st.none() | st.integers(0, 900),
    start=st.integers(-3, 500),
    frame_max=st.sampled_from([FRAME_BYTES_MAX, 500, 100]),
)
def test_pulls_are_read_alike(
    frames: list[bytes],
    changes: list[tuple[int, int]],
    cut: int | None,
    start: int,
    frame_max: int,
) -> None:
    data = bytearray(b"".join(frames))
    for at, value in changes:
        if at < len(data):
            data[at] = value
    read = data[:cut]
    places = [0, max(0, min(start, len(read)))]
    places += [sum(map(len, frames[:count])) for count in range(len(frames))]
    for at in places:
        expected = plain.plain_pull(read, at, frame_max) if at <= len(read) else None
        assert compiled.plain_pull(read, at, frame_max) == expected
        assert compiled.plain_pull(bytes(read), at, frame_max) == expected


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("form", list(SerializeType))
def test_one_pull_behind_another(twin: Any, form: SerializeType) -> None:
    frames = []
    for opaque, more in enumerate([{}, {"maxMsgBytes": "4096", "imagoBatch": "true"}]):
        command = RemotingCommand(11, 0, opaque, 479, ext=USUAL | more)
        command.serialize = form
        frames.append(encode_frame(command))
    data = b"".join(frames)
    first = twin.plain_pull(data, 0, FRAME_BYTES_MAX)
    assert first == (
        len(frames[0]), 0, int(form), "group", "topic", 3, 70, 32, 6, 64, 15000, 1795258220883,
        -1, "*", "TAG", False,
    )  # fmt: skip
    second = twin.plain_pull(data, first.size, FRAME_BYTES_MAX)
    assert (second.opaque, second.bytes_max, second.batch) == (1, 4096, True)
    assert twin.plain_pull(data, len(data), FRAME_BYTES_MAX) is None


offsets = st.integers(0, 2**63 - 1)


@given(
    opaque=st.integers(-(2**31), 2**31 - 1),
    form=st.sampled_from(list(SerializeType)),
    where=st.tuples(offsets, offsets, offsets),
    suggested=st.integers(0, 2**31 - 1),
    body=st.binary(max_size=40),
)
def test_pulls_are_answered_alike(
    opaque: int, form: SerializeType, where: tuple[int, int, int], suggested: int, body: bytes
) -> None:
    expected = plain.answer_pull(opaque, form.value, where, suggested, len(body))
    assert compiled.answer_pull(opaque, form.value, where, suggested, len(body)) == expected
    decoder = FrameDecoder()
    decoder.feed(expected + body)
    answer = decoder.next_frame()
    assert answer is not None
    assert not decoder.rest()
    assert (answer.code, answer.opaque, answer.remark, answer.body) == (0, opaque, "FOUND", body)
    assert answer.ext["nextBeginOffset"] == str(where[0])
