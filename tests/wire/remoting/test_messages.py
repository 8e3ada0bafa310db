"""Messages, batches, ids, subscriptions, registrations and configuration text."""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_testing.frames.remoting import ints, longs, texts
from imago_wire.compression import compress
from imago_wire.crc import crc31
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.records.record import StoredMessage
from imago_wire.remoting.bodies import register as register_body
from imago_wire.remoting.bodies.config import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from imago_wire.remoting.bodies.fields import BodyError
from imago_wire.remoting.bodies.register import (
    RegisterBrokerBody,
    decode_register_body,
    encode_register_body,
)
from imago_wire.remoting.messages import (
    BatchEntry,
    decode_batch,
    decode_messages,
    encode_batch,
    encode_message,
)
from imago_wire.remoting.peer import Version
from imago_wire.remoting.texts.message_ids import (
    UniqueKey,
    UniqueKeys,
    month_start,
    offset_message_id,
    parse_offset_message_id,
    parse_unique_key,
)
from imago_wire.remoting.texts.properties_text import decode_properties_text, encode_properties_text
from imago_wire.remoting.texts.subscriptions import tag_subscription

if TYPE_CHECKING:
    from collections.abc import Callable

property_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8)
names = property_texts.filter(bool)
hosts = st.sampled_from([4, 16]).flatmap(
    lambda size: st.tuples(st.binary(min_size=size, max_size=size), st.integers(0, 65535))
).map(lambda pair: pair[0] + pair[1].to_bytes(4, "big"))  # fmt: skip


@st.composite
def messages(draw: st.DrawFn) -> StoredMessage:
    """Messages as a client gets them; sizes and checksum are those of their record."""
    kind = draw(st.sampled_from([None, 0x001, 0x101, 0x201, 0x301]))
    plain = draw(st.binary(max_size=50))
    body = plain if kind is None else compress(plain, kind & 0x700)
    topic = draw(st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1, max_size=200))
    born_host, store_host = draw(hosts), draw(hosts)
    host_bits = (len(born_host) > 8) * 0x10 | (len(store_host) > 8) * 0x20
    properties = draw(st.dictionaries(names, property_texts, max_size=4))
    size = 91 + (len(topic) > 127) + len(topic) + len(body) + len(born_host) + len(store_host) - 16
    size += sum(len(f"{name}{value}".encode()) + 2 for name, value in properties.items())
    return StoredMessage(
        size=size,
        topic=topic,
        queue_id=draw(ints),
        queue_offset=draw(longs),
        physical_offset=draw(longs),
        flag=draw(ints),
        sys_flag=(kind or 0) | host_bits,
        born_ms=draw(longs),
        born_host=born_host,
        store_ms=draw(longs),
        store_host=store_host,
        reconsume_times=draw(ints),
        prepared_offset=draw(longs),
        body=body,
        body_crc=crc31(body),
        properties=properties,
    )


@given(st.lists(messages(), max_size=4))
def test_messages_survive_their_records(sent: list[StoredMessage]) -> None:
    body = b"".join(map(encode_message, sent))
    assert decode_messages(body, inflate=False) == sent


@given(messages(), st.integers(1, 40))
def test_cut_message_is_refused(message: StoredMessage, missing: int) -> None:
    with pytest.raises(ProtocolError):
        decode_messages(encode_message(message)[:-missing])


@given(st.binary(max_size=150))
def test_garbage_is_no_message(data: bytes) -> None:
    try:
        found = decode_messages(data)
    except ProtocolError:
        return
    assert sum(one.size for one in found) == len(data)


def one_message(body: bytes, sys_flag: int) -> StoredMessage:
    return StoredMessage(
        size=0, topic="t", queue_id=0, queue_offset=0, physical_offset=0, flag=0,
        sys_flag=sys_flag, born_ms=0, born_host=bytes(8), store_ms=0, store_host=bytes(8),
        reconsume_times=0, prepared_offset=0, body=body, body_crc=0, properties={},
    )  # fmt: skip


@pytest.mark.parametrize("sys_flag", [0x001, 0x101, 0x201, 0x301])
def test_compressed_bodies_are_inflated_within_one_limit_for_all(sys_flag: int) -> None:
    record = encode_message(one_message(compress(b"x" * 1000, sys_flag & 0x700), sys_flag))
    found = decode_messages(record * 3, inflate_bytes_max=3000)
    assert [one.body for one in found] == [b"x" * 1000] * 3
    with pytest.raises(LimitExceededError):
        decode_messages(record * 3, inflate_bytes_max=2999)


def test_topic_decides_the_record_version() -> None:
    short = dataclasses.replace(one_message(b"", 0), topic="t" * 127)
    long = dataclasses.replace(one_message(b"", 0), topic="t" * 128)
    assert encode_message(short)[4:8].hex() == "daa320a7"
    assert encode_message(long)[4:8].hex() == "daa320ab"
    assert len(encode_message(long)) - len(encode_message(short)) == 2


def test_message_whose_parts_are_too_long_is_not_written() -> None:
    with pytest.raises(LimitExceededError, match="properties"):
        encode_message(dataclasses.replace(one_message(b"", 0), properties={"a": "b" * 32767}))
    with pytest.raises(LimitExceededError, match="topic"):
        encode_message(dataclasses.replace(one_message(b"", 0), topic="t" * 32768))


batch_entries = st.lists(
    st.builds(BatchEntry, st.binary(max_size=20), st.binary(max_size=20), ints), max_size=5
)


@given(batch_entries)
def test_batch_survives_its_body(entries: list[BatchEntry]) -> None:
    assert decode_batch(encode_batch(entries)) == entries


@given(batch_entries.filter(bool), st.data())
def test_cut_batch_is_refused(entries: list[BatchEntry], data: st.DataObject) -> None:
    body = encode_batch(entries)
    cut = data.draw(st.integers(1, 21))
    with pytest.raises(ProtocolError):
        decode_batch(body[:-cut])


@given(st.binary(max_size=120))
def test_garbage_is_no_batch(data: bytes) -> None:
    try:
        entries = decode_batch(data)
    except ProtocolError:
        return
    assert len(encode_batch(entries)) == len(data)


def test_batch_of_too_many_messages_is_refused() -> None:
    body = encode_batch([BatchEntry(b"x")] * 3)
    assert len(decode_batch(body, entries_max=3)) == 3
    with pytest.raises(ProtocolError, match="more than 2 messages"):
        decode_batch(body, entries_max=2)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("c0a8010a", "C0A8010A00002A9F00000000000004D2"),
        (
            "20010db8000000000000000000000001",
            "20010DB800000000000000000000000100002A9F00000000000004D2",
        ),
    ],
)
def test_offset_message_id_is_written_and_read(address: str, text: str) -> None:
    host = bytes.fromhex(address) + (10911).to_bytes(4, "big")
    assert offset_message_id(host, 1234) == text
    assert parse_offset_message_id(text) == (host, 1234)
    assert parse_offset_message_id(text.lower()) == (host, 1234)


NO_IDS = ["", "C0A8", "x" * 32, "C0A8010A00002A9F00000000000004D ", "0" * 31 + "é"]


@pytest.mark.parametrize("parse", [parse_offset_message_id, parse_unique_key])
@pytest.mark.parametrize("text", NO_IDS)
def test_what_is_no_message_id_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ProtocolError, match="no message id"):
        parse(text)


def test_unique_key_has_its_known_parts() -> None:
    key = parse_unique_key("7F000001000118B4AAC212CC9AB20000")
    assert key == UniqueKey(bytes([127, 0, 0, 1]), 1, 0x18B4AAC2, 0x12CC9AB2, 0)
    assert str(key) == "7F000001000118B4AAC212CC9AB20000"


NOVEMBER_2023 = 1_698_796_800_000


def test_unique_key_tells_when_it_was_made() -> None:
    key = parse_unique_key("7F000001000118B4AAC200000BB80000")
    assert month_start(1_700_000_000_000) == NOVEMBER_2023
    assert key.born_ms(1_700_000_000_000) == NOVEMBER_2023 + 3000
    # Three seconds into November, read two seconds into December: it is of this month's start
    # only once that moment has come.
    december = NOVEMBER_2023 + 30 * 86_400_000
    assert key.born_ms(december + 2000) == NOVEMBER_2023 + 3000
    assert key.born_ms(december + 3000) == december + 3000


def test_unique_keys_count_and_follow_the_month() -> None:
    now = [1_700_000_000_000]
    keys = UniqueKeys(bytes([127, 0, 0, 1]), 0x10001, 0x18B4AAC2, lambda: now[0])
    made = [keys.next() for _ in range(0x10001)]
    assert len(set(made)) == 0x10000
    assert made[0] == made[0x10000]
    first = parse_unique_key(made[0])
    assert (first.process_id, first.seed, first.counter) == (1, 0x18B4AAC2, 0)
    assert first.born_ms(now[0]) == now[0]
    december = NOVEMBER_2023 + 30 * 86_400_000
    for moment in (december - 1, december, NOVEMBER_2023):
        now[0] = moment
        assert parse_unique_key(keys.next()).born_ms(moment) == moment


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        (None, []),
        ("", []),
        ("*", []),
        ("TagA", ["TagA"]),
        ("TagA||TagB", ["TagA", "TagB"]),
        (" TagA || TagB ||", ["TagA", "TagB"]),
        ("TagA || *", ["TagA", "*"]),
    ],
)
def test_tag_expression_becomes_a_subscription(expression: str | None, tags: list[str]) -> None:
    subscription = tag_subscription("t", expression, 5)
    assert subscription.tags_set == set(tags)
    assert len(subscription.code_set) == len(tags)
    assert subscription.sub_string == (expression or "*")
    assert (subscription.sub_version, subscription.expression_type) == (5, "TAG")


def test_tag_hashes_are_javas() -> None:
    assert tag_subscription("t", "TagA || TagB", 0).code_set == {2598919, 2598920}


@pytest.mark.parametrize("expression", [" || ", " ", "\t", "|| ||", "\x00"])
def test_expression_of_blanks_selects_nothing(expression: str) -> None:
    subscription = tag_subscription("t", expression, 0)
    assert subscription.sub_string == expression
    assert not subscription.code_set
    assert not subscription.tags_set


def test_only_what_java_trims_is_no_part_of_a_tag() -> None:
    assert tag_subscription("t", "\u00a0|| * ", 0).tags_set == {"\u00a0", "*"}


@pytest.mark.parametrize("expression", ["||", "||||"])
def test_expression_of_separators_is_refused(expression: str) -> None:
    with pytest.raises(ProtocolError, match="subString split error"):
        tag_subscription("t", expression, 0)


topic_names = st.text("abcXYZ%_-019", min_size=1, max_size=8)
attributes = st.dictionaries(topic_names, texts, max_size=2)


@st.composite
def registrations(draw: st.DrawFn) -> RegisterBrokerBody:
    """Registrations of 5.x that the compressed form can carry."""
    topics = draw(st.lists(topic_names, max_size=4, unique=True))
    return RegisterBrokerBody(
        filter_server_list=tuple(draw(st.lists(texts, max_size=2))),
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=draw(longs), state_version=1, timestamp=draw(longs)),
            topic_config_table={
                name: TopicConfig(
                    topic_name=name, perm=draw(st.integers(0, 7)), attributes=draw(attributes)
                )
                for name in topics
            },
            topic_queue_mapping_info_map={name: {"topic": name} for name in topics[:1]} or None,
        ),
    )


@given(registrations())
def test_registration_survives_both_forms(value: RegisterBrokerBody) -> None:
    compressed = encode_register_body(value, version=Version.V5_3_3)
    crc = crc31(compressed)
    assert decode_register_body(compressed, version=Version.V5_3_3, body_crc32=crc) == value
    assert decode_register_body(value.encode(), version=Version.V5_3_3) == value


def test_registration_of_4_9_has_no_attributes_and_no_mappings() -> None:
    wrapper = TopicConfigSerializeWrapper(topic_config_table={"t": TopicConfig(topic_name="t")})
    value = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    data = encode_register_body(value, version=Version.V4_9_7)
    assert b"t 16 16 6 SINGLE_TAG\x00" in zlib.decompress(data)
    assert decode_register_body(data, version=Version.V4_9_7) == value


def test_registration_of_a_broker_before_3_0_11_is_its_topics_alone() -> None:
    wrapper = TopicConfigSerializeWrapper(topic_config_table={"t": TopicConfig(topic_name="t")})
    value = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    assert decode_register_body(wrapper.encode(), version=Version.V3_0_11_SNAPSHOT - 1) == value
    assert decode_register_body(value.encode(), version=Version.V3_0_11_SNAPSHOT) == value


def test_registration_without_a_body_has_no_topics() -> None:
    body = decode_register_body(b"", version=Version.V4_9_7)
    assert body.topic_config_serialize_wrapper.topic_config_table == {}


def test_registration_with_a_wrong_checksum_is_refused() -> None:
    with pytest.raises(BodyError, match=r"^crc32 not match$"):
        decode_register_body(b"{}", version=Version.V5_3_3, body_crc32=1)


@pytest.mark.parametrize(
    "inflated",
    [b"", b"\x00", b"\x00\x00\x00\x09{}", b"\xff\xff\xff\xff", b"\0\0\0\2{}\0\0\0\1\0\0\0\1x",
     b"\0\0\0\2{}\0\0\0\0\0\0\0\1x", b"\0\0\0\2{}\0\0\0\0\0\0\0\2{}\0\0\0\0",
     b"\0\0\0\2{}\x7f\xff\xff\xff"],
)  # fmt: skip
def test_damaged_compressed_registration_is_refused(inflated: bytes) -> None:
    with pytest.raises(BodyError, match="compressed registration: "):
        decode_register_body(zlib.compress(inflated), version=Version.V5_3_3)


@pytest.mark.parametrize("data", [b"x", b"x\x9c", b"x\xda" + b"\x00" * 20, zlib.compress(b"")[:-2]])
def test_damaged_zlib_stream_is_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        decode_register_body(data, version=Version.V5_3_3)


def test_registration_that_inflates_too_far_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register_body, "INFLATED_BYTES_MAX", 1000)
    with pytest.raises(BodyError, match="inflated: 1001 bytes, the limit is 1000"):
        decode_register_body(zlib.compress(bytes(2000)), version=Version.V5_3_3)


@given(st.binary(max_size=80))
def test_garbage_is_no_registration(data: bytes) -> None:
    for body in (data, zlib.compress(data)):
        try:
            found = decode_register_body(body, version=Version.V5_3_3)
        except BodyError:
            continue
        assert isinstance(found, RegisterBrokerBody)


def test_configuration_text_is_read_by_javas_rules() -> None:
    text = (
        "# comment\n! another\n\n  brokerName = broker-a\nlistenPort:10911\r\nflag\n"
        "path=C:\\\\data\\tx\nlong=one, \\\n   two\nname\\ with\\=odd=v\nu=\\u00e9\nempty=\n"
    )
    assert decode_properties_text(text.encode()) == {
        "brokerName": "broker-a",
        "listenPort": "10911",
        "flag": "",
        "path": "C:\\data\tx",
        "long": "one, two",
        "name with=odd": "v",
        "u": "é",
        "empty": "",
    }


def test_long_continued_line_is_joined() -> None:
    text = b"list=" + b"a,\\\n" * 200_000 + b"end"
    assert decode_properties_text(text) == {"list": "a," * 200_000 + "end"}


@given(st.dictionaries(st.text("abcXYZ.", min_size=1), st.text("abc 019=:é")))
def test_configuration_text_survives(entries: dict[str, str]) -> None:
    stripped = {key: value.lstrip(" =:") for key, value in entries.items()}
    assert decode_properties_text(encode_properties_text(stripped)) == stripped


@given(st.binary(max_size=60))
def test_garbage_configuration_text_never_fails(data: bytes) -> None:
    assert all(isinstance(value, str) for value in decode_properties_text(data).values())
