"""Rows to requests: the same rows always become the same requests, and bad rows none."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_client.core.sending.packed import Packed, pack
from imago_client.core.sending.selection import queue_for_key
from imago_client.errors import ClientError
from imago_client.message_queue import MessageQueue
from imago_client.messages import Message
from imago_spark.errors import OptionError, SinkError
from imago_spark.outbox import MESSAGES_MAX, Outbox, producer_id
from imago_spark.packing.rules import ROUND
from imago_spark.sink_options import (
    Delivery,
    QueueBy,
    SinkOptions,
    check_columns,
    parse_sink_options,
)
from imago_testing.searching import examples
from imago_wire.record_format.properties import decode
from imago_wire.remoting.messages import BatchEntry, decode_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUES = tuple(MessageQueue("T", shard, number) for shard in "ab" for number in range(2))
ROWS = pa.schema([("key", pa.string()), ("value", pa.binary())])
Requests = list[tuple[MessageQueue, Packed]]


def entries_of(packed: Packed) -> list[BatchEntry]:
    found = decode_batch(packed.entries)
    assert len(found) == packed.count
    return found


def outbox(**more: Any) -> Outbox:
    given: dict[str, Any] = {"topic": "T", "queue_by": QueueBy.KEY, "send_bytes": 5000}
    return Outbox(lambda _: QUEUES, partition=1, **(given | more))


def requests_of(rows: Sequence[dict[str, Any]], cuts: Sequence[int], schema: pa.Schema) -> Requests:
    """Give rows to an outbox in batches cut at these places."""
    made: Requests = []
    box = outbox()
    borders = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for start, end in itertools.pairwise(borders):
        made += box.add(pa.RecordBatch.from_pylist(list(rows[start:end]), schema=schema))
    made += box.rest()
    return made


rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.sampled_from(["a", "b", "two words", ""]),
            "value": st.sampled_from([b"", b"x", bytes(900), bytes(4000)]),
        }
    ),
    max_size=60,
)


@settings(max_examples=examples(60))
@given(rows, st.lists(st.integers(0, 60), max_size=4), st.lists(st.integers(0, 60), max_size=4))
def test_requests_do_not_depend_on_how_rows_arrive(
    rows: list[dict[str, Any]], cuts: list[int], others: list[int]
) -> None:
    made = requests_of(rows, cuts, ROWS)
    assert made == requests_of(rows, others, ROWS)
    assert sum(packed.count for _, packed in made) == len(rows)
    for queue, packed in made:
        assert packed.topic == "T"
        for entry in entries_of(packed):
            keys = decode(entry.properties).get("KEYS")
            if keys:
                assert queue == queue_for_key(keys, QUEUES)
    for queue in QUEUES:  # a queue's rows stay in order
        sent = [entry.body for to, packed in made if to == queue for entry in entries_of(packed)]
        given = iter([row["value"] for row in rows])
        assert all(body in given for body in sent)


def test_rows_without_a_key_go_round_in_runs() -> None:
    found = requests_of([{"key": None, "value": b"x"}] * (4 * ROUND + 1), [], ROWS)
    counts = dict.fromkeys(QUEUES, 0)
    for queue, packed in found:
        counts[queue] += packed.count
    assert sorted(counts.values()) == [ROUND, ROUND, ROUND, ROUND + 1]
    assert counts[QUEUES[1]] == ROUND + 1, "partitions begin at different queues"


def test_requests_are_bounded() -> None:
    box = outbox(send_bytes=2 << 20)
    batch = pa.RecordBatch.from_pylist([{"key": "a", "value": b"x"}] * 2500, schema=ROWS)
    sizes = [packed.count for _, packed in box.add(batch)]
    assert sizes == [MESSAGES_MAX] * 2
    assert [packed.count for _, packed in box.rest()] == [500]
    assert (box.rows, box.bytes) == (2500, 2500)


def test_row_of_a_source_becomes_the_message_that_it_was() -> None:
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("shard", pa.string()),
            ("queue", pa.int32()),
            ("key", pa.string()),
            ("tags", pa.string()),
            ("value", pa.binary()),
            ("flag", pa.int32()),
            ("properties", pa.map_(pa.string(), pa.string())),
        ]
    )
    stored = {"own": "1", "TAGS": "t", "KEYS": "k1 k2", "UNIQ_KEY": "u", "__CRC32#": "9"}
    stored |= {"TRAN_MSG": "true", "POP_CK": "x", "RETRY_TOPIC": "S", "TIMER_DELIVER_MS": "5"}
    row = {
        "topic": "U",
        "shard": "b",
        "queue": 1,
        "key": "k1 k2",
        "tags": "t",
        "value": b"v",
        "flag": 7,
        "properties": list(stored.items()),
    }
    queue = MessageQueue("U", "b", 1)
    box = Outbox(
        lambda topic: (queue,) if topic == "U" else (),
        topic=None,
        queue_by=QueueBy.COLUMN,
        send_bytes=1000,
        partition=0,
    )
    assert list(box.add(pa.RecordBatch.from_pylist([row], schema=schema))) == []
    message = Message("U", b"v", tags="t", keys=("k1", "k2"), flag=7, properties={"own": "1"})
    assert list(box.rest()) == [(queue, pack([message]))]
    wrong = pa.RecordBatch.from_pylist([row | {"queue": 2}], schema=schema)
    with pytest.raises(SinkError, match="U/b/2 is not a queue"):
        list(box.add(wrong))


def test_a_tag_that_nobody_can_ask_for_is_refused() -> None:
    row = {"topic": "orders", "value": b"v", "tags": "a||b"}
    box = Outbox(
        lambda _: (), topic=None, queue_by=QueueBy.ROUND_ROBIN, send_bytes=1000, partition=0
    )
    with pytest.raises(ClientError, match=r"tags: 'a\|\|b', must be one name"):
        list(box.add(pa.RecordBatch.from_pylist([row])))


@pytest.mark.parametrize("missing", ["value", "topic"])
def test_null_is_refused_with_its_column(missing: str) -> None:
    schema = pa.schema([("topic", pa.string()), ("value", pa.string())])
    row = {"topic": "T", "value": "v"} | {missing: None}
    with pytest.raises(SinkError, match=f"{missing} is null"):
        list(outbox(topic=None).add(pa.RecordBatch.from_pylist([row], schema=schema)))


def test_producer_ids_differ_by_sink_and_partition() -> None:
    ids = {producer_id(sink, number) for sink in ("a", "b", "a/1") for number in range(100)}
    assert len(ids) == 300


BASE = {"bootstrap": "127.0.0.1:1", "topic": "T"}


def test_options_are_read() -> None:
    found = parse_sink_options(
        BASE | {"DELIVERY": "atleastonce", "sendbytes": "8192", "queueBy": "roundrobin"}
    )
    assert found == SinkOptions(
        bootstrap=("127.0.0.1:1",),
        topic="T",
        delivery=Delivery.AT_LEAST_ONCE,
        send_bytes=8192,
        queue_by=QueueBy.ROUND_ROBIN,
    )
    assert parse_sink_options(BASE | {"checkpointLocation": "/x"}) == SinkOptions(
        bootstrap=("127.0.0.1:1",), topic="T"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "T"}, "bootstrap"),
        (BASE | {"topik": "x"}, "did you mean 'topic'"),
        (BASE | {"delivery": "twice"}, "idempotent or atLeastOnce or transaction"),
        (BASE | {"sendBytes": "1"}, "sendBytes"),
        (BASE | {"sinkId": ""}, "sinkId"),
        (BASE | {"sinkBatch": "3"}, "sinkBatch': numbers batches of a sink"),
        (BASE | {"sinkId": "s", "sinkBatch": "-1"}, "is not a number of 0 or more"),
        (BASE | {"rowsPerSecond": "0"}, "is not a number above 0"),
        (BASE | {"topic": "a b"}, "topic"),
    ],
)
def test_wrong_options_are_told(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_sink_options(options)


@pytest.mark.parametrize(
    ("columns", "more", "said"),
    [
        ([("key", "string")], {}, "'value' is missing"),
        ([("value", "int")], {}, "must be binary or string: cast it"),
        ([("value", "binary"), ("price", "double")], {}, "'price' has no place"),
        ([("value", "binary")], {"queueBy": "column"}, "'shard' and 'queue'"),
    ],
)
def test_wrong_columns_are_told(
    columns: list[tuple[str, str]], more: dict[str, str], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        check_columns(parse_sink_options(BASE | more), columns)


def test_topic_comes_from_the_option_or_a_column() -> None:
    without = parse_sink_options({"bootstrap": "127.0.0.1:1"})
    with pytest.raises(OptionError, match="no topic"):
        check_columns(without, [("value", "binary")])
    check_columns(without, [("value", "binary"), ("topic", "string"), ("offset", "bigint")])
