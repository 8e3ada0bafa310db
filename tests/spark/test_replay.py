"""The replay application: each row of a slice becomes one message, whatever is run again."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import Message
from imago_client.message_queue import MessageQueue
from imago_spark.pipelines import application, settings, streaming
from imago_spark.pipelines.landing import Landing, Shape
from imago_spark.pipelines.replay import journal, replaying, slices
from imago_spark.pipelines.settings import IngestSettings
from imago_spark.pipelines.tables import contract
from imago_spark.pipelines.tables.footers import staged
from imago_spark.pipelines.tables.history import Lake
from imago_spark.pipelines.tables.table import TableWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

ROWS = 60


def config(cluster: str, folder: Path, **own: object) -> Path:
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in own.items())
    file = folder / "replay.toml"
    file.write_text(
        f'bootstrap = "{cluster}"\ntopics = ["to-replay"]\npath = "{folder / "lake"}"\n'
        f'checkpoint = "{folder / "steps"}"\nmaxRowsPerTrigger = 13\n[config]\n{lines}\n'
    )
    return file


def landed(spark: SparkSession, cluster: str, client: Client, folder: Path) -> None:
    """Fill a topic of three queues and land it."""
    client.admin.create_topic("to-replay", queues=3)
    producer = client.producer()
    queues = producer.queues("to-replay")
    for n in range(ROWS):
        message = Message("to-replay", b"%d" % n, keys=(f"k{n % 7}",), tags="t")
        producer.send(message, queue=queues[n % 3])
    wanted = IngestSettings(
        bootstrap=cluster, topics=("to-replay",), path=folder / "lake", checkpoint="/none"
    )
    table = TableWriter(wanted.path)
    table.begin()
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "q")
    rows = spark.read.format("imago").options(**wanted.source_options()).load()
    Landing(table, lambda: None, wanted, Shape())(rows, 0)


def sent(client: Client, topic: str) -> list[Any]:
    consumer = client.pull_consumer("reader")
    return [
        message
        for queue in consumer.queues(topic)
        for piece in consumer.scan(queue, 0, consumer.max_offset(queue))
        for message in piece.messages()
    ]


def assert_each_once(client: Client, topic: str) -> None:
    messages = sent(client, topic)
    wanted = [n for n in range(ROWS) if n // 3 >= (4, 10, ROWS)[n % 3]]
    assert Counter(int(one.body) for one in messages) == Counter(wanted)
    in_queues: dict[tuple[int, int], list[int]] = {}
    for one in messages:
        n = int(one.body)
        assert one.properties["REPLAY_OF"] == f"to-replay/shard-0/{n % 3}/{n // 3}"
        assert (one.keys, one.tags) == ((f"k{n % 7}",), "t")
        in_queues.setdefault((one.queue.queue_id, n % 3), []).append(n)
    assert all(found == sorted(found) for found in in_queues.values()), "a queue's order stays"


def dry_run(file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert replaying.main(["--config", str(file), "--dry-run"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["steps"], told["leftOut"]) == (26, 2, 0)
    assert told["list"] == [{"step": 0, "rows": 13, "bytes": 26}], "it was to list one"
    assert told["bytes"] == 52
    return told


def test_a_slice_is_sent_once_however_often_its_steps_are_run(
    spark: SparkSession,
    cluster: str,
    client: Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    landed(spark, cluster, client, tmp_path)
    client.admin.create_topic("replayed", queues=2)
    monkeypatch.setattr(application, "spark", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    monkeypatch.setattr(streaming.StopSignal, "install", lambda _: None)
    start = {"to-replay": {"shard-0": {"0": 4, "1": 10}}}
    end = {"to-replay": {"shard-0": {"2": "2000-01-01T00:00:00Z"}}}  # before there was a row
    own = {"startingOffsets": json.dumps(start), "endingTimestamp": json.dumps(end)}
    file = config(cluster, tmp_path, id="again", topic="replayed", **own)
    monkeypatch.setattr(replaying, "STEPS_LISTED_MAX", 1)
    told = dry_run(file, capsys)
    assert not (tmp_path / "steps").exists(), "a dry run writes nothing"
    # A run that dies once the last step is sent, before it is written down.
    finish = journal.Journal.finish

    def dying(self: journal.Journal, step: int) -> None:
        if step == 1:
            raise KeyboardInterrupt
        finish(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(journal.Journal, "finish", dying)
        with pytest.raises(KeyboardInterrupt):
            replaying.main(["--config", str(file)])
    assert len(sent(client, "replayed")) == told["rows"]
    assert replaying.main(["--config", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["before"] == 1
    assert_each_once(client, "replayed")


PARSED = {"topic": "string", "shard": "string", "queue": "int", "offset": "bigint"}
PARSED |= {"key": "string", "crc_ok": "boolean", "e_id": "bigint", "reject_value": "binary"}


def test_events_are_sent_as_json_and_rejects_as_they_came(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = TableWriter(tmp_path / "lake")
    contract.claim(table, "parse", {"e_id": "bigint", "e_new": "string"})
    table.begin()
    attempt = table.stage()
    place = ("to-replay", "shard-0", 0)
    rows = [
        (*place, 0, "k", True, 7, None, False),
        (*place, 1, None, True, None, b"oh", True),
        (*place, 2, None, False, None, None, True),
    ]
    columns = ", ".join(f"{name} {kind}" for name, kind in PARSED.items())
    made = spark.createDataFrame(rows, f"{columns}, rejected boolean")
    made = made.selectExpr("*", "date'2026-11-21' as date")
    made.coalesce(1).write.partitionBy("rejected", "date").parquet(str(attempt))
    table.commit(staged(attempt, "q", 0))
    lake, part = Lake(table), {MessageQueue(*place): [(0, 3)]}
    found = {}
    for which in ("table", "rejects"):
        own = {"id": "p", "topic": "t", "rows": which, "fieldPrefix": "e_"}
        wanted = slices.slice_of(settings.load(config("b:1", tmp_path, **own), None, slices.OWN))
        sent = replaying.rows_of(spark, lake, wanted, part)
        assert sent is not None
        kept = sent.select("offset", "key", "value", "crc_ok").orderBy("offset").collect()
        found[which] = [tuple(row) for row in kept]
    assert found["table"] == [(0, "k", b'{"id":7}', True)]
    assert found["rejects"] == [(1, None, b"oh", True), (2, None, None, False)]
