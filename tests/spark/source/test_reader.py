"""The readers as PySpark calls them, against a broker, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from imago_broker.processors.rocketmq.pull.pull import went_for_room
from imago_client import Message, MessageQueue, PullStatus
from imago_client.blocking.rocketmq.connection import BlockingConnection
from imago_client.received import Pulled
from imago_spark import broker as source_broker
from imago_spark.errors import DataLossError, OffsetError, OptionError, SourceError
from imago_spark.offsets import QueueRange
from imago_spark.options import parse_options
from imago_spark.reader import BatchReader, StreamReader
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.spark_readers import QUEUE, ends, in_thread, options, send, values

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_client.blocking import Client


@pytest.fixture
async def bootstrap(tmp_path: Path) -> AsyncIterator[str]:
    async with running_broker(tmp_path) as broker:
        yield f"127.0.0.1:{broker.ports.namesrv_port}"


async def test_an_unknown_topic_is_told_with_the_nearest(bootstrap: str) -> None:
    def work(client: Client) -> None:
        wrong = options(client, subscribe="ordres")
        with pytest.raises(SourceError, match=r"'ordres': .* did you mean orders\?"):
            BatchReader(wrong).partitions()
        with pytest.raises(SourceError, match=r"'ordres': .* did you mean orders\?"):
            StreamReader(wrong).initialOffset()

    await in_thread(bootstrap, work)


async def test_batch_reads_everything_there_is(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 5, 0)
        send(client, 3, 1, start=5)
        reader = BatchReader(options(client))
        partitions = reader.partitions()
        assert [one.end for task in partitions for one in task.value] == [5, 3]
        assert values(reader, partitions) == list(range(8))

    await in_thread(bootstrap, work)


async def test_batch_reads_between_given_offsets(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 10, 0)
        send(client, 10, 1, start=10)
        reader = BatchReader(
            options(
                client,
                startingOffsets='{"orders": {"shard-0": {"0": 7, "1": -1}}}',
                endingOffsets='{"orders": {"shard-0": {"0": 9}}}',
            )
        )
        assert values(reader, reader.partitions()) == [7, 8]

    await in_thread(bootstrap, work)


async def test_batch_of_an_empty_topic_has_no_partitions_and_no_rows(bootstrap: str) -> None:
    def work(client: Client) -> None:
        reader = BatchReader(options(client))
        assert reader.partitions() == []
        assert list(reader.read(InputPartition(None))) == []

    await in_thread(bootstrap, work)


async def test_large_queue_comes_in_several_batches(bootstrap: str) -> None:
    def work(client: Client) -> None:
        messages = [Message("orders", bytes(1000))] * 300
        client.producer().send_batch(messages, queue=QUEUE)
        reader = BatchReader(options(client, fetchBytes="65536"))
        (partition,) = reader.partitions()
        batches = list(reader.read(partition))
        assert sum(batch.num_rows for batch in batches) == 300
        assert len(batches) >= 5

    await in_thread(bootstrap, work)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"startingOffsets": '{"orders": {"shard-0": {"7": 1}}}'}, "orders/shard-0/7"),
        ({"endingOffsets": "earliest"}, "read nothing"),
        ({"endingOffsets": '{"orders": {"shard-0": {"0": -2}}}'}, "read nothing"),
        ({"startingOffsets": "latest"}, "read nothing"),
        ({"endingOffsets": '{"orders": {"shard-0": {"0": 1, "0": 2}}}'}, "there twice"),
        ({"endingOffsets": '{"orders": {"shard-0": {"00": 1}}}'}, "must look like"),
        ({"startingOffsets": "yesterday"}, "neither earliest nor latest"),
        ({"subscribe": "nothing"}, "imago topic create nothing"),
    ],
)
async def test_impossible_reads_say_why(bootstrap: str, more: dict[str, str], why: str) -> None:
    def work(client: Client) -> None:
        with pytest.raises((SourceError, OptionError, OffsetError), match=why):
            BatchReader(options(client, **more)).partitions()

    await in_thread(bootstrap, work)


async def test_offsets_beyond_the_end_are_refused_or_brought_back(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 5)
        beyond = '{"orders": {"shard-0": {"0": 6}}}'
        for name in ("startingOffsets", "endingOffsets"):
            with pytest.raises(SourceError, match=r"orders/shard-0/0 at 6, but it ends at 5"):
                BatchReader(options(client, **{name: beyond})).partitions()
        more = {"startingOffsets": "Earliest", "endingOffsets": beyond, "onDataLoss": "skip"}
        reader = BatchReader(options(client, **more))
        assert values(reader, reader.partitions()) == [0, 1, 2, 3, 4]
        with pytest.raises(SourceError, match="ends at 5"):
            StreamReader(options(client, startingOffsets=beyond)).initialOffset()
        backwards = {
            "startingOffsets": beyond.replace("6", "3"),
            "endingOffsets": beyond.replace("6", "2"),
        }
        with pytest.raises(OffsetError, match="shard-0/0 at 2, but reading begins at 3"):
            BatchReader(options(client, **backwards)).partitions()
        with pytest.raises(OptionError, match="a stream has no end"):
            StreamReader(options(client, endingOffsets="latest"))

    await in_thread(bootstrap, work)


async def test_stream_goes_from_offset_to_offset(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 4, 0)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        begin = reader.initialOffset()
        assert ends(begin) == {"0": 0, "1": 0}
        first = reader.latestOffset(begin, ReadAllAvailable())
        assert ends(first) == {"0": 4, "1": 0}
        assert values(reader, reader.partitions(begin, first)) == [0, 1, 2, 3]
        assert reader.latestOffset(first, ReadAllAvailable()) == first
        send(client, 2, 1, start=4)
        second = reader.latestOffset(first, ReadAllAvailable())
        assert values(reader, reader.partitions(first, second)) == [4, 5]
        # After a crash the same batch is planned again, by another reader.
        again = StreamReader(options(client))
        assert values(again, again.partitions(begin, first)) == [0, 1, 2, 3]

    await in_thread(bootstrap, work)


async def test_stream_begins_at_the_end_unless_told_otherwise(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 4, 0)
        assert ends(StreamReader(options(client)).initialOffset()) == {"0": 4, "1": 0}

    await in_thread(bootstrap, work)


async def test_stream_takes_no_more_than_its_limit(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 8, 0)
        send(client, 8, 1)
        reader = StreamReader(options(client, startingOffsets="earliest", maxOffsetsPerTrigger="6"))
        limit = reader.getDefaultReadLimit()
        assert limit == ReadMaxRows(6)
        at, sizes = reader.initialOffset(), []
        for _ in range(3):
            to = reader.latestOffset(at, limit)
            sizes.append(sum(ends(to).values()) - sum(ends(at).values()))
            at = to
        assert sizes == [6, 6, 4]
        assert ends(reader.reportLatestOffset() or {}) == {"0": 8, "1": 8}

    await in_thread(bootstrap, work)


async def test_queue_that_appears_later_is_read_from_its_beginning(bootstrap: str) -> None:
    def work(client: Client) -> None:
        reader = StreamReader(options(client))
        begin = reader.initialOffset()
        client.admin.alter_topic("orders", queues=3)
        send(client, 2, 2)
        reader.stop()  # a new client sees the new route at once
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert ends(end) == {"0": 0, "1": 0, "2": 2}
        assert values(reader, reader.partitions(begin, end)) == [0, 1]

    await in_thread(bootstrap, work)


async def test_available_now_ends_where_it_was_when_it_began(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        begin = reader.initialOffset()
        reader.prepareForTriggerAvailableNow()
        send(client, 5, 0)
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert ends(end) == {"0": 3, "1": 0}
        assert reader.latestOffset(end, ReadAllAvailable()) == end

    await in_thread(bootstrap, work)


async def test_history_that_was_cut_is_never_passed_over(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client, onDataLoss="skip"))
        ahead = {"v": 1, "topics": {"orders": {"shard-0": {"0": 9, "1": 0}}}}
        with pytest.raises(DataLossError, match="now ends at 3"):
            reader.latestOffset(ahead, ReadAllAvailable())
        promised = InputPartition((QueueRange(QUEUE, 0, 9),))
        with pytest.raises(DataLossError, match="history was cut"):
            list(reader.read(promised))

    await in_thread(bootstrap, work)


async def test_assigned_queues_alone_are_read(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 3, 0)
        send(client, 2, 1, start=3)
        given = {"bootstrap": ",".join(client.config.bootstrap)}
        chosen = parse_options({**given, "assign": '{"orders": {"shard-0": [1]}}'})
        reader = BatchReader(chosen)
        assert values(reader, reader.partitions()) == [3, 4]
        missing = parse_options({**given, "assign": '{"orders": {"shard-0": [1, 7]}}'})
        with pytest.raises(SourceError, match="orders/shard-0/7 is not a queue"):
            BatchReader(missing).partitions()

    await in_thread(bootstrap, work)


async def test_pattern_matches_whole_names_and_no_system_topics(bootstrap: str) -> None:
    def work(client: Client) -> None:
        for topic in ("orders-2", "my-orders"):
            client.admin.create_topic(topic, queues=1)
        given = {"bootstrap": ",".join(client.config.bootstrap), "subscribePattern": "orders.*|.*X"}
        brokers = source_broker.TopicBrokers(parse_options(given))
        assert {queue.topic for queue in brokers.queues()} == {"orders", "orders-2"}
        every = source_broker.TopicBrokers(
            parse_options({**given, "subscribePattern": "SCHEDULE.*", "includeSystem": "true"})
        )
        assert all(queue.topic.startswith("SCHEDULE") for queue in every.queues())

    await in_thread(bootstrap, work)


async def test_many_queues_take_few_requests_and_few_tasks(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    send_one = BlockingConnection.send

    def counting(connection: BlockingConnection, code: int, *rest: Any, **more: Any) -> int:
        asked.append(code)
        return send_one(connection, code, *rest, **more)

    def work(client: Client) -> None:
        client.admin.create_topic("wide", queues=300)
        for number in range(300):
            client.producer().send(Message("wide", b"%d" % number), queue=wide(number))
        monkeypatch.setattr(BlockingConnection, "send", counting)
        monkeypatch.setattr(source_broker, "_SAMPLED_FROM", 0)  # as if each had many messages
        monkeypatch.setattr(source_broker, "_SAMPLED_QUEUES", 2)
        batch = BatchReader(options(client, subscribe="wide"))
        planned = batch.partitions()
        assert len(asked) <= 4 + 2 * 3, "bounds three times, a route, and samples"
        assert values(batch, planned) == list(range(300))
        assert len(planned) < 80
        asked.clear()
        stream = StreamReader(options(client, subscribe="wide", startingOffsets="earliest"))
        begun = stream.initialOffset()
        end = stream.latestOffset(begun, ReadAllAvailable())
        assert sum(end["topics"]["wide"]["shard-0"].values()) == 300
        assert len(asked) <= 4

    def wide(number: int) -> MessageQueue:
        return MessageQueue("wide", "shard-0", number)

    await in_thread(bootstrap, work)


async def test_large_ranges_are_cut_into_parts(bootstrap: str) -> None:
    def work(client: Client) -> None:
        for start in range(0, 900, 300):
            messages = [Message("orders", b"%0900d" % n) for n in range(start, start + 300)]
            client.producer().send_batch(messages, queue=QUEUE)
        send(client, 5, 1, start=900)
        reader = BatchReader(options(client, splitBytes="131072"))
        parts = [one for task in reader.partitions() for one in task.value]
        assert [part.queue.queue_id for part in parts].count(0) in (7, 8, 9)
        assert [part.queue.queue_id for part in parts].count(1) == 1
        assert values(reader, reader.partitions()) == list(range(905))
        more = BatchReader(options(client, minPartitions="20"))
        assert 20 <= len(more.partitions()) <= 22
        assert values(more, more.partitions()) == list(range(905))

    await in_thread(bootstrap, work)


def test_expired_messages_fail_the_query_or_are_passed_over() -> None:
    moved = Pulled(PullStatus.OFFSET_ILLEGAL, QUEUE, 70, 70, 100)
    wanted = QueueRange(QUEUE, 50, 90)
    given = {"bootstrap": "a:1", "subscribe": "orders"}
    with pytest.raises(DataLossError, match=r"offsets 50 to 69 are gone.*onDataLoss"):
        source_broker.after_loss(parse_options(given), wanted, 50, moved)
    skipping = parse_options({**given, "onDataLoss": "skip"})
    assert source_broker.after_loss(skipping, wanted, 50, moved) == 70


def test_a_query_is_told_where_a_full_disk_took_what_it_had_not_read() -> None:
    last: Any = (0, 4096, 1)
    store: Any = SimpleNamespace(forced=SimpleNamespace(last=lambda: last))
    remark = "the offset[50] not matched" + went_for_room(store)
    moved = Pulled(PullStatus.OFFSET_ILLEGAL, QUEUE, 70, 70, 100, remark=remark)
    wanted = QueueRange(QUEUE, 50, 90)
    given = {"bootstrap": "a:1", "subscribe": "orders"}
    with pytest.raises(DataLossError, match=r"for want of room.*give the disk room"):
        source_broker.after_loss(parse_options(given), wanted, 50, moved)
    last = None
    assert went_for_room(store) == ""
