"""What a user reads last of a stream that cannot begin: PySpark's own worker, without a JVM."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import serializers
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import LongType, StructType

from imago_spark.schema import DEFAULT, arrow_schema
from imago_spark.source import ImagoDataSource

if TYPE_CHECKING:
    from pathlib import Path

WIRE: Any = serializers  # it has no types
OPTIONS = {"bootstrap": "127.0.0.1:1", "subscribe": "orders"}
OURS = from_arrow_schema(arrow_schema(DEFAULT))
FIXED = "the schema of this source is fixed"
CALLS = (
    runner.INITIAL_OFFSET_FUNC_ID,
    runner.GET_DEFAULT_READ_LIMIT_FUNC_ID,
    runner.PREPARE_FOR_TRIGGER_AVAILABLE_NOW_FUNC_ID,
    runner.REPORT_LATEST_OFFSET_FUNC_ID,
)


def last_line(folder: Path, source: ImagoDataSource, schema: StructType, call: int) -> str:
    """Play the JVM to PySpark's worker: make the reader, ask what it can, then call it."""
    told, heard = io.BytesIO(), io.BytesIO()

    def tell(text: str) -> None:
        WIRE.write_int(len(text.encode()), told)
        told.write(text.encode())

    tell(f"{sys.version_info.major}.{sys.version_info.minor}")
    tell(str(folder))
    WIRE.write_int(0, told)  # no further Python files
    WIRE.CPickleSerializer()._write_with_length(source, told)
    tell(schema.json())
    WIRE.write_int(100, told)
    WIRE.write_int(runner.CHECK_SUPPORTED_FEATURES_ID, told)
    WIRE.write_int(call, told)
    told.seek(0)
    with pytest.raises(SystemExit):
        runner.main(told, heard)
    heard.seek(0)
    assert WIRE.read_int(heard) == 0, heard.getvalue().decode(errors="replace")
    assert WIRE.read_int(heard) == runner.SUPPORTS_ADMISSION_CONTROL | (
        runner.SUPPORTS_TRIGGER_AVAILABLE_NOW
    )
    assert WIRE.read_int(heard) == -2
    text = WIRE.UTF8Deserializer().loads(heard)
    assert isinstance(text, str)
    return text.strip().splitlines()[-1]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"endingOffsets": "latest"}, "a stream has no end; remove it, or read a batch"),
        ({"endingOfsets": "latest"}, "did you mean"),
        ({"bootstrap": "x"}, "is not host:port"),
    ],
)
def test_our_sentence_is_the_last(
    tmp_path: Path, wrong: dict[str, str], said: str, call: int
) -> None:
    line = last_line(tmp_path, ImagoDataSource(OPTIONS | wrong), OURS, call)
    assert said in line
    assert line.startswith("imago_spark.errors.OptionError: ")


def test_a_schema_that_is_not_ours_is_told_last(tmp_path: Path) -> None:
    schema = StructType().add("value", LongType())
    line = last_line(tmp_path, ImagoDataSource(OPTIONS), schema, runner.INITIAL_OFFSET_FUNC_ID)
    assert FIXED in line


def test_a_defect_of_ours_is_told_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("imago_spark.broker.TopicBrokers", lambda _: 1 // 0)
    line = last_line(tmp_path, ImagoDataSource(OPTIONS), OURS, runner.INITIAL_OFFSET_FUNC_ID)
    assert line.startswith("ZeroDivisionError")
