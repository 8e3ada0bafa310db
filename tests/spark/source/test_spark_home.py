"""Where Spark's own files are told to be: a folder of links, which only a session's start sees."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from imago_spark.pipelines.spark_home import compiled_pyspark


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_a_home_has_all_but_the_archives_and_is_the_same_each_time(tmp_path: Path) -> None:
    homes = []
    for _ in range(2):
        with compiled_pyspark(cache=tmp_path):
            homes.append(Path(os.environ["SPARK_HOME"]))
        assert "SPARK_HOME" not in os.environ
    assert homes[0] == homes[1]
    assert (homes[0] / "bin" / "spark-submit").is_file()
    assert any((homes[0] / "jars").glob("spark-core_*.jar"))
    assert not (homes[0] / "python").exists()


def test_a_home_that_somebody_has_set_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with compiled_pyspark(cache=tmp_path):
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert not list(tmp_path.iterdir())


def test_nothing_changes_where_pyspark_is_no_package_of_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: "/elsewhere")
    with compiled_pyspark(cache=tmp_path):
        assert "SPARK_HOME" not in os.environ


def test_nothing_changes_where_no_folder_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "imago").write_text("a file")
    with compiled_pyspark(cache=tmp_path):
        assert "SPARK_HOME" not in os.environ
