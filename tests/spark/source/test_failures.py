"""What happens while a query reads, against a real broker: see also `test_checkpoints`."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.quotas import parse_subject, quotas_from_json
from imago_broker.service.access.access_edits import Actor
from imago_client import BrokerError, Message
from imago_client.blocking.rocketmq.scan import ScanLimits
from imago_spark import broker as source_broker
from imago_spark.choosing import headroom
from imago_spark.errors import DataLossError, SourceError
from imago_spark.options import parse_options
from imago_spark.reader import BatchReader, StreamReader
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.spark_readers import QUEUE, ends, in_thread, options, send, values
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from imago_client.blocking import Client


SHORT = (
    "store.segment_bytes_max=65536",
    "store.retention_ms=1500",
    "rocketmq.message_bytes_max=16384",
    "metaq.message_bytes_max=16384",
)


async def test_what_retention_took_meanwhile_is_named_or_left_out(tmp_path: Path) -> None:
    """The range was planned while all of it was there."""

    def work(client: Client) -> None:
        for number in range(400):
            client.producer().send(Message("orders", b"%d" % number + b" " * 1000), queue=QUEUE)
        fails = BatchReader(options(client))
        skips = BatchReader(options(client, onDataLoss="skip"))
        planned = fails.partitions()
        consumer = client.pull_consumer("g")
        wait_until(lambda: consumer.min_offset(QUEUE) > 0, what="files that have expired go")
        with pytest.raises(DataLossError, match=r"offsets 0 to \d+ are gone by"):
            values(fails, planned)
        first = consumer.min_offset(QUEUE)
        left = values(skips, planned)
        assert left == list(range(left[0] if left else 400, 400))
        assert not left or left[0] >= first

    async with running_broker(tmp_path, *SHORT) as broker:
        await in_thread(f"127.0.0.1:{broker.ports.namesrv_port}", work)


async def test_a_stream_that_retention_is_about_to_overtake_is_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(headroom, "LOOK_EVERY_S", 0.0)

    def work(client: Client) -> None:
        def at(offset: int) -> dict[str, Any]:
            return start | {"topics": {"orders": {QUEUE.shard: {"0": offset, "1": 0}}}}

        def told() -> list[str]:
            for _ in range(100):
                client.producer().send(Message("orders", b" " * 1000), queue=QUEUE)
            stream.latestOffset(at(consumer.min_offset(QUEUE)), ReadAllAvailable())
            return [text for text in caplog.messages if "left before offset" in text]

        consumer = client.pull_consumer("g")
        stream = StreamReader(options(client, startingOffsets="earliest"))
        start = stream.initialOffset()
        assert not told(), "nothing has gone while it looked"
        wait_until(lambda: bool(told()), what="a warning, once files have expired")

    async with running_broker(tmp_path, *SHORT) as broker:
        await in_thread(f"127.0.0.1:{broker.ports.namesrv_port}", work)


async def test_a_broker_that_asks_for_patience_is_waited_for(tmp_path: Path) -> None:
    """A topic's limit: one piece is worth more seconds of it than a retry waits for."""
    token = tmp_path / "token"
    token.write_text("f" * 40)
    token.chmod(0o600)
    settings = ("acl.enabled=true", f"admin.token_file={token}")
    async with running_broker(tmp_path / "data", *settings) as broker:
        kinds = (AccessKind.TOPIC, AccessKind.GROUP)
        rules = [
            AccessRule(Resource(kind, "", prefix=True), frozenset(Operation)) for kind in kinds
        ]
        by, subject = Actor("the tests", "nowhere"), parse_subject("topic:orders")
        broker.core.access.set_rules("anonymous", rules, by)

        def work(client: Client) -> None:
            for number in range(80):
                client.producer().send(Message("orders", b"%d" % number + b" " * 1000), queue=QUEUE)
            reader = BatchReader(options(client, fetchBytes="65536", retries="1"))
            planned = reader.partitions()
            limit = quotas_from_json(subject, {"consumerBytesPerSecond": 10_000})
            loop.call_soon_threadsafe(broker.core.access.set_quotas, subject, limit, by)
            wait_until(lambda: subject in broker.core.quotas.accounts, what="a limit")
            hasty = ScanLimits(piece_bytes=64 << 10, busy_s=0.0)
            with pytest.raises(BrokerError, match="code 2: "):
                list(client.pull_consumer("g").scan(QUEUE, 0, 80, hasty))
            assert values(reader, planned) == list(range(80))
            assert broker.core.quotas.accounts[subject].refused

        loop = asyncio.get_running_loop()
        await in_thread(f"127.0.0.1:{broker.ports.namesrv_port}", work)


def test_an_error_of_ours_comes_without_the_way_that_it_came() -> None:
    """PySpark shows all of it before the message."""
    wrong = parse_options({"bootstrap": "127.0.0.1:1", "subscribe": "orders"})
    try:
        for call in (BatchReader(wrong).partitions, StreamReader(wrong).initialOffset):
            with pytest.raises(SourceError, match="Connection refused") as told:
                call()
            assert len(traceback.extract_tb(told.value.__traceback__)) == 2, "the test, and one"
            assert told.value.__suppress_context__
    finally:
        source_broker.close_clients()


async def test_a_name_service_that_is_gone_does_not_end_a_read(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, _relay(broker.ports.namesrv_port) as relay:

        def work(client: Client) -> None:
            send(client, 20, 0)
            given = {"bootstrap": f"127.0.0.1:{relay.port}", "subscribe": "orders"}
            stream = StreamReader(parse_options(given | {"startingOffsets": "earliest"}))
            start = stream.initialOffset()
            end = stream.latestOffset(start, stream.getDefaultReadLimit())
            planned = stream.partitions(start, end)
            asyncio.run_coroutine_threadsafe(relay.close(), loop).result(10)
            assert values(stream, planned) == list(range(20)), "routes are known"
            assert ends(stream.latestOffset(end, stream.getDefaultReadLimit())) == ends(end)
            source_broker.close_clients()
            with pytest.raises(SourceError, match=f"127.0.0.1:{relay.port}"):
                StreamReader(parse_options(given)).initialOffset()

        loop = asyncio.get_running_loop()
        await in_thread(f"127.0.0.1:{broker.ports.namesrv_port}", work)


class _Relay:
    """Passes connections on to a port, until it is closed."""

    def __init__(self, target: int) -> None:
        self._target, self.port = target, 0
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, far_writer]
        await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def _relay(target: int):  # type: ignore[no-untyped-def]
    relay = _Relay(target)
    await relay.open()
    try:
        yield relay
    finally:
        await relay.close()
