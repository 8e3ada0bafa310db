"""How often a run starts its stream, and what it does not start it again for; without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from imago_spark.pipelines import late_workers, streaming

LATE = f"[STREAM_FAILED] Query [id = 1] terminated: {late_workers.WORKER_LATE}. SQLSTATE: XXKST"


class Spark:
    """Plays the stream: each start ends as the next of `ends` says, or is done."""

    def __init__(self, *ends: PySparkException) -> None:
        self.ends = list(ends)
        self.starts = 0
        self.table = SimpleNamespace(last=None)
        self.writes = False

    def start(self, *_: object) -> Any:
        self.starts += 1
        if self.writes:
            self.table.last = self.starts
        if self.ends and not isinstance(self.ends[0], StreamingQueryException):
            raise self.ends.pop(0)
        return SimpleNamespace(awaitTermination=self._ended, stop=lambda: None)

    def _ended(self, _: float) -> bool:
        if self.ends:
            raise self.ends.pop(0)
        return True


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> streaming.StopSignal:
    monkeypatch.setattr(late_workers, "STARTS_MAX", 3)
    monkeypatch.setattr(streaming, "Reports", lambda _: SimpleNamespace(tell=lambda _: None))
    return streaming.StopSignal()


def run(spark: Spark, stop: streaming.StopSignal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "start", spark.start)
    landing: Any = SimpleNamespace(table=spark.table, busy=False, failed=None)
    settings: Any = SimpleNamespace(progress_s=0, pipeline="p")
    streaming.land(None, settings, landing, stop)  # type: ignore[arg-type]


def test_a_late_python_starts_the_stream_again(
    stop: streaming.StopSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(PySparkException(LATE), StreamingQueryException(LATE))
    run(spark, stop, monkeypatch)
    assert spark.starts == 3


def test_a_python_that_is_late_each_time_ends_the_run(
    stop: streaming.StopSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(*[StreamingQueryException(LATE)] * 3)
    with pytest.raises(StreamingQueryException, match=late_workers.WORKER_LATE):
        run(spark, stop, monkeypatch)
    assert spark.starts == 3


def test_only_late_starts_in_a_row_end_the_run(
    stop: streaming.StopSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(*[StreamingQueryException(LATE)] * 8)
    spark.writes = True
    run(spark, stop, monkeypatch)
    assert spark.starts == 9


def test_other_failures_end_the_run_at_once(
    stop: streaming.StopSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(StreamingQueryException("the disk is full"))
    with pytest.raises(StreamingQueryException, match="disk is full"):
        run(spark, stop, monkeypatch)
    assert spark.starts == 1


def test_a_run_that_stops_starts_nothing_again(
    stop: streaming.StopSignal, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Spark(PySparkException(LATE))
    stop.asked = True
    with pytest.raises(PySparkException):
        run(spark, stop, monkeypatch)
    assert spark.starts == 1
