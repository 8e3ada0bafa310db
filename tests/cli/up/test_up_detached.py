"""`imago up --detach` and `imago down`: a cluster in the background, and its end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from imago_cli.up import state
from imago_cli.up.log_relay import LogRelay
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until
from imago_testing.processes.up import SECONDS_MAX, command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.processes


def imago(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def down(data: Path, *options: object) -> subprocess.CompletedProcess[str]:
    return imago(sys.executable, "-m", "imago_cli", "down", "--data", data, *options)


def test_it_goes_on_behind_the_command_until_it_is_taken_down(tmp_path: Path) -> None:
    data = tmp_path / "data"
    up = [*command(data, "--port-base", str(free_port_block(20))), "--zookeeper", "none"]
    started = imago(*up, "--detach")
    assert started.returncode == 0, started.stderr
    [broker] = json.loads(started.stdout)["brokers"]
    assert state.runner(data) is not None
    again = imago(*up, "--detach")
    assert again.returncode == 2
    assert f"imago down --data {data}" in again.stderr
    stopped = down(data)
    assert stopped.returncode == 0, stopped.stderr
    assert state.runner(data) is None
    with pytest.raises(ProcessLookupError):
        os.kill(broker["pid"], 0)
    assert "no cluster runs" in down(data).stdout


def test_a_start_that_fails_says_so_itself(tmp_path: Path) -> None:
    data, ports = tmp_path / "data", free_port_block(20)
    with socket.create_server(("127.0.0.1", ports)):
        up = command(data, "--port-base", str(ports), "--detach")
        refused = imago(*up)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: port {ports}, for the name service")
    assert "cure: " in refused.stderr


def test_a_folder_that_is_not_there_is_none_of_a_cluster(tmp_path: Path) -> None:
    refused = down(tmp_path / "data")
    assert refused.returncode == 2
    assert "there is no such folder" in refused.stderr


def test_one_that_does_not_end_in_time_is_said(tmp_path: Path) -> None:
    holder = "import sys, time; from pathlib import Path; from imago_cli.up.state import locked\n"
    holder += "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    holder += "with locked(Path(sys.argv[1])): time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path)]) as process:
        try:
            wait_until(lambda: state.runner(tmp_path) == process.pid, what="the lock")
            late = down(tmp_path, "--timeout", 0)
        finally:
            process.kill()
    assert late.returncode == 1
    assert f"process {process.pid} has not ended within 0 s" in late.stderr


def test_what_the_background_process_itself_says_is_kept_small(tmp_path: Path) -> None:
    child, own = tmp_path / "child.log", tmp_path / "up.log"
    child.write_text("of a child\n")
    own.write_text("12345678\n")
    relay = LogRelay([child], [own], bytes_max=8)
    relay.start()
    relay.stop()
    assert own.read_text() == ""
    assert own.with_name("up.log.1").read_text() == "12345678\n"
