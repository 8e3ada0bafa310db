"""Signals to `imago up` and to a broker, at whatever moment of their start; what a start says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import SECONDS_MAX, command, up
from imago_testing.searching import seldom

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.processes

PORTS = 20


def logs(data: Path) -> str:
    """Return what all processes of a cluster have logged."""
    return "".join(path.read_text() for path in sorted((data / "logs").glob("*.log")))


def left_behind(data: Path) -> list[int]:
    """Return processes that still have something of this cluster on their command line."""
    return [
        process.info["pid"]
        for process in psutil.process_iter(["pid", "cmdline"])
        if any(str(data) in word for word in process.info["cmdline"] or ())
    ]


@pytest.mark.parametrize(
    "moment",
    [
        "run/zookeeper.pid",
        pytest.param("log.read-again", marks=pytest.mark.full),
        pytest.param("registry_session session", marks=pytest.mark.full),
        "broker_started",
    ],
)
def test_sigterm_stops_a_start_cleanly_at_any_moment(tmp_path: Path, moment: str) -> None:
    data = tmp_path / "data"
    line = command(data, "--port-base", str(free_port_block(PORTS)))
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until(
            lambda: (data / moment).exists() or moment in logs(data),
            seconds_max=SECONDS_MAX,
            what=moment,
            poll=0.01,
        )
        process.terminate()
        _, said = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, said
    for text in (said, logs(data)):
        assert "Traceback" not in text
        assert "process_killed" not in text
    assert not list((data / "run").iterdir())
    assert left_behind(data) == []


@pytest.mark.parametrize(
    "moment",
    [
        "pid",
        pytest.param("log.read-again", marks=pytest.mark.full),
        pytest.param("registry_session session", marks=pytest.mark.full),
    ],
)
def test_sigterm_after_a_broker_was_started_again_stops_cleanly(
    tmp_path: Path, moment: str
) -> None:
    data = tmp_path / "data"
    pid_file, log = data / "run" / "shard-0.pid", data / "logs" / "shard-0.log"
    with up(data, "--port-base", str(free_port_block(PORTS))) as running:
        before, lines = running.ready["brokers"][0]["pid"], log.read_text().count(moment)
        os.kill(before, signal.SIGKILL)
        wait_until(
            lambda: (
                pid_file.exists()
                and pid_file.read_text().strip() not in ("", str(before))
                and (moment == "pid" or log.read_text().count(moment) > lines)
            ),
            seconds_max=SECONDS_MAX,
            what=f"another broker: {moment}",
            poll=0.01,
        )
        assert running.stop() == 0
    for text in (running.log(), logs(data)):
        assert "Traceback" not in text
        assert "process_killed" not in text
    assert left_behind(data) == []


def broker(tmp_path: Path, *settings: str) -> list[str]:
    """Write a configuration; return the command of a broker that has it."""
    config = tmp_path / "broker.toml"
    config.write_text(
        f"[broker]\nbind = '127.0.0.1'\ndata_dir = '{tmp_path}/data'\n"
        "[metaq]\nport = 0\n[rocketmq]\nport = 0\n[namesrv]\nport = 0\n[admin]\nport = 0\n"
        + "".join(f"{line}\n" for line in settings)
    )
    return [sys.executable, "-m", "imago_cli", "broker", "--config", str(config)]


@pytest.mark.parametrize("name", ["broker", "namesrv"])
def test_server_that_waits_for_zookeeper_can_be_stopped(tmp_path: Path, name: str) -> None:
    address = f"127.0.0.1:{free_port_block(1)}"
    line = broker(tmp_path, "[zookeeper]", f"connect = '{address}'", "connect_timeout_ms = 600000")
    line[3] = name
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        while "unreachable: " not in said:
            said = process.stderr.readline()
            assert said, "it ended"
        process.terminate()
        _, rest = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    assert "unreachable: " not in rest, "said once"
    assert "Traceback" not in rest


def test_broker_serves_on_though_nobody_hears_that_it_does(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    line = [*broker(tmp_path), "--ready-fd", str(write_end)]
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True, pass_fds=[write_end]) as process:
        os.close(write_end)
        assert process.stderr is not None
        said = ""
        while "broker_started" not in said:
            said = process.stderr.readline()
            assert said, "it ended"
        process.terminate()
        _, rest = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    assert "broker_stopped clean=True" in rest
    assert "Traceback" not in rest


@pytest.mark.full
def test_first_start_says_nothing_twice_and_nothing_of_java(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--port-base", str(free_port_block(PORTS))) as running:
        assert running.stop() == 0
        said = running.log()
    assert "xception" not in said
    assert "\tat " not in said
    times = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ")
    lines = [times.sub("", line) for line in said.splitlines()]
    assert sorted(lines) == sorted(set(lines))
    assert any(line.startswith("shard-0: ") for line in lines), "each says whose it is"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of commands for one cluster; the tests take topics of their own."""
    data = tmp_path_factory.mktemp("cluster") / "data"
    base = free_port_block(PORTS)
    with up(data, "--zookeeper", "none", "--port-base", str(base)) as running:
        metaq = running.ready["brokers"][0]["metaq"]
        yield os.environ | {"IMAGO_BOOTSTRAP": running.ready["namesrv"], "IMAGO_METAQ": metaq}
        assert running.stop() == 0


IMAGO = [sys.executable, "-m", "imago_cli"]


@pytest.mark.parametrize("protocol", seldom(["rocketmq", "metaq"]))
def test_producer_sends_each_line_at_once_and_can_be_interrupted(
    environment: dict[str, str], protocol: str
) -> None:
    topic = f"lines-of-{protocol}"
    subprocess.run([*IMAGO, "topic", "create", topic], env=environment, check=True)
    with subprocess.Popen(
        [*IMAGO, "produce", topic, "--protocol", protocol],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        read = subprocess.run(
            [*IMAGO, "consume", topic, "--group", topic, "--count", "1"],
            env=environment, capture_output=True, timeout=SECONDS_MAX, check=True,
        )  # fmt: skip
        assert read.stdout == b"one\n", "stored though no other line has come"
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS_MAX)
        assert process.stderr is not None
        said = process.stderr.read().decode()
    assert process.returncode == 130
    assert said.startswith("1 sent, 3 bytes")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "words", seldom([["--follow"], ["--group", "g"]]), ids=["one that follows", "one of a group"]
)
def test_interrupted_consumer_says_so_by_its_exit_code(
    environment: dict[str, str], words: list[str]
) -> None:
    topic = f"read-by-{words[0].strip('-')}"
    subprocess.run([*IMAGO, "produce", topic, "one", "--create"], env=environment, check=True)
    with subprocess.Popen(
        [*IMAGO, "consume", topic, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, said) == (130, "")
