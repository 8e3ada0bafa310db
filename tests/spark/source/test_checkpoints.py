"""What a stream takes for its own: clusters, topics and queues that come and go."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from imago_broker.model.topics.topics import TopicConfig
from imago_client.errors import (
    ClientError,
    NoMasterError,
    NoQueuesError,
    NoRouteError,
    RequestTimeoutError,
    TopicAwayError,
)
from imago_log import MessageStore
from imago_spark import broker as source_broker
from imago_spark.errors import DataLossError, SourceError
from imago_spark.options import parse_options
from imago_spark.progress import Progress
from imago_spark.reader import BatchReader, StreamReader
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.shard_pair import eventually, make, put, running_pair
from imago_testing.clusters.spark_readers import QUEUE, ends, in_thread, options, send, values
from imago_testing.stores.in_memory import FakeClock, folder_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from imago_client import MessageQueue
    from imago_client.blocking import Client


@pytest.fixture
async def bootstrap(tmp_path: Path) -> AsyncIterator[str]:
    async with running_broker(tmp_path) as broker:
        yield f"127.0.0.1:{broker.ports.namesrv_port}"


def made_again(client: Client, reader: StreamReader | None = None) -> None:
    """Delete the topic and make it again, with more messages than there were."""
    client.admin.delete_topic("orders")
    client.admin.create_topic("orders", queues=2)
    if reader is not None:
        reader.stop()  # a new client has the new route at once
    send(client, 6, 0, start=100)


async def test_topic_made_again_is_not_the_one_that_was_read(bootstrap: str) -> None:
    """Its queue is longer than the old one: only the incarnation tells."""

    def work(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        planned = reader.partitions(begin, end)
        made_again(client, reader)
        for step in (
            lambda: reader.latestOffset(end, ReadAllAvailable()),
            lambda: StreamReader(options(client)).latestOffset(end, ReadAllAvailable()),
            lambda: values(reader, planned),
        ):
            with pytest.raises(DataLossError, match="deleted and created again"):
                step()

    await in_thread(bootstrap, work)


async def test_new_topic_is_read_from_its_beginning_where_loss_is_passed_over(
    bootstrap: str,
) -> None:
    def work(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client, startingOffsets="earliest", onDataLoss="skip"))
        begin = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        made_again(client, reader)
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert ends(end) == {"0": 6, "1": 0}
        assert values(reader, reader.partitions(begin, end)) == list(range(100, 106))
        assert reader.latestOffset(end, ReadAllAvailable()) == end

    await in_thread(bootstrap, work)


async def test_checkpoint_without_incarnations_goes_on(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client))
        older = {"topics": {"orders": {"shard-0": {"0": 1, "1": 0}}}, "v": 1}
        end = reader.latestOffset(older, ReadAllAvailable())
        assert values(reader, reader.partitions(older, end)) == [1, 2]
        assert list(end) == sorted(end)
        assert end["incarnations"]["orders"]["shard-0"] > 0
        assert StreamReader(options(client)).latestOffset(end, ReadAllAvailable()) == end

    await in_thread(bootstrap, work)


async def test_checkpoint_of_an_older_version_goes_on_once_it_is_known_to_be_of_this_topic(
    tmp_path: Path,
) -> None:
    """Topics of that version have a place in the log as incarnation, as other clusters' too."""
    config = folder_config(tmp_path, segment_bytes_max=16 << 20)
    store = MessageStore.open(config, clock=FakeClock(), threaded=False, draw=lambda: 1851)
    wanted = TopicConfig(name="orders", read_queues=2, write_queues=2)
    store.create_topic("orders", wanted.to_json())
    store.close()

    def work(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client))
        topics = {"orders": {"shard-0": {"0": 1, "1": 0}}}
        older = {"incarnations": {"orders": {"shard-0": 1851}}, "topics": topics, "v": 1}
        end = reader.latestOffset(older, ReadAllAvailable())
        assert values(reader, reader.partitions(older, end)) == [1, 2]
        unique, place = end["incarnations"]["orders"]["shard-0"]
        assert (unique >= 1 << 62, place) == (True, 1851)
        other = {"incarnations": {"orders": {"shard-0": 1850}}, "topics": topics, "v": 1}
        with pytest.raises(DataLossError, match=r"orders/shard-0/0: read up to offset 1, .* again"):
            reader.latestOffset(other, ReadAllAvailable())
        wrong = {**end, "incarnations": {"orders": {"shard-0": [unique + 1, place]}}}
        with pytest.raises(DataLossError, match="created again"):
            reader.latestOffset(wrong, ReadAllAvailable())

    async with running_broker(tmp_path) as broker:
        await in_thread(f"127.0.0.1:{broker.ports.namesrv_port}", work)


async def in_two_clusters(folder: Path, *works: Callable[[Client], None]) -> None:
    """Do the first work in one cluster, the second in another that was made by the same steps."""
    for number, work in enumerate(works):
        async with running_broker(folder / str(number)) as broker:
            await in_thread(f"127.0.0.1:{broker.ports.namesrv_port}", work)


async def test_checkpoint_is_its_clusters_alone(tmp_path: Path) -> None:
    """Two clusters whose topics were made by the same steps, and messages in the same places."""
    read: list[dict[str, Any]] = []

    def first(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        read.append(reader.initialOffset())
        read.append(reader.latestOffset(read[0], ReadAllAvailable()))

    def second(client: Client) -> None:
        send(client, 6, 0, start=100)
        reader = StreamReader(options(client))
        with pytest.raises(DataLossError, match="orders/shard-0/0: read up to offset 3 in cluster"):
            reader.latestOffset(read[1], ReadAllAvailable())
        with pytest.raises(DataLossError, match=r"orders/shard-0/0: read up to offset 0, .* again"):
            values(reader, reader.partitions(*read))  # a batch that was planned there
        (planned,) = reader.partitions(*read)
        with pytest.raises(DataLossError, match="created again"):
            next(reader.read(planned))  # no row gets to a sink
        skipping = StreamReader(options(client, onDataLoss="skip"))
        end = skipping.latestOffset(read[1], ReadAllAvailable())
        assert ends(end) == {"0": 6, "1": 0}
        assert values(skipping, skipping.partitions(read[1], end)) == list(range(100, 106))
        assert values(skipping, skipping.partitions(*read)) == []

    await in_two_clusters(tmp_path, first, second)


async def test_offsets_that_name_their_topic_are_its_clusters_alone(tmp_path: Path) -> None:
    read: list[str] = []

    def first(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        read.append(json.dumps(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())))

    def second(client: Client) -> None:
        send(client, 6, 0, start=100)
        for name in ("startingOffsets", "endingOffsets"):
            batch = BatchReader(options(client, **{name: read[0]}))
            with pytest.raises(DataLossError, match="of cluster"):
                batch.partitions()
        begun = StreamReader(options(client, startingOffsets=read[0]))
        with pytest.raises(DataLossError, match="of cluster"):
            begun.initialOffset()
        more = {"startingOffsets": read[0], "onDataLoss": "skip"}
        batch = BatchReader(options(client, **more))
        assert len(values(batch, batch.partitions())) == 6

    await in_two_clusters(tmp_path, first, second)


async def test_checkpoint_outlives_the_broker(tmp_path: Path) -> None:
    """A broker alone has no registry: its cluster is the same one after each start."""
    read: list[dict[str, Any]] = []

    def work(client: Client) -> None:
        reader = StreamReader(options(client, startingOffsets="earliest"))
        read.append(reader.latestOffset(read[-1] if read else reader.initialOffset(),
                                        ReadAllAvailable()))  # fmt: skip

    for _ in range(2):
        async with running_broker(tmp_path) as broker:
            await in_thread(f"127.0.0.1:{broker.ports.namesrv_port}", work)
    assert read[0] == read[1]
    assert read[0]["cluster"]


async def test_progress_of_a_stream_begins_a_batch(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 3, 0)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        send(client, 2, 0, start=3)
        batch = BatchReader(options(client, startingOffsets=json.dumps(end)))
        assert values(batch, batch.partitions()) == [3, 4]
        batch = BatchReader(options(client, endingOffsets=json.dumps(end)))
        assert values(batch, batch.partitions()) == [0, 1, 2]

    await in_thread(bootstrap, work)


def taken_away(client: Client, reader: StreamReader) -> None:
    """Take the second queue away."""
    client.admin.alter_topic("orders", queues=1, hide_messages=True)
    reader.stop()  # a new client has the new route at once


async def test_queue_that_is_taken_away_unread_fails_the_stream(bootstrap: str) -> None:
    def work(client: Client) -> None:
        send(client, 2, 0)
        send(client, 3, 1, start=10)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        begin = reader.initialOffset()
        planned = reader.latestOffset(begin, ReadAllAvailable())
        taken_away(client, reader)
        unread = r"orders/shard-0/1: offsets 0 to 2 are unread.*onDataLoss"
        with pytest.raises(DataLossError, match=unread):
            reader.latestOffset(begin, ReadAllAvailable())
        now = StreamReader(options(client))
        now.prepareForTriggerAvailableNow()
        with pytest.raises(DataLossError, match=unread):
            now.latestOffset(begin, ReadAllAvailable())
        with pytest.raises(SourceError):
            values(now, now.partitions(begin, planned))
        skipping = StreamReader(options(client, onDataLoss="skip"))
        end = skipping.latestOffset(begin, ReadAllAvailable())
        assert ends(end) == {"0": 2}
        assert values(skipping, skipping.partitions(begin, end)) == [0, 1]
        assert values(skipping, skipping.partitions(begin, planned)) == [0, 1]

    await in_thread(bootstrap, work)


async def test_queue_that_is_taken_away_when_it_was_read_goes_on_when_it_is_back(
    bootstrap: str,
) -> None:
    def work(client: Client) -> None:
        send(client, 3, 1, start=10)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        read = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        taken_away(client, reader)
        assert reader.latestOffset(read, ReadAllAvailable()) == read
        client.admin.alter_topic("orders", queues=2)
        reader.stop()
        send(client, 2, 1, start=20)
        end = reader.latestOffset(read, ReadAllAvailable())
        assert values(reader, reader.partitions(read, end)) == [20, 21]

    await in_thread(bootstrap, work)


@pytest.mark.parametrize(
    "chosen", [{"subscribePattern": "orders.*"}, {"subscribe": "orders,orders-2"}]
)
async def test_topic_that_is_deleted_fails_the_stream(
    bootstrap: str, chosen: dict[str, str]
) -> None:
    def work(client: Client) -> None:
        client.admin.create_topic("orders-2", queues=1)
        given = {"bootstrap": ",".join(client.config.bootstrap), **chosen}
        reader = StreamReader(parse_options({**given, "startingOffsets": "earliest"}))
        read = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        client.admin.delete_topic("orders-2")
        reader.stop()
        with pytest.raises(SourceError, match="orders-2"):
            reader.latestOffset(read, ReadAllAvailable())
        if "subscribe" in chosen:
            return
        skipping = StreamReader(parse_options({**given, "onDataLoss": "skip"}))
        end = skipping.latestOffset(read, ReadAllAvailable())
        assert list(end["topics"]) == list(end["incarnations"]) == ["orders"]
        assert reader.latestOffset(end, ReadAllAvailable()) == end, "once is enough"

    await in_thread(bootstrap, work)


async def test_checkpoint_of_one_topic_is_not_that_of_another(bootstrap: str) -> None:
    def work(client: Client) -> None:
        client.admin.create_topic("refunds", queues=2)
        send(client, 3, 0)
        reader = StreamReader(options(client, startingOffsets="earliest"))
        begin = reader.initialOffset()
        read = reader.latestOffset(begin, ReadAllAvailable())
        assert read["subscription"] == {"subscribe": ["orders"]}
        other = StreamReader(options(client, subscribe="refunds"))
        for step in (
            lambda: other.latestOffset(read, ReadAllAvailable()),
            lambda: other.partitions(begin, read),
        ):
            with pytest.raises(DataLossError, match=r"orders/shard-0/0: .*subscribe=refunds"):
                step()
        skipping = StreamReader(options(client, subscribe="refunds", onDataLoss="skip"))
        assert skipping.partitions(begin, read) == []
        end = skipping.latestOffset(read, ReadAllAvailable())
        assert list(end["topics"]) == ["refunds"]
        both = StreamReader(options(client, subscribe="refunds,orders"))
        wider = both.latestOffset(read, ReadAllAvailable())
        assert list(wider["topics"]) == ["orders", "refunds"]
        with pytest.raises(DataLossError, match="leaves out"):
            reader.latestOffset(wider, ReadAllAvailable())

    await in_thread(bootstrap, work)


async def test_topic_that_leaves_a_shard_fails_the_stream(tmp_path: Path) -> None:
    """As when the shard is removed: it is in no route any more."""
    async with running_pair(tmp_path) as pair:
        for admin in (pair.one, pair.two):
            make(admin, "orders", 1)
        view = pair.one.broker.coordinator.view
        await eventually(
            lambda: len(view().topics["orders"].shards if "orders" in view().topics else ()) == 2
        )
        for admin in (pair.one, pair.two):
            await put(admin, "orders")
        bootstrap = f"127.0.0.1:{pair.one.broker.ports.namesrv_port}"
        given = {"bootstrap": bootstrap, "subscribe": "orders", "startingOffsets": "earliest"}
        reader = StreamReader(parse_options(given))

        def before() -> dict[str, Any]:
            return reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

        def after() -> None:
            reader.stop()
            gone = r"orders/shard-1/0: messages from offset 1 on .* shard-1 was removed"
            with pytest.raises(DataLossError, match=gone):
                reader.latestOffset(read, ReadAllAvailable())
            skipping = StreamReader(parse_options({**given, "onDataLoss": "skip"}))
            end = skipping.latestOffset(read, ReadAllAvailable())
            assert end["topics"] == {"orders": {"shard-0": {"0": 1}}}

        try:
            read = await asyncio.to_thread(before)
            assert list(read["topics"]["orders"]) == ["shard-0", "shard-1"]
            assert len(set(read["incarnations"]["orders"].values())) == 2
            pair.two.broker.topics.delete("orders")
            await eventually(
                lambda: (
                    len(view().topics["orders"].shards if "orders" in view().topics else ()) == 1
                )
            )
            await asyncio.to_thread(after)
        finally:
            await asyncio.to_thread(source_broker.close_clients)


@pytest.mark.parametrize(
    ("error", "is_gone"),
    [
        (NoRouteError("orders"), True),
        (TopicAwayError("orders"), True),
        (NoQueuesError("orders", "shard-1", ["shard-0"]), True),
        (NoMasterError("orders", "shard-1"), False),
        (RequestTimeoutError("h:1", 10), False),
    ],
)
def test_what_is_only_away_for_now_is_not_gone(
    error: ClientError, is_gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Consumer:
        def lost_queues(self, _: str) -> tuple[MessageQueue, ...]:
            return ()

        def end(self, _: MessageQueue) -> None:
            raise error

    monkeypatch.setattr(source_broker, "consumer_of", lambda _: Consumer())
    brokers = source_broker.TopicBrokers(parse_options({"bootstrap": "a:1", "subscribe": "orders"}))
    before, read = Progress(offsets={QUEUE: 3}), Progress(offsets={})
    if not is_gone:
        with pytest.raises(SourceError):
            brokers.present(before, read)
        return
    found = brokers.present(before, read)
    assert (found.waiting, found.hidden.offsets) == (frozenset(), {})
