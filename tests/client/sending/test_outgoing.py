"""Messages made ready for the wire, and cut into batches."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_client.checks import BODY_BYTES_MAX
from imago_client.config import ProducerConfig
from imago_client.core.sending.outgoing import batches, prepare, prepare_batch
from imago_client.errors import UsageError
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message
from imago_client.received import received
from imago_testing.peers.client_scripts import ScriptedServers
from imago_wire.record_format import properties as names
from imago_wire.records.record import (
    QueueTail,
    RecordBuilder,
    decode_record,
    host_bytes,
    make_entry,
)
from imago_wire.remoting.messages import decode_batch

CONFIG = ProducerConfig()
STATE = ScriptedServers().state


def test_properties_carry_everything_the_message_says() -> None:
    message = Message(
        "orders",
        b"x",
        tags="paid",
        keys=("k1", "k2"),
        ordering_key="o",
        delay_level=3,
        wait_stored=False,
        properties={"own": "ü"},
    )
    found = names.decode(prepare(STATE, CONFIG, message).properties.encode())
    assert len(found.pop(names.UNIQ_KEY)) == 32
    assert found == {
        "own": "ü",
        "TAGS": "paid",
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "o",
        "DELAY": "3",
        "WAIT": "false",
    }


def test_large_body_is_deflated_when_wanted_and_smaller() -> None:
    config = ProducerConfig(compress_over_bytes=100)
    outgoing = prepare(STATE, config, Message("orders", b"a" * 101))
    assert outgoing.sys_flag == 0x301
    assert zlib.decompress(outgoing.body) == b"a" * 101


@pytest.mark.parametrize("body", [b"a" * 100, zlib.compress(bytes(range(256)) * 2)[:101]])
def test_body_stays_as_it_is_when_small_or_not_compressible(body: bytes) -> None:
    outgoing = prepare(STATE, ProducerConfig(compress_over_bytes=100), Message("orders", body))
    assert (outgoing.body, outgoing.sys_flag) == (body, 0)


def test_batch_gives_every_message_its_own_id() -> None:
    messages = [Message("orders", b"x", tags="t", flag=7), Message("orders", b"")]
    outgoing = prepare_batch(STATE, CONFIG, messages)
    entries = decode_batch(outgoing.body)
    assert [(entry.body, entry.flag) for entry in entries] == [(b"x", 7), (b"", 0)]
    keys = [names.find(entry.properties, b"UNIQ_KEY") for entry in entries]
    assert len(set(keys)) == 2
    assert keys[0] == outgoing.message_id.encode()


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "holds no message"),
        ([Message("a", b""), Message("b", b"")], "two topics"),
        ([Message("a", b"", delay_level=1)], "delayed"),
        ([Message("a", b"", delay_ms=1)], "delayed"),
        ([Message("a", b"", deliver_at_ms=5)], "delayed"),
        ([Message("%RETRY%g", b"")], "retry topic"),
        ([Message("a", b""), Message("a", b"", wait_stored=False)], "differ"),
        ([Message("a", b"", ordering_key="1"), Message("a", b"", ordering_key="2")], "differ"),
    ],
)
def test_batch_refuses_what_cannot_travel_together(messages: list[Message], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        prepare_batch(STATE, CONFIG, messages)


def test_too_large_batch_says_how_to_cut_it() -> None:
    with pytest.raises(UsageError, match=r"imago_client\.batches"):
        prepare_batch(STATE, ProducerConfig(batch_bytes_max=50), [Message("a", b"x" * 100)])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Message("", b""), "empty"),
        (lambda: Message("a b", b""), "only letters"),
        (lambda: Message("x" * 128, b""), "at most 127"),
        (lambda: Message("a", bytes(BODY_BYTES_MAX + 1)), "limit is 4194304"),
        (lambda: Message("a", b"", keys=("two words",)), "nor hold a space"),
        (lambda: Message("a", b"", delay_level=19), "0 to 18"),
        (lambda: Message("a", b"", delay_ms=-1), "delay_ms: -1, must be a whole"),
        (lambda: Message("a", b"", deliver_at_ms=1.5), "1.5, must be a whole"),  # type: ignore[arg-type]  # what users do
        (lambda: Message("a", b"", deliver_at_ms=5, delay_ms=5), "only one"),
    ],
)
def test_impossible_messages_are_refused_when_made(make: object, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        make()  # type: ignore[operator]  # a table of constructors


@pytest.mark.parametrize(
    "name",
    ["TRAN_MSG", "PGROUP", "POP_CK", "RETRY_TOPIC", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "DELAY",
     "UNIQ_KEY", "TAGS", "CORRELATION_ID", "__IMAGO_PID", "__METAQ_POS", "IMAGO_SHAPE",
     "MIN_OFFSET", "1ST_POP_TIME"],
)  # fmt: skip
def test_reserved_names_are_refused_when_a_message_is_made(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: reserved"):
        Message("a", b"", properties={"own": "1", name: "true"})


def test_what_was_received_can_be_passed_on() -> None:
    sent = prepare(STATE, CONFIG, Message("a", b"x", tags="t", properties={"own": "1"}))
    host = host_bytes("127.0.0.1", 1)
    tail = QueueTail(b"a", 0, dual=True, next_offset=0)
    more = sent.properties.encode() + b"CLUSTER\x01c\x02"
    entry = make_entry(tail, b"x", born_ms=1, born_host=host, properties=more)
    data, _ = RecordBuilder(host, 1, 0).build([entry], 0, 4096, 1, 1 << 30)
    message = received(MessageQueue("a", "b", 0), decode_record(data))
    assert {"CLUSTER", "__METAQ_POS"} < set(message.properties)
    assert message.user_properties == {"own": "1"}
    assert Message("b", b"x", properties=message.user_properties).properties == {"own": "1"}


def test_control_bytes_in_properties_are_refused_when_sent() -> None:
    with pytest.raises(UsageError, match="0x01 or 0x02"):
        prepare(STATE, CONFIG, Message("a", b"", properties={"x": "\x01"}))


messages_lists = st.lists(
    st.builds(
        Message,
        topic=st.sampled_from(["a", "b"]),
        body=st.binary(max_size=300),
        tags=st.none() | st.text("tüz", min_size=1, max_size=5),
        ordering_key=st.sampled_from([None, "k"]),
    ),
    max_size=30,
)


@given(messages_lists)
def test_batches_keep_order_and_content_and_always_fit(messages: list[Message]) -> None:
    config = ProducerConfig(batch_bytes_max=1000)
    cut = list(batches(messages, bytes_max=1000))
    assert [message for batch in cut for message in batch] == messages
    for batch in cut:
        assert len(decode_batch(prepare_batch(STATE, config, batch).body)) == len(batch)
