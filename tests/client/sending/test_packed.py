"""Messages that were packed before they are sent: both twins add the same, or refuse the same."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from imago_client import ClientConfig, ProducerConfig, UsageError
from imago_client.core.sending.idempotent import _numbered
from imago_client.core.sending.outgoing import prepare_batch
from imago_client.core.sending.packed import Packed, pack, prepare_packed
from imago_client.core.state import ClientState
from imago_client.core.unique_ids import UniqueKeys
from imago_client.messages import PROPERTIES_BYTES_MAX, Message
from imago_testing.frames.twins import load
from imago_testing.searching import examples
from imago_wire.errors import ProtocolError
from imago_wire.record_format.properties import decode
from imago_wire.record_format.sequences import Sequence
from imago_wire.remoting import _sent_py
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.messages import decode_batch, encode_batch

COMPILED = load("imago_wire.remoting._sent_c")
NOW_MS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000)


def state() -> ClientState:
    return ClientState(
        ClientConfig(bootstrap=("127.0.0.1:1",)),
        host="127.0.0.1",
        process_id=lambda: 1,
        rng=random.Random(1),
        clock_s=lambda: 0.0,
        clock_ms=lambda: NOW_MS,
    )


def extended(twin: Any, *arguments: Any) -> bytes | str:
    try:
        found: bytes = twin.extend_batch(*arguments)
    except ProtocolError as error:
        return str(error)
    return found


entries = st.lists(
    st.tuples(
        st.binary(max_size=20),
        st.binary(max_size=20) | st.sampled_from([32700, 32767]).map(bytes),
        st.integers(-(1 << 31), (1 << 31) - 1),
    ),
    max_size=4,
).map(encode_batch)


@settings(max_examples=examples(500))
@given(
    entries | st.binary(max_size=60),
    st.binary(max_size=40),
    st.sampled_from([0, 7, 9, 99, 255, 0xFFFE, 0xFFFF, 1 << 33, (1 << 62) - 2, (1 << 63) - 1]),
    st.booleans(),
    st.sampled_from([20, 60, PROPERTIES_BYTES_MAX, 40_000]),
)
@example(encode_batch([(b"x", b"", 0)])[:-1], b"n", 0, False, 99)
def test_both_twins_extend_batches_the_same_way(
    given: bytes, head: bytes, first: int, hexadecimal: bool, size_max: int
) -> None:
    arguments = (given, head, first, b"\x02", hexadecimal, size_max)
    assert extended(COMPILED, *arguments) == extended(_sent_py, *arguments)


@pytest.mark.parametrize("twin", [_sent_py, COMPILED])
def test_numbers_count_on_from_the_first(twin: Any) -> None:
    given = encode_batch([(b"a", b"own\x01v\x02", 7), (b"", b"", -1)])
    found = decode_batch(twin.extend_batch(given, b"N\x01", 9, b"\x02", False, 100))
    assert [tuple(one) for one in found] == [
        (b"a", b"own\x01v\x02N\x019\x02", 7),
        (b"", b"N\x0110\x02", -1),
    ]
    assert b"N\x01000A\x02" in twin.extend_batch(given, b"N\x01", 9, b"\x02", True, 100)
    assert "the limit is 9" in str(extended(twin, given, b"N\x01", 9, b"\x02", False, 9))
    assert "the limit is 32767" in str(
        extended(twin, encode_batch([(b"", bytes(32761), 0)]), b"N\x01", 9, b"\x02", True, 40_000)
    )


MESSAGES = [
    Message("orders", b"x", tags="paid", keys=("k1", "k2"), flag=7, properties={"own": "ü"}),
    Message("orders", b""),
]


@pytest.mark.parametrize("idempotent", [False, True])
def test_packed_messages_are_sent_as_others_are(idempotent: bool) -> None:
    config = ProducerConfig(idempotent=idempotent)
    number = Sequence("0" * 16, 3, 5)

    def sent(made: Any) -> list[tuple[bytes, dict[str, str], int]]:
        body = _numbered(made, number).body if idempotent else made.body
        return [(one.body, decode(one.properties), one.flag) for one in decode_batch(body)]

    one, other = state(), state()
    packed = prepare_packed(one, config, pack(MESSAGES))
    batch = prepare_batch(other, config, MESSAGES)
    assert sent(packed) == sent(batch)
    assert packed._replace(body=b"", entries=()) == batch._replace(body=b"", entries=())
    assert one.unique_keys.next_key(NOW_MS) == other.unique_keys.next_key(NOW_MS)


def test_one_packed_message_is_no_batch_and_may_wait() -> None:
    found = prepare_packed(
        state(), ProducerConfig(), pack([Message("orders", b"x", delay_level=3)])
    )
    assert (found.code, found.body, found.messages) == (RequestCode.SEND_MESSAGE_V2, b"x", 1)
    properties = decode(found.properties.encode())
    assert properties == {"DELAY": "3", "UNIQ_KEY": found.message_id}


@pytest.mark.parametrize(
    ("messages", "idempotent", "said"),
    [
        ([Message("orders", b"", delay_level=3)] * 2, False, "sent by itself"),
        ([Message("orders", b"", delay_level=3)], True, "idempotent: a delayed message"),
        ([Message("%RETRY%g", b"")], True, "one to a retry topic"),
        ([Message("%RETRY%g", b"")] * 2, False, "not possible to a retry topic"),
        ([Message("orders", bytes(3 << 20))] * 2, False, "cut it with imago_client.batches"),
        ([Message("orders", b"", properties={"n": "v" * 32_740})], False, "the limit is 32767"),
        ([Message("orders", b"", properties={"n": "v" * 32_640})], True, "beside an idempotent"),
        ([Message("orders", b"", properties={"n": "v" * 33_000})], False, "the limit is 32767"),
        ([Message("orders", b"", properties={"n": "\x02"})], False, "holds 0x01 or 0x02"),
    ],
)
def test_what_cannot_be_sent_is_refused(
    messages: list[Message], idempotent: bool, said: str
) -> None:
    def prepared() -> None:
        prepare_packed(state(), ProducerConfig(idempotent=idempotent), pack(messages))

    with pytest.raises(UsageError, match=said):
        prepared()


def test_entries_that_are_none_are_refused() -> None:
    with pytest.raises(ProtocolError):
        prepare_packed(state(), ProducerConfig(), Packed("orders", 2, b"\x00" * 30))


def test_runs_of_unique_keys_never_repeat() -> None:
    process_id = [1]
    keys = UniqueKeys(address=bytes(4), process_id=lambda: process_id[0], number=0)
    seen = set[str]()
    for at, count in enumerate([1, 10_000, 1, 60_000, 10_000, 65_536, 1, 1]):
        if at == 6:
            process_id[0] = 2
        prefix, first = keys.next_run(NOW_MS, count)
        assert first + count <= 0x10000
        assert int(prefix[8:12], 16) == process_id[0]
        seen |= {f"{prefix}{first + more:04X}" for more in range(count)}
        seen.add(keys.next_key(NOW_MS))
    assert len(seen) == 1 + 10_000 + 1 + 60_000 + 10_000 + 65_536 + 1 + 1 + 8
