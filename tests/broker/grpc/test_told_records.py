"""Records become the same messages by the compiled twin, the plain one, and one at a time."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imago_broker.processors.grpc.consuming.receipts import parse_handle
from imago_broker.processors.grpc.message_forms import told_message, told_topic
from imago_testing.searching import examples
from imago_wire.errors import ProtocolError
from imago_wire.grpc.messages import duration, encoded, make, parse
from imago_wire.grpc.scanning import _told_c, _told_py  # type: ignore[attr-defined]  # built, not typed
from imago_wire.grpc.scanning.items import SharedDelivery
from imago_wire.record_format import properties as props
from imago_wire.records.record import StoredMessage, host_bytes
from imago_wire.remoting.messages import encode_message

INVISIBLE_MS = 61_500
DELIVERY = SharedDelivery(
    starts={0: 3, 2: 0},
    words=f"1795258220883 {INVISIBLE_MS} 0 0 shard-ö",
    resource=encoded(told_topic("space%plain")),
    invisible=encoded(duration(INVISIBLE_MS)),
    attempts_max=17,
    begin=b"\0\0\0\0\0",
    end=b"\0\0\0\0\x02\x1a\0",
)
HOST = host_bytes("10.1.2.3", 40_001)
PLAIN = StoredMessage(
    size=0, topic="plain", queue_id=2, queue_offset=7, physical_offset=4096, flag=0, sys_flag=0,
    born_ms=1_795_258_220_883, born_host=HOST, store_ms=1_795_258_221_000, store_host=HOST,
    reconsume_times=0, prepared_offset=0, body=b"body", body_crc=0,
    properties={"UNIQ_KEY": "01AA", "a": "b", "TAGS": "t", "KEYS": "k1 k2"},
)  # fmt: skip


class Careful:
    """The slow path, which counts whom it was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, record: bytes, handle: str) -> bytes | None:
        self.asked += 1
        try:
            message = told_message(record, handle, INVISIBLE_MS, topic="space%plain")
        except ProtocolError:
            return None
        if message.system_properties.delivery_attempt > DELIVERY.attempts_max:
            return None
        return encoded(make("ReceiveMessageResponse", message=message))


def told(twin: Any, body: bytes) -> tuple[list[Any], list[str], int]:
    careful = Careful()
    data, handles = twin.told_records(body, DELIVERY, careful)
    assert data.startswith(DELIVERY.begin)
    assert data.endswith(DELIVERY.end)
    data, messages = data[len(DELIVERY.begin) : len(data) - len(DELIVERY.end)], []
    while data:
        assert data[0] == 0
        size = int.from_bytes(data[1:5], "big")
        messages.append(parse("ReceiveMessageResponse", data[5 : 5 + size]))
        data = data[5 + size :]
    return messages, handles, careful.asked


def same(body: bytes) -> int:
    """Check that both twins tell the same; return how many the compiled one left to be told."""
    made, handles, asked = told(_told_c, body)
    plain, plain_handles, _ = told(_told_py, body)
    assert (made, handles) == (plain, plain_handles)
    return asked


names = st.one_of(
    st.sampled_from([
        *sorted(props.RESERVED), "TAGS", "KEYS", "UNIQ_KEY", "WAIT", "PGROUP",
        "__SHARDINGKEY", "__BORNHOST",
        "DELAY", "TRACE_CONTEXT", "TIMER_DELIVER_MS", "__transactionId__", "TRAN_MSG", "MSG_REGION",
        "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "BORN_TIMESTAMP", "INSTANCE_ID", "UPPER",
        "__own", "ß",
    ]),
    st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=5),
)  # fmt: skip
values = st.one_of(
    st.sampled_from(["", "true", "a b", " a\tb ", "ä b", "12", "\x1f"]),
    st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), max_size=200),
)
records = st.builds(
    lambda queue, offset, place, flags, born, stored, tries, body, more, key: dataclasses.replace(
        PLAIN, queue_id=queue, queue_offset=offset, physical_offset=place, sys_flag=flags,
        born_ms=born, store_ms=stored, reconsume_times=tries, body=body,
        properties={**({"UNIQ_KEY": "01AA"} if key else {}), **more},
    ),
    st.sampled_from([0, 1, 2, 65_535]),
    st.sampled_from([0, 1, 127, 128, 1 << 40]),
    st.sampled_from([0, 4096, 1 << 45]),
    st.sampled_from([0, 0, 0, 0x8, 0x1, 0x301]),
    st.sampled_from([0, 999, 1000, 1_795_258_220_883]),
    st.sampled_from([0, 1_795_258_220_000]),
    st.sampled_from([0, 1, 16, 17]),
    st.one_of(st.binary(max_size=200), st.sampled_from([b"", b"x" * 55, b"x" * 64, b"x" * 1024])),
    st.dictionaries(names, values, max_size=6),
    st.booleans(),
)  # fmt: skip


@settings(max_examples=examples(400))
@given(
    st.lists(records, max_size=9),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=2),
)
@example([PLAIN] * 5, [])
def test_records_are_told_alike(found: list[StoredMessage], changes: list[tuple[int, int]]) -> None:
    body = bytearray(b"".join(map(encode_message, found)))
    for at, value in changes:
        if 4 <= at < len(body):  # the sizes of records are the store's own
            body[at] = value
    same(bytes(body))


@given(st.binary(max_size=300))
def test_what_is_no_record_is_left_alike(data: bytes) -> None:
    same(data)


def test_ordinary_messages_are_told_at_one_look() -> None:
    body = encode_message(PLAIN)
    made, (handle,), asked = told(_told_c, body)
    assert (asked, len(made)) == (0, 1)
    assert handle == str(parse_handle(handle)) == f"0 {DELIVERY.words} 2 7 4096"
    system = made[0].message.system_properties
    assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
    assert (made[0].message.topic.resource_namespace, made[0].message.topic.name) == (
        "space",
        "plain",
    )


@pytest.mark.parametrize("size", [*range(50, 70), 119, 120, 128, 1000, 5000])
def test_digests_are_right_side_by_side(size: int) -> None:
    more_of_each = [0] * 8 + [0, 1, 64, 7, 3, 0, 0, 2] + [0] * 4 + [5]
    bodies = [bytes(i % 251 for i in range(size + more)) for more in more_of_each]
    found = [dataclasses.replace(PLAIN, body=body) for body in bodies]
    made, _, asked = told(_told_c, b"".join(map(encode_message, found)))
    digests = [each.message.system_properties.body_digest.checksum for each in made]
    assert digests == [hashlib.md5(body).hexdigest().upper() for body in bodies]
    assert asked == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"sys_flag": 0x1, "body": b"no zlib"},
        {"reconsume_times": 17},
        {"properties": {"UNIQ_KEY": "01AA", "TIMER_DELIVER_MS": "1795258220883"}},
        {"properties": {"UNIQ_KEY": "01AA", "TRAN_MSG": "true"}},
        {"properties": {"UNIQ_KEY": "01AA", "__later": "x"}},
        {"properties": {"a": "b"}},
        {"properties": {"UNIQ_KEY": "01AA", "KEYS": "schlüssel"}},
        {"properties": {f"n{i}": "v" for i in range(200)} | {"UNIQ_KEY": "01AA"}},
        {"properties": {"UNIQ_KEY": "01AA", "KEYS": "k " * 100}},
    ],
)
def test_what_is_special_is_told_the_careful_way(changed: dict[str, Any]) -> None:
    body = b"".join(map(encode_message, (PLAIN, dataclasses.replace(PLAIN, **changed), PLAIN)))
    assert same(body) == 1


@pytest.mark.parametrize("letter", ["ä".encode(), b"\xc3", b"\xff"])
def test_letters_beyond_ascii_are_found_wherever_they_are(letter: bytes) -> None:
    for size in range(len(letter), 20):
        for at in range(size - len(letter) + 1):
            value = b"." * at + letter + b"." * (size - at - len(letter))
            whole = dataclasses.replace(PLAIN, properties=PLAIN.properties | {"z": "~" * size})
            body = encode_message(whole)
            # Asked for with care, what is no UTF-8 is no message.
            assert same(body.replace(b"~" * size, value)) == (len(letter) == 1)


NAMES = sorted(
    {text for name, text in vars(props).items() if name.isupper() and isinstance(text, str)}
)


@pytest.mark.parametrize("name", NAMES)
def test_nearly_reserved_names_are_of_users(name: str) -> None:
    for near in (name, name + "S", name[:-1], name[:-1] + "*", "*" + name[1:]):
        if near:
            same(
                encode_message(dataclasses.replace(PLAIN, properties={"UNIQ_KEY": "1", near: "x"}))
            )


def test_handles_name_where_each_queue_began() -> None:
    queues = [0, 0, 2, 1, 1, 2, 0]
    assert (
        same(b"".join(encode_message(dataclasses.replace(PLAIN, queue_id=q)) for q in queues)) == 0
    )
