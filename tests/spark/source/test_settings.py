"""The configuration file of the ingest application."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from imago_spark.errors import OptionError
from imago_spark.pipelines import application, parse
from imago_spark.pipelines.settings import load
from imago_spark.pipelines.tables.bucket import LakeBucket

LEAST = 'bootstrap = "b:9876"\ntopics = ["orders"]\npath = "/lake"\ncheckpoint = "s3a://b/c"\n'


def written(folder: Path, text: str) -> Path:
    file = folder / "pipeline.toml"
    file.write_text(text)
    return file


def test_the_least_is_a_stream_from_the_beginning(tmp_path: Path) -> None:
    found = load(written(tmp_path, LEAST), None)
    assert (found.topics, str(found.path), found.available_now) == (("orders",), "/lake", False)
    assert found.source_options() == {
        "bootstrap": "b:9876",
        "subscribe": "orders",
        "columns": "core",
    }
    assert not found.from_latest


def test_everything_said_is_heard(tmp_path: Path) -> None:
    text = LEAST + (
        'pipeline = "lake.orders"\ngroupName = "lake"\nstartFrom = "Latest"\n'
        'maxRowsPerTrigger = 500\n[config]\ntrigger = "available-now"\ntriggerSeconds = "3"\n'
        'onDataLoss = "skip"\nsplitBytes = 65536\nprogressSeconds = 1\n'
    )
    found = load(written(tmp_path, text), 7)
    assert (found.group, found.from_latest, found.available_now) == ("lake", True, True)
    assert (found.trigger_s, found.progress_s, found.skips_lost) == (3, 1, True)
    assert found.source_options() == {
        "bootstrap": "b:9876",
        "subscribe": "orders",
        "columns": "core",
        "pipeline": "lake.orders",
        "epoch": "7",
        "maxOffsetsPerTrigger": "500",
        "splitBytes": "65536",
        "onDataLoss": "skip",
    }


IN_BUCKET = (
    'bootstrap = "b:9876"\ntopics = ["orders"]\npath = "s3://lake/a/orders"\n'
    '[config]\nlanding = "ranges"\nformat = "delta"\n'
)


def test_a_bucket_is_said_with_its_service(tmp_path: Path) -> None:
    found = load(written(tmp_path, IN_BUCKET), None)
    assert (str(found.path), found.bucket) == ("lake/a/orders", LakeBucket())
    more = 's3Endpoint = "http://m:9000"\ns3Region = "eu"\ns3CredentialsFile = "/s/f"\n'
    found = load(written(tmp_path, IN_BUCKET + more), None)
    assert found.bucket == LakeBucket(
        endpoint="http://m:9000", region="eu", credentials_file=Path("/s/f")
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (IN_BUCKET.replace('"delta"', '"parquet"'), "path: 's3://lake/a/orders', must be"),
        (IN_BUCKET + 's3Endpoint = "m:9000"\n', "s3Endpoint: 'm:9000', must begin with https"),
        (LEAST + '[config]\ns3Region = "eu"\n', "config.s3Region: the path is no s3://"),
    ],
)
def test_a_bucket_without_what_it_needs_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(OptionError, match=complaint):
        load(written(tmp_path, text), None)


def test_ranges_have_no_checkpoint(tmp_path: Path) -> None:
    text = LEAST.replace('checkpoint = "s3a://b/c"\n', "")
    found = load(written(tmp_path, text + '[config]\nlanding = "ranges"\nformat = "delta"\n'), None)
    assert (found.by_ranges, found.delta, found.checkpoint) == (True, True, "")


def test_an_application_that_needs_rows_refuses_ranges(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = LEAST + '[config]\nlanding = "ranges"\nschema = "id bigint"\n'
    assert parse.main(["--config", str(written(tmp_path, text))]) == application.EXIT_USAGE
    assert 'parse needs rows: "stream"' in caplog.text


@pytest.mark.parametrize(
    ("text", "epoch", "said"),
    [
        ("bootstrap = ", None, "Invalid value"),
        (LEAST.replace("bootstrap", "bootstrp"), None, "did you mean 'bootstrap'"),
        (LEAST.replace('"b:9876"', '""'), None, "bootstrap: must be a text"),
        (LEAST.replace('["orders"]', '"orders"'), None, "topics: must be a list"),
        (LEAST.replace('["orders"]', "[]"), None, "topics: must be a list"),
        (LEAST.replace('"/lake"', '"s3a://lake"'), None, "mounted volume"),
        (LEAST + 'startFrom = "earliest"\n', None, "must be Earliest or Latest"),
        (LEAST + "maxRowsPerTrigger = 0\n", None, "whole number from 1"),
        (LEAST + "maxRowsPerTrigger = true\n", None, "whole number from 1"),
        (LEAST + "config = 1\n", None, "config: must be a table"),
        (LEAST + '[config]\ntriger = "continuous"\n', None, "config.triger is unknown"),
        (LEAST + 'pipeline = "p"\n', None, "give both, or none"),
        (LEAST, 3, "give both, or none"),
        (LEAST + '[config]\nlanding = "rows"\n', None, "must be stream or ranges"),
        (LEAST + '[config]\nformat = "delta"\n', None, 'needs landing = "ranges"'),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, epoch: int | None, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        load(written(tmp_path, text), epoch)
    assert said in str(caught.value)
    assert "pipeline.toml" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"toml: No such file or directory$"):
        load(tmp_path / "none.toml", None)


def test_an_application_without_pyspark_says_what_to_install() -> None:
    lines = [
        "import importlib.util, sys",
        "sys.argv = ['-m']",
        "importlib.util.find_spec = lambda name: None",
        "import imago_spark.pipelines",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    said = "error: PySpark is not installed\n  cure: pip install 'imago-mq[spark]'\n"
    assert done.stderr == said


def test_an_application_finds_the_file_that_the_operator_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = application.parser("parse", "").parse_args([])
    assert (alone.config, alone.epoch) == (None, None)
    monkeypatch.setenv("IMAGO_CONFIG", "/etc/imago/pipeline/pipeline.toml")
    monkeypatch.setenv("IMAGO_EPOCH", "7")
    given = application.parser("parse", "").parse_args([])
    assert (str(given.config), given.epoch) == ("/etc/imago/pipeline/pipeline.toml", 7)


def test_an_applications_own_names_stand_beside_the_common_ones(tmp_path: Path) -> None:
    text = LEAST.replace('path = "/lake"', "") + '[config]\npath = "/here"\nmine = 1\n'
    found = load(written(tmp_path, text), None, ("mine", "other"))
    assert (str(found.path), found.own) == ("/here", {"mine": 1})
    with pytest.raises(OptionError, match=r"config\.mine is unknown"):
        load(written(tmp_path, text), None)
