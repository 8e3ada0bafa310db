"""A broker as a process: ready, signals, exit codes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from imago_broker.app.process import warn_of_plain_twins
from imago_testing.processes.ports import free_port_block

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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
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
            admin = {{ port = {base + 4} }}
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
