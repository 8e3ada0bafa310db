"""`make bench`: what a run writes, and what it leaves as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest
from bench import harness, run

if TYPE_CHECKING:
    from pathlib import Path

PUT, SEND = "MetaQ put, 1 × 64", "RocketMQ send, 64 × 1"


def row(name: str, rate: int) -> dict[str, Any]:
    figures = dict.fromkeys(("bytes_per_second", "server_cpu_us", "others"), 1)
    return {"name": name, "rate": rate, "p50_us": 1, "p99_us": 1, "p999_us": 1} | figures


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of results, with two rows of an earlier commit."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    monkeypatch.setattr(harness, "build_native", lambda: None)
    at = tmp_path / "broker.json"
    rows = [row(PUT, 1), row(SEND, 2), row("a workload that is no more", 3)]
    at.write_bytes(orjson.dumps({"machine": {"commit": "earlier"}, "rows": rows}))
    return at


def rates(written: Path) -> dict[str, int]:
    return {each["name"]: each["rate"] for each in orjson.loads(written.read_bytes())["rows"]}


def test_partial_run_leaves_the_other_rows(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "measure", lambda workload, **_: row(workload.name, 9))
    assert run.main(["--only", SEND]) == 0
    assert rates(written) == {PUT: 1, SEND: 9}
    rows = orjson.loads(written.read_bytes())["rows"]
    assert {each["name"]: each.get("commit") for each in rows} == {PUT: "earlier", SEND: None}


def test_row_measured_again_gives_its_commit_up(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "measure", lambda workload, **_: row(workload.name, 9))
    assert run.main(["--only", SEND]) == run.main(["--only", PUT]) == 0
    rows = orjson.loads(written.read_bytes())["rows"]
    assert {each["name"]: each.get("commit") for each in rows} == {PUT: None, SEND: None}


def test_failed_run_leaves_the_file_and_says_so(
    written: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise harness.BenchError("`imago up` did not start (exit 1)")

    monkeypatch.setattr(harness, "broker", broken)
    before = written.read_bytes()
    assert run.main(["--only", PUT]) == 1
    assert written.read_bytes() == before
    assert "did not start (exit 1)" in capsys.readouterr().out


def test_one_failed_row_keeps_what_was_measured_before(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(workload: Any, **_: object) -> dict[str, Any]:
        if workload.name == PUT:
            raise harness.BenchError("the broker did not start")
        return row(workload.name, 9)

    monkeypatch.setattr(run, "measure", measure)
    assert run.main([]) == 1
    assert rates(written)[PUT] == 1
    assert rates(written)[SEND] == 9


def test_text_that_no_name_holds_is_an_error(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = written.read_bytes()
    assert run.main(["--only", "no such workload"]) == 1
    assert written.read_bytes() == before
    assert SEND in capsys.readouterr().out
