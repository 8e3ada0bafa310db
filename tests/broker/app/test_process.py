"""A broker as a process: ready, signals, exit codes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.app.process import warn_of_plain_twins
from imago_testing.processes.ports import free_port_block
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import sys
from pathlib import Path
from imago_broker.app import main
from imago_broker.config import load

def read():
    return load(Path(sys.argv[1]).read_text())

def ready(broker):
    print("ready", broker.metaq_port, sys.getswitchinterval(), flush=True)

sys.exit(main(read(), on_ready=ready, reread=read))
"""

pytestmark = pytest.mark.processes


class Process:
    """A broker process whose configuration file the test writes."""

    def __init__(self, folder: Path, admin: str = "") -> None:
        """`admin`: more that is said in the section of that name."""
        self.folder, self.admin = folder, admin
        self.file = folder / "broker.toml"
        self.port_base = free_port_block(5)
        self.write("")
        self.popen = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self.file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, more: str) -> None:
        """Write the configuration."""
        base = self.port_base
        self.file.write_text(
            f"""
            broker = {{ data_dir = "{self.folder}/data", bind = "127.0.0.1", host = "127.0.0.1" }}
            rocketmq = {{ port = {base + 2}, grpc_port = 0 }}
            namesrv = {{ port = {base + 3} }}
            admin = {{ port = {base + 4}{self.admin and ", "}{self.admin} }}
            {more}
            [metaq]
            port = {base + 1}
            [store]
            segment_bytes_max = 16777216
            disk_clean_ratio = 1.0
            disk_force_ratio = 1.0
            disk_full_ratio = 1.0
            """
        )

    def line(self) -> str:
        """Wait for the next line of standard output."""
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()

    def log_until(self, word: str) -> str:
        """Wait for the log line that holds a word."""
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            if word in line:
                return line
        raise AssertionError(f"the log ended without {word}")

    def end(self) -> int:
        """Wait for the exit code."""
        self.popen.communicate()
        return self.popen.returncode


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    made.popen.kill()
    made.popen.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_in_order(process: Process, number: signal.Signals) -> None:
    assert process.line().startswith(f"ready {process.port_base + 1} ")
    process.popen.send_signal(number)
    assert process.end() == 0
    assert not (process.folder / "data" / "abort").exists()


def test_other_threads_cannot_keep_the_interpreter_for_long(process: Process) -> None:
    """A request that comes while the store's worker computes waits for that long."""
    assert float(process.line().split()[2]) <= 0.001


def test_second_broker_on_the_folder_ends_with_its_own_code(process: Process) -> None:
    assert process.line().startswith("ready")
    second = process.folder / "second.toml"
    text = process.file.read_text()
    other = free_port_block(5)
    for offset in range(1, 5):
        text = text.replace(str(process.port_base + offset), str(other + offset))
    second.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(second)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "locked by another process" in done.stderr
    assert "Traceback" not in done.stderr


def test_busy_port_is_one_sentence_and_code_two(process: Process) -> None:
    assert process.line().startswith("ready")
    second = process.folder / "second.toml"
    second.write_text(process.file.read_text().replace("/data", "/other"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(second)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "the port is in use by another process, or by an outgoing connection" in done.stderr
    assert "below 32768" in done.stderr
    assert "Traceback" not in done.stderr


def test_hangup_rereads_the_configuration(process: Process) -> None:
    assert process.line().startswith("ready")
    process.write("[topics.fresh]\nqueues = 3\n[log]\nlevel = 'debug'\nformat = 'json'\n")
    os.kill(process.popen.pid, signal.SIGHUP)
    line = process.log_until("config_reloaded")
    assert "topics=fresh" in line
    assert "applied=log.level" in line
    assert "needs_restart=log.format" in line
    process.write("[topics.fresh]\nqueus = 3\n")
    os.kill(process.popen.pid, signal.SIGHUP)
    assert "did you mean queues" in process.log_until("config_not_reloaded")
    process.popen.send_signal(signal.SIGTERM)
    assert process.end() == 0


def test_a_broker_says_at_its_start_what_is_not_compiled(caplog: pytest.LogCaptureFixture) -> None:
    warn_of_plain_twins([])
    assert not caplog.records
    warn_of_plain_twins(["imago_wire.records._scan_c", "imago_wire.text._text_c.scan_text"])
    assert "names=imago_wire.records._scan_c,imago_wire.text._text_c.scan_text" in caplog.text


def call(broker: Process, method: str, path: str, body: str = "{}") -> tuple[int, dict[str, Any]]:
    """Ask the admin port of a process."""
    url = f"http://127.0.0.1:{broker.port_base + 4}{path}"
    headers = {"Authorization": "Bearer let me in", "Content-Type": "application/json"}
    data = body.encode() if method != "GET" else None
    asked = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=50) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.loads(refused.read())


def fenced(broker: Process) -> bool:
    """Whether who answers there is a member that is fenced."""
    try:
        return "fenced" in call(broker, "GET", "/admin/v1/status")[1]
    except OSError:
        return False  # the broker has ended, and the next one has not begun


class TestFence:
    @pytest.fixture
    def guarded(self, tmp_path: Path) -> Iterator[Process]:
        folder = tmp_path
        (folder / "token").write_text("let me in")
        found = Process(folder, f'token_file = "{folder}/token"')
        yield found
        found.popen.kill()
        found.popen.communicate()

    def test_a_fenced_member_keeps_its_log_and_serves_nobody(self, guarded: Process) -> None:
        assert guarded.line().startswith("ready ")
        code, said = call(guarded, "POST", "/admin/v1/fence", '{"why": "its disk clicks"}')
        assert (code, said["error"]) == (409, "not_fenced"), "nobody else has its messages"
        assert "singleReplica" in said["message"]
        body = '{"why": "its disk clicks", "anyway": true}'
        assert call(guarded, "POST", "/admin/v1/fence", body)[0] == 200
        wait_until(lambda: fenced(guarded), what="the fence")
        _, status = call(guarded, "GET", "/admin/v1/status")
        assert (status["role"], status["fenced"]["why"]) == ("fenced", "its disk clicks")
        assert (status["puts"]["accepted"], status["gets"]["accepted"]) == (False, False)
        assert call(guarded, "GET", "/healthz")[0] == 200, "nobody is to start it again"
        assert call(guarded, "GET", "/readyz")[0] == 503
        assert call(guarded, "GET", "/admin/v1/topics")[1]["error"] == "fenced"
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", guarded.port_base + 2)).close()
        assert call(guarded, "DELETE", "/admin/v1/fence")[0] == 200
        assert guarded.line().startswith("ready "), "it serves again, in the same process"
        assert call(guarded, "GET", "/admin/v1/status")[1]["role"] == "master"
        guarded.popen.terminate()
        assert guarded.end() == 0

    def test_a_fence_outlives_the_process(self, guarded: Process) -> None:
        folder = guarded.folder
        assert guarded.line().startswith("ready ")
        call(guarded, "POST", "/admin/v1/fence", '{"anyway": true}')
        wait_until(lambda: fenced(guarded), what="the fence")
        guarded.popen.kill()
        guarded.end()
        again = Process(folder, f'token_file = "{folder}/token"')
        wait_until(lambda: fenced(again), what="the fence")
        again.popen.terminate()
        assert again.end() == 0

    def test_a_mark_that_cannot_be_read_counts(self, guarded: Process) -> None:
        folder = guarded.folder
        assert guarded.line().startswith("ready ")
        guarded.popen.terminate()
        assert guarded.end() == 0
        (folder / "data" / "fenced").write_text("torn")
        again = Process(folder, f'token_file = "{folder}/token"')
        wait_until(lambda: fenced(again), what="the fence")
        assert "cannot be read" in call(again, "GET", "/readyz")[1]["reasons"][0]
        again.popen.kill()
        again.end()

    def test_nobody_lifts_it_without_the_token(self, guarded: Process) -> None:
        folder = guarded.folder
        assert guarded.line().startswith("ready ")
        call(guarded, "POST", "/admin/v1/fence", '{"anyway": true}')
        wait_until(lambda: fenced(guarded), what="the fence")
        (folder / "token").write_text("another")
        assert call(guarded, "DELETE", "/admin/v1/fence")[0] == 401
        assert call(guarded, "GET", "/admin/v1/status")[0] == 401
        assert (folder / "data" / "fenced").exists()
