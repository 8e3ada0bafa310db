"""Queries that begin and end by time, or where a group stands, as PySpark calls the readers."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from imago_client import MessageQueue
from imago_spark.choosing.times import Times, parse_times
from imago_spark.errors import OptionError, SourceError
from imago_spark.options import parse_options
from imago_spark.reader import BatchReader, StreamReader
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.spark_readers import ends, in_thread, options, send, values

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_client.blocking import Client

GIVEN = {"bootstrap": "a:1", "subscribe": "orders"}
EIGHT = 1_795_248_000_000
FIRST, SECOND = (MessageQueue("orders", "shard-0", number) for number in (0, 1))


@pytest.fixture
async def bootstrap(tmp_path: Path) -> AsyncIterator[str]:
    async with running_broker(tmp_path) as broker:
        yield f"127.0.0.1:{broker.ports.namesrv_port}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (str(EIGHT), Times(EIGHT)),
        ("2026-11-21T08:00:00Z", Times(EIGHT)),
        (" 2026-11-21T09:00:00+01:00 ", Times(EIGHT)),
        ("2026-11-21T08:00:00.007Z", Times(EIGHT + 7)),
        (json.dumps({"orders": {"shard-0": {"1": EIGHT}}}), Times(of_queues={SECOND: EIGHT})),
    ],
)
def test_a_time_is_a_number_a_text_or_one_for_each_queue(text: str, found: Times) -> None:
    assert parse_times(text) == found


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"startingTimestamp": "yesterday"}, "'yesterday', must be milliseconds since 1970"),
        ({"startingTimestamp": "2026-11-21T08:00:00"}, "has no zone"),
        ({"startingTimestamp": "-1"}, "must be milliseconds"),
        ({"startingTimestamp": "253402300800000"}, "years 1970 to 9999"),
        ({"startingTimestamp": "{}"}, "names no queue"),
        ({"startingTimestamp": '{"orders": 3}'}, "must be milliseconds"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "only one can say where"),
        ({"endingTimestamp": "1", "endingOffsets": "latest"}, "only one can say where"),
        ({"timestampNotFound": "skip"}, "must be error or latest"),
        ({"startingOffsets": "group"}, r'needs .option\("group"'),
        ({"group": "no spaces"}, "only letters"),
    ],
)
def test_what_is_no_time_is_told_with_what_is(more: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_options(GIVEN | more)


def sent_around_a_time(client: Client) -> int:
    """Send five messages to the first queue, four to the second; return a time between the two."""
    send(client, 5, 0)
    time.sleep(0.05)
    between = int(time.time() * 1000)
    time.sleep(0.05)
    send(client, 4, 1, start=5)
    return between


async def test_a_batch_reads_what_was_stored_from_a_time_on_or_before_it(bootstrap: str) -> None:
    def work(client: Client) -> None:
        between = str(sent_around_a_time(client))
        before = BatchReader(options(client, endingTimestamp=between))
        assert values(before, before.partitions()) == list(range(5))
        strict = BatchReader(options(client, startingTimestamp=between))
        with pytest.raises(SourceError, match=r"orders/shard-0/0 has no message .*latest"):
            strict.partitions()
        given = {"startingTimestamp": between, "timestampNotFound": "latest"}
        after = BatchReader(options(client, **given))
        assert values(after, after.partitions()) == list(range(5, 9))
        send(client, 1, 0, start=9)
        now_strict = BatchReader(options(client, startingTimestamp=between))
        assert sorted(values(now_strict, now_strict.partitions())) == list(range(5, 10))

    await in_thread(bootstrap, work)


async def test_times_may_be_of_some_queues_alone(bootstrap: str) -> None:
    def work(client: Client) -> None:
        between = sent_around_a_time(client)
        of_second = json.dumps({"orders": {"shard-0": {"1": between}}})
        reader = BatchReader(options(client, endingTimestamp=of_second))
        assert values(reader, reader.partitions()) == list(range(5))
        reader = BatchReader(options(client, startingTimestamp=of_second))
        assert values(reader, reader.partitions()) == list(range(9))
        strange = json.dumps({"orders": {"shard-0": {"7": between}}})
        with pytest.raises(SourceError, match="orders/shard-0/7, which is not a queue"):
            BatchReader(options(client, startingTimestamp=strange)).partitions()

    await in_thread(bootstrap, work)


async def test_a_stream_begins_at_a_time_and_has_no_ending_one(bootstrap: str) -> None:
    def work(client: Client) -> None:
        between = str(sent_around_a_time(client))
        given = {"startingTimestamp": between, "timestampNotFound": "latest"}
        begun = StreamReader(options(client, **given)).initialOffset()
        assert ends(begun) == {"0": 5, "1": 0}
        with pytest.raises(OptionError, match="a stream has no end"):
            StreamReader(options(client, endingTimestamp=between))

    await in_thread(bootstrap, work)


async def test_a_stream_commits_for_its_group_and_another_query_begins_there(
    bootstrap: str,
) -> None:
    def work(client: Client) -> None:
        send(client, 5, 0)
        reader = StreamReader(options(client, startingOffsets="earliest", group="lake"))
        group = client.pull_consumer("lake")
        assert group.committed(FIRST) is None
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        assert values(reader, reader.partitions(start, end)) == list(range(5))
        assert group.committed(FIRST) == 0, "the micro-batch is not done"
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert (group.committed(FIRST), group.committed(SECOND)) == (5, 0)
        send(client, 2, 0, start=5)
        send(client, 1, 1, start=7)
        rest = BatchReader(options(client, startingOffsets="group", group="lake"))
        assert values(rest, rest.partitions()) == [5, 6, 7]
        new = BatchReader(options(client, startingOffsets="Group", group="other"))
        assert len(values(new, new.partitions())) == 8, "it has no offsets: from the first on"
        begun = StreamReader(options(client, startingOffsets="group", group="lake"))
        assert ends(begun.initialOffset()) == {"0": 5, "1": 0}

    await in_thread(bootstrap, work)


async def test_a_stream_goes_on_where_its_group_cannot_be_told(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def work(client: Client) -> None:
        send(client, 5, 0)
        reader = StreamReader(options(client, startingOffsets="earliest", group="lake"))
        start = reader.initialOffset()
        with monkeypatch.context() as patch:

            def refused(*_: object) -> None:
                raise SourceError("not now")

            patch.setattr("imago_spark.broker.TopicBrokers.commit", refused)
            end = reader.latestOffset(start, ReadAllAvailable())
        assert "group lake are committed later: not now" in caplog.text
        assert ends(end)["0"] == 5
        reader.latestOffset(end, ReadAllAvailable())
        assert client.pull_consumer("lake").committed(FIRST) == 5

    await in_thread(bootstrap, work)
