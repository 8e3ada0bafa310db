"""topic_stats, lag_latency and dlq_triage: what they find in a table and in topics."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from imago_client.messages import Message
from imago_spark.pipelines import application, dlq_triage, ingest, lag_latency, topic_stats
from imago_spark.pipelines.tables import days

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Application = Callable[..., dict[str, Any]]

    from pyspark.sql import SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def run(
    spark: SparkSession,
    cluster: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Application:
    """Runs an application's main with a configuration; returns what it prints."""
    monkeypatch.setattr(application, "spark", lambda *_: spark)
    monkeypatch.setattr(type(spark), "stop", lambda _: None)

    def found(main: Any, topic: str, path: str, *words: str, **config: Any) -> dict[str, Any]:
        file = tmp_path / f"{path}.toml"
        lines = [f"{name} = {json.dumps(value)}" for name, value in config.items()]
        file.write_text(
            f'bootstrap = "{cluster}"\ntopics = ["{topic}"]\npath = "{tmp_path / path}"\n'
            f'checkpoint = "{tmp_path / path}-checkpoint"\n[config]\n' + "\n".join(lines)
        )
        capsys.readouterr()
        code = main(["--config", str(file), *words])
        said = capsys.readouterr()
        assert code == 0, said.err
        told: dict[str, Any] = json.loads(said.out)
        return told

    return found


def fill(client: Client, topic: str) -> None:
    client.admin.create_topic(topic, queues=2)
    producer = client.producer()
    for number in range(30):
        body, key = b"x" * (number + 1), f"k{number % 5}"
        producer.send(Message(topic, body, keys=(key,), tags="paid"))


def test_figures_of_a_topic_and_the_lag_of_its_groups(
    run: Application, client: Client, spark: SparkSession, tmp_path: Path
) -> None:
    topic, lake = "counted", str(tmp_path / "lake")
    fill(client, topic)
    run(ingest.main, topic, "lake", trigger="available-now")

    shown = run(topic_stats.main, topic, "stats", "--dry-run", input=lake)
    assert not (tmp_path / "stats").exists()
    assert shown == run(topic_stats.main, topic, "stats", input=lake)
    assert (shown["rows"], shown["days"]) == (30, 1)
    for _ in range(2):  # a second run takes the place of the first
        assert run(topic_stats.main, topic, "stats", input=lake) == shown
        (day,) = spark.read.parquet(str(tmp_path / "stats" / "days")).collect()
        assert (day.topic, day.rows, day.bytes, day.damaged) == (topic, 30, 465, 0)
        assert (day["keys"], day.tags, day.size_p50, day.size_max) == (5, 1, 15, 30)
    minutes = spark.read.parquet(str(tmp_path / "stats" / "minutes"))
    assert sum(row.rows for row in minutes.collect()) == 30

    consumer = client.pull_consumer("slow")
    first, second = sorted(consumer.queues(topic))
    consumer.commit(first, 4)
    told = run(lag_latency.main, topic, "lag", input=lake, groups="slow, none")
    assert (told["rows"], told["lag"]) == (30, {"none": 30, "slow": 26})
    assert run(lag_latency.main, topic, "lag", input=lake)["lag"] == {}
    rows = spark.read.parquet(str(tmp_path / "lag" / "lag")).where("group = 'slow'").collect()
    seen = {row.queue: (row.committed, row.lag) for row in rows}
    assert seen[first.queue_id][0] == 4
    assert seen[second.queue_id][0] is None
    assert sum(lag for _, lag in seen.values()) == 26
    assert all(row.waited_s > 0 for row in rows)
    latency = spark.read.parquet(str(tmp_path / "lag" / "latency")).collect()
    assert sum(row.rows for row in latency) == 30
    assert all(0 <= row.p50 <= row.p99 <= row["max"] for row in latency)


def test_a_message_stored_before_it_was_made_is_in_no_percentile(spark: SparkSession) -> None:
    rows = [
        ("a", NOON + timedelta(seconds=at), NOON + timedelta(seconds=at, milliseconds=-ms))
        for at, ms in enumerate((10, 20, 30, -5000))
    ]
    frame = spark.createDataFrame(rows, "topic string, store_time timestamp, born_time timestamp")
    (row,) = lag_latency.latencies(frame).collect()
    assert (row.rows, row.skewed, row.p50, row["max"]) == (4, 1, 20.0, 30.0)


def test_dead_letters_are_in_one_group_each(spark: SparkSession) -> None:
    schema = (
        "topic string, shard string, queue int, offset bigint, key string, value binary,"
        " store_time timestamp, reconsume_times int, properties map<string,string>"
    )
    origin = {"DLQ_ORIGIN_TOPIC": "orders"}
    bodies = [
        (b'{"id": 1, "amount": 3}', origin),
        (b'{"amount": 4, "id": 22}', origin),
        (b'{"amount": 4}', origin),
        (b"order 17 of 'ann': java.lang.IllegalStateException: 5", origin),
        (b"order 4711 of 'bob': java.lang.IllegalStateException: 6", origin),
        (b"order 4711 of 'bob': java.lang.IllegalStateException: 6", {}),
        (b"\xff\xfe", origin),
    ]
    rows = [
        ("%DLQ%g", "shard-0", 0, at, f"k{at}", body, NOON + timedelta(seconds=at), 16, had)
        for at, (body, had) in enumerate(bodies)
    ]
    found = dlq_triage.groups(spark.createDataFrame(rows, schema), 1).collect()
    assert sum(one.rows for one in found) == len(bodies)
    known = {(one.topic, one.exception, one["shape"]): one for one in found}
    assert len(known) == len(found) == 5
    assert len({one.fingerprint for one in found}) == 5
    assert known["orders", "", "{amount, id}"].rows == 2
    failed = "java.lang.IllegalStateException"
    twice = known["orders", failed, f'order # of "": {failed}: #']
    assert (twice.rows, twice.tries, len(twice.samples)) == (2, 16, 1)
    assert twice.samples[0].place == "%DLQ%g/shard-0/0 at 3"
    assert known["%DLQ%g", failed, f'order # of "": {failed}: #'].rows == 1
    assert known["orders", "", "no text"].samples[0].body is None


def test_there_need_be_no_dead_letter_yet(run: Application) -> None:
    told = run(dlq_triage.main, "%DLQ%nobody", "dlq")
    assert told == {"rows": 0, "groups": 0, "new": 0, "oldest": None, "list": []}


def test_a_day_is_replaced_and_others_stay(spark: SparkSession, tmp_path: Path) -> None:
    def write(*rows: tuple[int, str]) -> int:
        frame = spark.createDataFrame(list(rows), "n int, date string")
        return days.write(frame, tmp_path, lambda: None)

    assert write((1, "2026-11-20"), (2, "2026-11-21")) == 2
    assert write((3, "2026-11-21")) == 1
    seen = spark.read.parquet(str(tmp_path)).collect()
    assert sorted((row.n, str(row.date)) for row in seen) == [(1, "2026-11-20"), (3, "2026-11-21")]
    assert days.since_of(2, NOON) == "2026-11-20"


@pytest.mark.parametrize(
    ("main", "lines", "said"),
    [
        (topic_stats.main, "", "config.input: None"),
        (topic_stats.main, 'input = "/lake/out"', "config.input: is path, too"),
        (topic_stats.main, 'input = "/lake/in"\ndays = 0', "days: 0, must be"),
        (lag_latency.main, 'input = "/lake/in"\ngroups = "a b"', "group"),
        (dlq_triage.main, "samples = -1", "samples: -1, must be"),
        (dlq_triage.main, "samplez = 1", "did you mean 'samples'?"),
    ],
)
def test_mistakes_are_named_before_anything_starts(
    main: Any, lines: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        f'bootstrap = "127.0.0.1:1"\ntopics = ["orders"]\npath = "/lake/out"\n[config]\n{lines}\n'
    )
    assert main(["--config", str(file)]) == 2
    assert said in capsys.readouterr().err
