"""A table in a bucket: each commit once, one run at a time, whoever optimizes beside."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from imago_client.message_queue import MessageQueue
from imago_spark.errors import FencedError, OptionError, TableError
from imago_spark.pipelines.tables import delta
from imago_spark.pipelines.tables.bucket import LakeBucket
from imago_spark.pipelines.tables.commits import DataFile, Landed, StagedBatch
from imago_spark.pipelines.tables.object_table import ObjectTable
from imago_spark.schema import CHECKED, CORE, arrow_schema
from imago_testing.processes.object_server import running_object_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.processes

QUEUE = MessageQueue("orders", "shard-0", 1)
DAY = "date=2026-11-21"
LAKE = "lake"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeBucket]:
    with running_object_server(tmp_path_factory.mktemp("objects"), LAKE) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A table of this test alone."""
    return Path(LAKE, tmp_path.name)


def begun(place: Path, bucket: LakeBucket, epoch: int = 0) -> ObjectTable:
    made = ObjectTable(place, bucket, epoch=epoch)
    made.begin()
    return made


def staged(into: ObjectTable, bucket: LakeBucket, start: int, end: int) -> StagedBatch:
    """Write a file with these offsets, as a task would."""
    schema = arrow_schema((*CORE, CHECKED))
    rows = [{"offset": at, "topic": QUEUE.topic, CHECKED: True} for at in range(start, end)]
    file, files = into.stage() / DAY / f"{start}-{end}.parquet", bucket.files()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), str(file), filesystem=files)
    name = file.relative_to(into.path.parent).as_posix()
    size = files.get_file_info(str(file)).size
    return StagedBatch(
        "q", start, (DataFile(name, "", end - start, size),), (Landed(QUEUE, start, end),)
    )


def log_of(place: Path, bucket: LakeBucket) -> DeltaTable:
    return DeltaTable(f"s3://{place}", storage_options=bucket.delta_options())


def offsets(place: Path, bucket: LakeBucket) -> list[int]:
    """Return the rows that a reader of Delta finds."""
    found = log_of(place, bucket).to_pyarrow_table(columns=["offset"]).column(0)
    return sorted(found.to_pylist())


def test_each_run_goes_on_where_the_one_before_has_ended(place: Path, bucket: LakeBucket) -> None:
    first = begun(place, bucket)
    first.commit(staged(first, bucket, 0, 3))
    staged(first, bucket, 3, 5)  # of a run that dies here
    second = begun(place, bucket)
    assert (second.last.ends, second.last.rows) == ({QUEUE: 3}, 3)
    assert offsets(place, bucket) == [0, 1, 2]
    second.commit(staged(second, bucket, 3, 7))
    assert offsets(place, bucket) == [0, 1, 2, 3, 4, 5, 6]
    assert log_of(place, bucket).transaction_version("imago") == second.last.number == 3
    with pytest.raises(TableError, match=r"offsets 3 to 6 are in the table already"):
        second.commit(staged(second, bucket, 3, 9))


def test_an_earlier_run_commits_nothing_more(place: Path, bucket: LakeBucket) -> None:
    first = begun(place, bucket)
    first.commit(staged(first, bucket, 0, 3))
    second = begun(place, bucket)
    with pytest.raises(FencedError, match="another run has begun"):
        first.commit(staged(first, bucket, 3, 5))
    second.commit(staged(second, bucket, 3, 4))
    assert offsets(place, bucket) == [0, 1, 2, 3]
    begun(place, bucket, epoch=4)
    with pytest.raises(FencedError, match="a run of epoch 4 has begun, ours is 3"):
        begun(place, bucket, epoch=3)


def test_of_two_runs_that_have_both_looked_one_commits(
    place: Path, bucket: LakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store itself decides: neither has seen the other's commit."""
    first = begun(place, bucket)
    other = ObjectTable(place, bucket)
    looks = ObjectTable.read_last

    def overtaken(self: ObjectTable) -> Any:
        found = looks(self)
        if self is first:
            monkeypatch.setattr(ObjectTable, "read_last", looks)
            other.begin()
        return found

    batch = staged(first, bucket, 0, 3)
    monkeypatch.setattr(ObjectTable, "read_last", overtaken)
    with pytest.raises(FencedError, match="another run has begun"):
        first.commit(batch)
    assert offsets(place, bucket) == []
    other.commit(batch)
    assert offsets(place, bucket) == [0, 1, 2]


def test_a_commit_whose_answer_was_lost_is_made(
    place: Path, bucket: LakeBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = begun(place, bucket)
    batch = staged(into, bucket, 0, 3)
    known = delta.library("")

    class Unanswered(known.DeltaTable):  # type: ignore[name-defined, misc]  # a class of deltalake's
        def create_write_transaction(self, *arguments: Any, **more: Any) -> None:
            super().create_write_transaction(*arguments, **more)
            raise known.DeltaError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr("deltalake.DeltaTable", Unanswered)
        into.commit(batch)
    assert (into.last.rows, offsets(place, bucket)) == (3, [0, 1, 2])


def test_deltas_own_tools_may_tidy_up_beside(place: Path, bucket: LakeBucket) -> None:
    into = begun(place, bucket)
    for at in range(0, 6, 2):
        into.commit(staged(into, bucket, at, at + 2))
    staged(into, bucket, 6, 9)  # which nobody commits
    log_of(place, bucket).optimize.compact()
    log = log_of(place, bucket)
    log.vacuum(0, dry_run=False, enforce_retention_duration=False)
    into.commit(staged(into, bucket, 6, 8))
    again = begun(place, bucket)
    assert (again.last.ends, again.last.rows) == ({QUEUE: 8}, 8)
    assert offsets(place, bucket) == list(range(8))


def test_another_delta_table_is_left_alone(place: Path, bucket: LakeBucket) -> None:
    delta.create(f"s3://{place}", [], None, None, bucket.delta_options())
    with pytest.raises(TableError, match="is a Delta table that ingest did not make"):
        begun(place, bucket)


def test_a_file_with_credentials_has_a_profile(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"s3CredentialsFile: .*FileNotFoundError: needs"):
        LakeBucket(credentials_file=tmp_path / "none").files()
    (tmp_path / "half").write_text("[default]\naws_access_key_id = key\n")
    with pytest.raises(OptionError, match=r"KeyError: needs a profile \[default\]"):
        LakeBucket(credentials_file=tmp_path / "half").delta_options()
    (tmp_path / "token").write_text(
        "[default]\naws_access_key_id=a\naws_secret_access_key=b\naws_session_token=c\n"
    )
    found = LakeBucket(region="eu", credentials_file=tmp_path / "token").delta_options()
    assert found == {
        "AWS_REGION": "eu",
        "aws_conditional_put": "etag",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_SESSION_TOKEN": "c",
    }
