"""The plain and the compiled twin give the same results, whatever comes in."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imago_testing.frames.remoting import commands, ints, load_captures, load_known, longs, texts
from imago_testing.searching import examples
from imago_wire.errors import ProtocolError
from imago_wire.remoting.command import RemotingCommand, SerializeType
from imago_wire.remoting.frame import FRAME_BYTES_MAX, HEADER_BYTES_MAX, encode_frame
from imago_wire.remoting.header import decode_raw_header
from imago_wire.remoting.messages import BatchEntry, encode_batch
from imago_wire.remoting.scanning import _remoting_c as compiled  # type: ignore[attr-defined]  # built, not typed
from imago_wire.remoting.scanning import _remoting_py as plain
from imago_wire.remoting.scanning import items as items_of

if TYPE_CHECKING:
    from collections.abc import Sequence

GOLDEN = Path(__file__).parent / "golden"
KNOWN = load_known(GOLDEN / "known.hex")
FRAMES = [*KNOWN.values(), *(one.data for one in load_captures(GOLDEN / "captured.hex"))]
V2_NAMES = "abcdefghijklmn"
V1_NAMES = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes",
    "batch", "bname",
)  # fmt: skip

number_texts = (
    ints.map(str)
    | longs.map(str)
    | st.sampled_from(["", "+7", "-0", "007", "1e3", "4294967296", "9" * 30, "٣", " 1", "1_0"])
)
bool_texts = st.sampled_from(["true", "false", "TRUE", "yes", ""])
property_texts = st.lists(st.tuples(texts, texts), max_size=4).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs)
)


@st.composite
def send_exts(draw: st.DrawFn) -> dict[str, Any]:
    """Ext maps of sends: mostly whole, sometimes with wrong, missing or foreign fields."""
    names: Sequence[str] = draw(st.sampled_from([V2_NAMES, V1_NAMES]))
    values: list[st.SearchStrategy[Any]] = [
        texts, texts, texts, ints, ints, ints, longs, ints, property_texts, ints,
        st.booleans(), ints, st.booleans(), texts,
    ]  # fmt: skip
    ext: dict[str, Any] = {}
    as_scalars = draw(st.booleans())
    for name, values_of_field in zip(names, values, strict=True):
        value = draw(values_of_field)
        ext[name] = value if as_scalars or isinstance(value, str) else str(value).lower()
    for name in draw(st.lists(st.sampled_from(names), max_size=2)):
        ext[name] = draw(number_texts | bool_texts | texts)
    for name in draw(st.lists(st.sampled_from(names), max_size=1)):
        del ext[name]
    ext.update(draw(st.dictionaries(texts, texts, max_size=2)))
    return dict(draw(st.permutations(list(ext.items()))))


@st.composite
def send_frames(draw: st.DrawFn) -> bytes:
    """Frames of sends in either form, as different clients write them."""
    ext = draw(send_exts())
    code = draw(st.sampled_from([10, 310, 320]))
    body = draw(st.binary(max_size=30))
    if draw(st.booleans()):
        texts_only = {
            name: value if isinstance(value, str) else str(value).lower()
            for name, value in ext.items()
        }
        return encode_frame(
            RemotingCommand(
                code, draw(st.integers(0, 3)), draw(ints), 479, ext=texts_only, body=body,
                serialize=SerializeType.ROCKETMQ,
            )
        )  # fmt: skip
    fields: dict[str, Any] = {
        "code": code,
        "extFields": ext,
        "flag": draw(st.integers(0, 3)),
        "language": draw(st.sampled_from(["JAVA", "GO", "cpp", "Ünbekannt", 1, None])),
        "opaque": draw(ints),
        "remark": draw(st.sampled_from(["", "text", None])),
        "version": 333,
        "unknown": draw(st.sampled_from(["x", 1, 1.5, None, True, [1], {"a": 1}])),
    }
    kept = [name for name in fields if draw(st.integers(0, 9))]
    header = orjson.dumps({name: fields[name] for name in draw(st.permutations(kept))})
    header = draw(
        st.sampled_from([header, header + b"\n", header.replace(b",", b", "), b" " + header])
    )
    if draw(st.booleans()):
        header = header.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


@st.composite
def mutated(draw: st.DrawFn, frames: st.SearchStrategy[bytes]) -> bytes:
    """A frame with a few bytes changed, put in, taken out, or its sizes corrected after that."""
    data = bytearray(draw(frames))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1)) if data else 0
        match draw(st.integers(0, 3)):
            case 0 if data:
                data[at] = draw(
                    st.sampled_from(b'"\\{}[]:,0129.-eEtfnu \n\x00\x01\x7f\x80\xc3\xff')
                )
            case 1:
                data[at:at] = draw(st.binary(max_size=3))
            case 2:
                del data[at : at + draw(st.integers(1, 3))]
            case _:
                data[at : at + 1] = bytes(one ^ 0x20 for one in data[at : at + 1])
    if len(data) > 8 and draw(st.booleans()):
        header_size = draw(st.integers(0, len(data) - 8) | st.just(len(data) - 8))
        data[:8] = struct.pack(">IBBH", len(data) - 4, data[4] & 1, 0, header_size)
    return bytes(data)


frames = send_frames() | commands().map(encode_frame) | st.sampled_from(FRAMES)


def same(data: bytes, frame_bytes_max: int = FRAME_BYTES_MAX) -> tuple[list[Any], int]:
    expected = plain.scan_frames(data, frame_bytes_max)
    found = compiled.scan_frames(data, frame_bytes_max)
    assert found == expected
    assert [list(map(type, item)) for item in found[0]] == [
        list(map(type, item)) for item in expected[0]
    ]
    return expected


@pytest.mark.parametrize("data", FRAMES)
def test_twins_agree_on_known_frames(data: bytes) -> None:
    same(data)
    same(data * 3)


@given(st.lists(frames, max_size=4).map(b"".join))
def test_twins_agree_on_valid_input(data: bytes) -> None:
    same(data)


@settings(max_examples=examples(200))
@given(mutated(frames))
@example(struct.pack(">II", 24, 20) + b'{"code":310,"flag":-0}'[:20])
@example(struct.pack(">II", 19, 15) + b'{"code":1,"\\q":1}'[:15])
def test_twins_agree_on_mutated_input(data: bytes) -> None:
    same(data)


@given(st.binary(max_size=200))
def test_twins_agree_on_garbage(data: bytes) -> None:
    same(data)


@given(
    st.text(st.sampled_from('{}[]",:\\u0017abdeflnrst \n-.+x\x01é'), max_size=60),
    st.sampled_from([b'{"code":310,"extFields":{"a":"g","b":', b'{"code":11,"extFields":', b""]),
)
def test_twins_agree_on_broken_json(text: str, start: bytes) -> None:
    header = start + text.encode()
    same(struct.pack(">II", 4 + len(header), len(header)) + header)


@given(st.lists(frames, min_size=1, max_size=3).map(b"".join), st.integers(0, 300))
def test_twins_agree_on_frame_limits(data: bytes, frame_bytes_max: int) -> None:
    same(data, frame_bytes_max)


def test_twins_agree_at_every_split() -> None:
    data = KNOWN["send-v2-json"] + KNOWN["pull-request"] + KNOWN["send-v2-binary"]
    whole, consumed = same(data)
    assert consumed == len(data)
    assert [item[0] for item in whole] == [items_of.SEND, items_of.FRAME, items_of.SEND]
    for at in range(len(data)):
        first, used = same(data[:at])
        second, rest = same(data[used:])
        assert first + second == whole
        assert used + rest == len(data)


@pytest.mark.parametrize("twin", [plain, compiled])
def test_bytearrays_are_scanned_and_stay_free_to_change(twin: Any) -> None:
    buffer = bytearray(KNOWN["send-v2-json"])
    items, consumed = twin.scan_frames(buffer, FRAME_BYTES_MAX)
    del buffer[:consumed]
    assert items[0][12] == b"hello"


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize("name", ["send-v2-json", "send-v2-binary"])
def test_send_comes_as_its_fields(twin: Any, name: str) -> None:
    ((*fields, raw_header),), _ = twin.scan_frames(KNOWN[name], FRAME_BYTES_MAX)
    properties = (
        b"UNIQ_KEY\x017F000001000118B4AAC212CC9AB20000\x02WAIT\x01true\x02"
        b"TAGS\x01TagA\x02KEYS\x01k1\x02"
    )
    assert fields == [
        items_of.SEND, 8, 310, False, "TopicTest", 2, 0, 1700000000000, 0, properties, 0, False,
        b"hello", 479,
    ]  # fmt: skip
    assert decode_raw_header(raw_header).ext["a"] == "PG"


@pytest.mark.parametrize("twin", [plain, compiled])
def test_send_that_lacks_a_field_comes_as_a_command(twin: Any) -> None:
    frame = encode_frame(RemotingCommand(310, ext={"a": "g", "b": "t"}))
    ((kind, command),), _ = twin.scan_frames(frame, FRAME_BYTES_MAX)
    assert (kind, command.code) == (items_of.FRAME, 310)


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        (b"\x01\x00\x00\x00", "frame: 16777220 bytes, the limit is 16777216"),
        (b"\xff\xff\xff\xff", "frame: 4294967299 bytes, the limit is 16777216"),
        (b"\x00\x00\x00\x03", "frame of 3 bytes: no room for a header word"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x05", "header of 5 bytes in a frame of 8"),
        (b"\x00\x00\x00\x08\x02\x00\x00\x04", "unknown header form 2"),
        (b"\x00\xff\x00\x00\x00\x10\x00\x01", "header: 1048577 bytes, the limit is 1048576"),
    ],
)
def test_wrong_sizes_are_refused_before_the_frame_arrives(
    twin: Any, prefix: bytes, reason: str
) -> None:
    good = KNOWN["update-offset"]
    items, consumed = twin.scan_frames(good + prefix, FRAME_BYTES_MAX)
    assert items[0][0] == items_of.FRAME
    assert items[1:] == [(items_of.BAD, reason)]
    assert consumed == len(good)


def test_largest_frame_and_header_are_taken() -> None:
    assert HEADER_BYTES_MAX == 1048576
    prefix = b"\x00\xff\xff\xfc" + b"\x00\x10\x00\x00"
    assert same(prefix) == ([], 0)


answers = st.tuples(
    ints, st.integers(0, 40), ints, longs, st.binary(max_size=40), st.integers(0, 32767),
    st.integers(0, 1), st.integers(0, 32767),
)  # fmt: skip


@given(answers)
def test_twins_write_the_same_answer(
    answer_fields: tuple[int, int, int, int, bytes, int, int, int],
) -> None:
    opaque, ids, queue_id, queue_offset, transaction_id, code, serialize, version = answer_fields
    msg_id = b",".join([b"7F00000100002A9F0000000000000000"] * ids)
    arguments = (opaque, msg_id, queue_id, queue_offset, transaction_id, code, serialize, version)
    expected = plain.encode_send_response(*arguments)
    assert compiled.encode_send_response(*arguments) == expected
    ((kind, answer),), consumed = same(expected)
    assert (kind, consumed) == (items_of.FRAME, len(expected))
    assert answer.is_response
    assert (answer.opaque, answer.code, answer.version) == (opaque, code, version)
    assert answer.ext["queueOffset"] == str(queue_offset)
    assert answer.ext.get("transactionId", "") == transaction_id.decode(errors="replace")


@pytest.mark.parametrize("twin", [plain, compiled])
def test_answer_is_the_known_one(twin: Any) -> None:
    arguments = (8, b"7F00000100002A9F0000000000000000", 2, 0, b"7F000001000118B4AAC212CC9AB20000")
    assert twin.encode_send_response(*arguments) == KNOWN["send-response-json"]
    assert twin.encode_send_response(*arguments, 0, 1) == KNOWN["send-response-binary"]


@given(
    st.sampled_from([4, 16]).flatmap(lambda n: st.binary(min_size=n + 4, max_size=n + 4)),
    st.lists(st.integers(0, (1 << 63) - 1), max_size=5),
)
def test_twins_write_the_same_message_ids(store_host: bytes, offsets: list[int]) -> None:
    expected = plain.join_message_ids(store_host, offsets)
    assert compiled.join_message_ids(store_host, offsets) == expected


rows = st.lists(st.tuples(longs, st.integers(0, (1 << 63) - 1), ints), min_size=1, max_size=70)


@given(rows, ints, st.integers(0, 1), st.sampled_from([0, 10]))
def test_twins_answer_what_was_stored_alike(
    placed: list[tuple[int, int, int]], opaque: int, serialize: int, code: int
) -> None:
    host = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
    arguments = (opaque, host, placed, 3, b"KEY", code, serialize)
    expected = plain.answer_stored(*arguments)
    assert compiled.answer_stored(*arguments) == expected
    ids = plain.join_message_ids(host, [place[1] for place in placed])
    assert expected == plain.encode_send_response(
        opaque, ids, 3, placed[0][0], b"KEY", code, serialize
    )


@pytest.mark.parametrize("twin", [plain, compiled])
def test_message_ids_are_the_known_ones(twin: Any) -> None:
    host = bytes([192, 168, 1, 10]) + (10911).to_bytes(4, "big")
    joined = twin.join_message_ids(host, [1234, 0])
    assert joined == b"C0A8010A00002A9F00000000000004D2,C0A8010A00002A9F0000000000000000"


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Bodies of batch requests, most of them with a wrong number or a few odd bytes."""
    parts = st.builds(BatchEntry, st.binary(max_size=9), st.binary(max_size=9), ints)
    data = bytearray(encode_batch(draw(st.lists(parts, max_size=4))))
    for at in draw(st.lists(st.integers(0, max(0, len(data) - 1)), max_size=2)):
        data[at : at + 1] = draw(st.binary(max_size=2))
    return bytes(data)


def entries_or_reason(twin: Any, data: bytes, entries_max: int) -> object:
    try:
        return twin.scan_batch(data, entries_max)
    except ProtocolError as error:
        return str(error)


@settings(max_examples=examples(200))
@given(batches() | st.binary(max_size=60), st.integers(0, 5))
def test_twins_read_the_same_batches(data: bytes, entries_max: int) -> None:
    expected = entries_or_reason(plain, data, entries_max)
    assert entries_or_reason(compiled, data, entries_max) == expected


names = st.sampled_from([b"UNIQ_KEY", b"DELAY", b"WAIT", b"W", b"TAGS"])
separators = st.sampled_from([b"\x01", b"\x02"])


@given(
    st.lists(names | st.binary(max_size=4) | separators, max_size=12).map(b"".join),
    st.lists(names, max_size=4).map(tuple),
)
def test_twins_find_the_same_properties(properties: bytes, wanted: tuple[bytes, ...]) -> None:
    expected = plain.find_each(properties, wanted)
    assert compiled.find_each(properties, wanted) == expected


plain_names = st.sampled_from(
    [
        b"UNIQ_KEY",
        b"UNIQ_KEYS",
        b"CLUSTER",
        b"DELAY",
        b"TRAN_MSG",
        b"TIMER_DELAY_SEC",
        b"TIMER_DELAY_MS",
        b"TIMER_DELIVER_MS",
        b"TAGS",
        b"WAIT",
        b"",
    ]
)
property_strings = st.lists(
    st.tuples(plain_names, st.binary(max_size=3)).map(b"\x01".join)
    | st.binary(max_size=4)
    | plain_names,
    max_size=6,
).map(b"\x02".join)


@settings(max_examples=examples(300))
@given(property_strings, st.booleans(), st.binary(max_size=5))
def test_twins_find_the_same_sends_plain(properties: bytes, ended: bool, suffix: bytes) -> None:
    properties += b"\x02" if ended else b""
    expected = plain.plain_send(properties, suffix)
    assert compiled.plain_send(properties, suffix) == expected


@settings(max_examples=examples(200))
@given(st.lists(st.builds(BatchEntry, st.binary(max_size=9), property_strings, ints), max_size=4))
def test_twins_find_the_same_batches_plain(entries: list[BatchEntry]) -> None:
    data = encode_batch(entries)
    expected = plain.scan_plain_batch(data, 10)
    assert compiled.scan_plain_batch(data, 10) == expected
    for twin in (plain, compiled):
        with pytest.raises(ProtocolError):
            twin.scan_plain_batch(data + b"\x01", 10)


@pytest.mark.parametrize("twin", [plain, compiled])
@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (b"UNIQ_KEY\x01u\x02", (b"u", b"UNIQ_KEY\x01u\x02C")),
        (b"A\x01\x02UNIQ_KEY\x01u", (b"u", b"A\x01\x02UNIQ_KEY\x01u\x02C")),
        (b"UNIQ_KEY\x01\x02", None),
        (b"", None),
        (b"UNIQ_KEY\x01u\x02DELAY\x013", None),
        (b"CLUSTER\x01c\x02UNIQ_KEY\x01u\x02", None),
        (b"UNIQ_KEY\x01u\x02XDELAY\x013\x02", (b"u", b"UNIQ_KEY\x01u\x02XDELAY\x013\x02C")),
    ],
)
def test_send_is_plain_when_nothing_in_it_asks_for_more(
    twin: Any, properties: bytes, found: tuple[bytes, bytes] | None
) -> None:
    assert twin.plain_send(properties, b"C") == found


@pytest.mark.parametrize("twin", [plain, compiled])
def test_last_of_a_repeated_property_counts(twin: Any) -> None:
    properties = b"A\x011\x02B\x01\x02A\x012\x02C"
    assert twin.find_each(properties, (b"A", b"B", b"C", b"D")) == [b"2", b"", None, None]
