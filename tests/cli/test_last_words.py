"""A broker that does not start says why in the file that it was told of, as in a pod."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from imago_cli import last_words
from imago_cli.exits import CommandError
from imago_cli.servers.broker_process import serve

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(name="log")
def _log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "termination-log"
    found.touch()
    monkeypatch.setenv(last_words.VARIABLE, str(found))
    return found


def test_a_wrong_setting_is_left_there(tmp_path: Path, log: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("[store]\ndisk_full_ratio = 7.0\n")
    with pytest.raises(CommandError):
        serve(file, -1)
    assert "store.disk_full_ratio: 7.0" in log.read_text()


def test_what_nobody_has_foreseen_is_left_there(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mistaken(_: Path) -> None:
        raise KeyError("key")

    monkeypatch.setattr("imago_cli.servers.broker_process.read_config", mistaken)
    with pytest.raises(KeyError):
        serve(tmp_path / "broker.toml", -1)
    assert log.read_text() == "KeyError: 'key'"


@pytest.mark.processes
def test_a_busy_port_is_left_there(tmp_path: Path, log: Path) -> None:
    file = tmp_path / "broker.toml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        off = "".join(f"[{part}]\nenabled = false\n" for part in ("rocketmq", "namesrv", "admin"))
        data = f'[broker]\ndata_dir = "{tmp_path / "data"}"\n'
        file.write_text(f"{data}[metaq]\nport = {port}\n{off}")
        words = [sys.executable, "-m", "imago_cli", "broker", "--config", str(file)]
        done = subprocess.run(
            words, check=False, env=dict(os.environ), capture_output=True, timeout=60
        )
    assert done.returncode == 2
    assert str(port) in log.read_text()


def test_it_is_bounded_and_never_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv(last_words.VARIABLE, str(log))
    monkeypatch.setattr(last_words, "SIZE_MAX", 5)
    last_words.leave("123456")
    assert log.read_text() == "12345"
    monkeypatch.setenv(last_words.VARIABLE, str(tmp_path / "no" / "folder"))
    last_words.leave("it is not written")
    monkeypatch.delenv(last_words.VARIABLE)
    last_words.leave("nobody asked")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log"]
