"""`imago demo` where a part of it fails or does not come: the cause and the cure are named."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import psutil
import pytest

from imago_cli.connect import client_errors
from imago_cli.demo import processes, traffic
from imago_cli.demo.processes import SparkApplication, start_cluster
from imago_cli.demo.records import DemoRecord
from imago_cli.exits import CommandError
from imago_cli.main import run

if TYPE_CHECKING:
    from pathlib import Path

SOON = 0.2
RECORDS = [DemoRecord(number, "kind", "key", b"body") for number in range(3)]


def program(folder: Path, *lines: str) -> str:
    """Make a program that does these, and return its path."""
    path = folder / "program"
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(0o755)
    return str(path)


async def test_a_cluster_that_refuses_to_start_says_its_own_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "echo error: there is no ZooKeeper here >&2",
        "echo '  cure: install one' >&2",
        "exit 2",
    )
    monkeypatch.setattr(sys, "executable", program(tmp_path, *said))
    with pytest.raises(CommandError, match=r"^the cluster did not start: there is no") as refused:
        await start_cluster(tmp_path / "data", tmp_path / "cluster.log", replicas=1)
    assert refused.value.cure == "install one"


async def test_a_cluster_that_does_not_come_is_stopped_and_its_logs_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, "exec sleep 600"))
    monkeypatch.setattr(processes, "START_SECONDS_MAX", SOON)
    log = tmp_path / "cluster.log"
    with pytest.raises(CommandError) as ended:
        await start_cluster(tmp_path / "data", log, replicas=1)
    assert ended.value.message == "the cluster does not serve within 0.2 s: it said nothing"
    assert f"see {log}, and the logs in {tmp_path}/data/logs" in ended.value.cure
    alive = [each.name() for each in psutil.Process().children(recursive=True)]
    assert "sleep" not in alive
    assert "program" not in alive


async def test_a_spark_that_does_not_end_is_stopped_and_its_last_error_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SPARK_SECONDS_MAX", SOON)
    log = tmp_path / "spark.log"
    log.write_text("java.lang.OutOfMemoryError: heap\nand more\n")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        program(tmp_path, "echo READY", "exec sleep 600"), stdin=pipe, stdout=pipe
    )
    with pytest.raises(CommandError) as ended:
        await SparkApplication(process, log).land()
    assert "Spark has not landed the topic within 0.2 s" in ended.value.message
    assert "OutOfMemoryError" in ended.value.message
    assert f"see {log}" in ended.value.cure
    assert process.returncode is not None


@pytest.mark.parametrize("send", [traffic.send_by_metaq, traffic.send_by_rocketmq])
async def test_what_stops_a_send_is_told_in_the_clients_words(send: object) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        nowhere = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(CommandError, match=nowhere), client_errors():
        await send(nowhere, RECORDS)  # type: ignore[operator]


def test_an_error_that_says_nothing_is_told_with_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def command() -> None:
        raise TimeoutError

    with pytest.raises(SystemExit) as ended:
        run(command)
    assert ended.value.code == 1
    assert "error: TimeoutError: in run, main.py:" in capsys.readouterr().err
