"""The parse application: what becomes an event, what is rejected and why, and each message once."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StructType

from imago_client import Message, batches
from imago_spark.errors import OptionError, RejectedError, TableError
from imago_spark.pipelines import ingest, parse
from imago_spark.pipelines.landing import Landing
from imago_spark.pipelines.parse import Parsing, parsing
from imago_spark.pipelines.settings import IngestSettings
from imago_spark.pipelines.tables.contract import claim
from imago_spark.pipelines.tables.table import TableWriter
from imago_testing.processes.servers import ServerProcess, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from imago_client.blocking import Client

pytestmark = [pytest.mark.spark, pytest.mark.processes]

NOW = datetime(2026, 11, 21, tzinfo=UTC)
SCHEMA = "id bigint, at timestamp, who struct<name: string>, tags array<int>, amount double"
NO_OBJECT = "the body is no JSON object"
BODIES: dict[bytes | None, str | None] = {
    b'{"id":1,"at":"2026-11-21T08:00:00Z","who":{"name":"a"},"tags":[1],"amount":1.5}': None,
    b' {"id":2,"at":"2026-11-21T08:00:00+02:00","who":null,"more":{"x":1}} ': None,
    b'{"id":3}': None,
    b'{"id":4} {"id":5}': NO_OBJECT,
    b'{"id":6': NO_OBJECT,
    b'[{"id":7}]': NO_OBJECT,
    b'{"id":8},{"id":9}': NO_OBJECT,
    b'{"id":8}],[{"id":9}': NO_OBJECT,
    b'{"id":8}] and more': NO_OBJECT,
    b'{"id":8}} and {"v":1': NO_OBJECT,
    b'{"id":8},"w":{"id":9}': NO_OBJECT,
    b'\n{"id":3}': None,
    b'\t{"id":4}\r\n': None,
    b'{"id":8} oh': NO_OBJECT,
    b'{"id":8,"id":9}': None,  # the last one counts, as for most readers of JSON
    b"null": NO_OBJECT,
    b"": NO_OBJECT,
    b"\xff\xfe{}": "the body is no UTF-8",
    None: "the body does not inflate",
    b'{"id":"ten"}': "field 'id' is no bigint",
    b'{"id":11.5}': "field 'id' is no bigint",
    b'{"id":99999999999999999999}': "field 'id' is no bigint",
    b'{"id":12,"at":"noon"}': "field 'at' is no timestamp",
    b'{"id":13,"who":5}': "field 'who' is no struct<name:string>",
    b'{"id":14,"tags":[1,"x"]}': "field 'tags' is no array<int>",
    b'{"id":15,"amount":"1.5"}': "field 'amount' is no double",
    b"{}": "field 'id' is missing",
    b'{"id":null}': "field 'id' is missing",
    b'{"ID":16}': "field 'id' is missing",
}
DAMAGED = b'{"id":17}'


def fields(text: str) -> StructType:
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    return found


def messages(spark: SparkSession, bodies: list[bytes | None]) -> Any:
    """Return rows as the source has them; the body DAMAGED has another checksum."""
    made = []
    for at, body in enumerate(bodies):
        crc = (zlib.crc32(body or b"") & 0x7FFFFFFF) ^ (body == DAMAGED)
        row = ("t", "s", 0, at, "k", "g", body, NOW, NOW, "m", int(body is None), crc)
        made.append(row)
    names = "topic string, shard string, queue int, offset long, key string, tags string,"
    names += " value binary, born_time timestamp, store_time timestamp, msg_id string,"
    return spark.createDataFrame(made, names + " sys_flag int, body_crc int")


def test_a_message_is_an_event_or_says_why_not(spark: SparkSession) -> None:
    how = parsing({"required": "id", "fieldPrefix": "e_"}, fields(SCHEMA))
    wanted = [*BODIES.items(), (DAMAGED, "the body is damaged: its checksum differs")]
    rows = how.rows(messages(spark, [body for body, _ in wanted])).orderBy("offset").collect()
    found = [(wanted[row.offset][0], row.reject_reason) for row in rows]
    assert found == wanted
    for row, (body, reason) in zip(rows, wanted, strict=True):
        assert row.rejected == (reason is not None)
        assert row.reject_value == (body if reason else None)
        assert (row.e_id is None) == (reason is not None)
    assert (rows[0].e_who.name, rows[0].e_tags, rows[0].e_amount) == ("a", [1], 1.5)
    assert rows[1].e_at == datetime(2026, 11, 21, 6)  # noqa: DTZ001 - as Spark gives it, in UTC


@pytest.mark.parametrize(
    ("own", "schema", "said"),
    [
        ({}, "key string", "fieldPrefix"),
        ({}, "rejected int", "fieldPrefix"),
        ({"required": "id, two"}, "id int", "config.required: 'two' is no field"),
        ({"rejectedPercentMax": 101}, "id int", "must be 0 to 100"),
        ({}, "`a'b` int", "cannot be the name"),
    ],
)
@pytest.mark.usefixtures("spark")  # reads the DDL
def test_what_cannot_be_parsed_so_is_named(own: dict[str, Any], schema: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parsing(own, fields(schema))


def test_a_table_without_rows_may_still_change(tmp_path: Path) -> None:
    table = TableWriter(tmp_path / "parsed")
    claim(table, "parse", {"id": "int"})
    table.begin()
    claim(table, "parse", {"id": "bigint"})
    with pytest.raises(TableError, match="is a table of parse, not of ingest"):
        claim(table, "ingest", {})


def test_a_table_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableWriter(tmp_path / "parsed")
    claim(table, "parse", {"id": "bigint"})
    table.begin()
    last = table.read_last()
    assert last is not None
    monkeypatch.setattr(TableWriter, "read_last", lambda _: replace(last, rows=1))
    claim(table, "parse", {"id": "bigint", "more": "int"})
    for fields, said in (
        ({"id": "bigint"}, "'more' was int and now is left out"),
        ({"id": "int", "more": "int"}, "'id' was bigint and now is int"),
    ):
        with pytest.raises(TableError, match=said):
            claim(table, "parse", fields)
    with pytest.raises(TableError, match="is a table of parse, not of ingest"):
        claim(table, "ingest", {})
    monkeypatch.undo()
    landed = TableWriter(tmp_path / "landed")
    claim(landed, "ingest", {})
    landed.begin()
    with pytest.raises(TableError, match="is a table of ingest, not of parse"):
        claim(landed, "parse", {"id": "int"})
    (tmp_path / "parsed" / "_imago" / "contract.json").write_text('{"format": 2}')
    with pytest.raises(TableError, match="this version knows 1"):
        claim(table, "parse", {})


class Rig:
    """A topic, a table to be, and the application on both."""

    def __init__(self, cluster: str, folder: Path, topic: str) -> None:
        self.cluster, self.folder, self.topic = cluster, folder, topic

    def command(self, *more: str, **config: object) -> list[str]:
        file = self.folder / "pipeline.toml"
        config = {"trigger": "available-now", "schema": "id bigint, at timestamp"} | config
        config |= {"required": "id", "path": str(self.folder / "lake")}
        lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in config.items())
        file.write_text(
            f'bootstrap = "{self.cluster}"\ntopics = ["{self.topic}"]\nmaxRowsPerTrigger = 500\n'
            f'checkpoint = "{self.folder / "checkpoint"}"\n[config]\n{lines}\n'
        )
        program = [sys.executable, "-m", "imago_spark.pipelines.parse", "--short", "--cores", "1"]
        return [*program, "--memory", "512m", "--config", str(file), *more]

    def run(self, *more: str, **config: Any) -> tuple[int, Any]:
        ended = subprocess.run(
            self.command(*more, **config), capture_output=True, text=True, timeout=240, check=False
        )
        sys.stderr.write(ended.stderr[-4000:])
        told = ended.stdout.splitlines()[-1:]
        return ended.returncode, json.loads(told[0]) if told else None

    def places(self, pattern: str) -> Counter[tuple[int, int]]:
        found: Counter[tuple[int, int]] = Counter()
        for file in (self.folder / "lake").glob(pattern):
            table = pq.read_table(file, columns=["queue", "offset"], partitioning=None)
            found.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return found


@pytest.mark.traces_wanted  # of the kill alone
def test_killed_driver_leaves_each_message_in_one_of_two_tables_once(
    cluster: str, client: Client, tmp_path: Path, spark: SparkSession
) -> None:
    client.admin.create_topic("parse-killed", queues=2)
    bodies = [b'{"id": %d}' % n if n % 5 else b'{"id": "%d"}' % n for n in range(2000)]
    producer = client.producer()
    for batch in batches([Message("parse-killed", body) for body in bodies], bytes_max=20_000):
        producer.send_batch(batch)
    rig = Rig(cluster, tmp_path, "parse-killed")
    first = ServerProcess.start("parse", rig.command(), tmp_path)

    def commits() -> int:
        assert first.process.poll() is None, first.log_tail()
        last = TableWriter(tmp_path / "lake").read_last()
        return 0 if last is None else last.number

    wait_until(lambda: commits() >= 2, seconds_max=200, what="two commits")
    first.kill()
    code, told = rig.run()
    assert (code, told["rows"], told["damaged"]) == (0, 2000, 0)
    good, bad = rig.places("date=*/*.parquet"), rig.places("_rejects/date=*/*.parquet")
    assert set(good.values()) == set(bad.values()) == {1}
    assert (len(good), len(bad), len(good.keys() | bad.keys())) == (1600, 400, 2000)
    lake = spark.read.parquet(str(tmp_path / "lake"))
    assert {row.id for row in lake.collect()} == {n for n in range(2000) if n % 5}
    rejects = spark.read.parquet(str(tmp_path / "lake" / "_rejects"))
    assert {row.reject_reason for row in rejects.collect()} == {"field 'id' is no bigint"}


def test_a_batch_with_too_many_rejects_is_not_taken(
    spark: SparkSession,
    cluster: str,
    client: Client,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client.admin.create_topic("parse-rejects", queues=1)
    producer = client.producer()
    for body in (b'{"id": 1}', b"oh", b"dear", b'{"id": "x"}'):
        producer.send(Message("parse-rejects", body))
    wanted = IngestSettings(
        bootstrap=cluster,
        topics=("parse-rejects",),
        path=tmp_path / "lake",
        checkpoint=str(tmp_path / "checkpoint"),
        available_now=True,
    )
    how = parsing({"required": "id", "rejectedPercentMax": 70}, fields("id bigint"))
    assert parse._dry_run(spark, wanted, how) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["rejected"]) == (4, 3)
    assert told["reasons"] == [
        {"reject_reason": NO_OBJECT, "rows": 2, "example": "parse-rejects/shard-0/0 at 1"},
        {
            "reject_reason": "field 'id' is no bigint",
            "rows": 1,
            "example": "parse-rejects/shard-0/0 at 3",
        },
    ]
    table = TableWriter(wanted.path)
    table.begin()

    def land(how: Parsing) -> Landing:
        into = Landing(table, lambda: None, wanted, how.shape)
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", "q")
        into(spark.read.format("imago").options(**wanted.source_options()).load(), 0)
        return into

    said = (
        r"^3 of 4 messages of the batch would be rejected, more than 70 %:"
        rf" 2 × {NO_OBJECT} \(parse-rejects/shard-0/0 at 1\); 1 × field 'id' is no bigint"
    )
    with pytest.raises(RejectedError, match=said):
        land(how)
    assert table.last.rows == 0
    into = land(replace(how, rejected_percent_max=75))
    assert (into.failed, into.rejected, table.last.rows) == (None, 3, 4)


def test_a_run_without_a_configuration_replaces_no_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    TableWriter(tmp_path / "lake").begin()
    asked = ["--bootstrap", "127.0.0.1:1", "--topics", "t", "--path", str(tmp_path / "lake")]
    assert ingest.main(asked) == 2
    assert "is a table of a pipeline, which this would replace" in capsys.readouterr().err
    assert (tmp_path / "lake" / "_imago").is_dir()
