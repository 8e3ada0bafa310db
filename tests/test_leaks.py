"""Secrets that processes of tests write down are found, wherever that is."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from imago_testing import leaks
from imago_testing.processes.servers import ServerProcess, wait_until

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = b"password-of-ann"
TOKEN = b"token-of-the-administrator"
FORMER = b"former-key-of-bob"
KEY_LINE = b"MHcCAQEEIO" + b"A" * 54
FOLDERS = ("data/shard-0/commitlog", "data/shard-0/consumequeue/T/0", "data/zookeeper/version-2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for each in FOLDERS:
        (tmp_path / each).mkdir(parents=True)
    log = tmp_path / FOLDERS[0] / "00000000000000000000"
    with log.open("wb") as file:
        file.seek(64 << 20)  # files of logs have holes
        file.write(b'x{"secret":"%s","former":["%s",5]}' % (PASSWORD, FORMER))
    (tmp_path / "data/admin-token").write_bytes(TOKEN + b"\n")
    (tmp_path / "ann.password").write_bytes(PASSWORD)
    pem = b"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n"
    (tmp_path / "tls.key").write_bytes(pem % KEY_LINE)
    (tmp_path / "broker.log").write_bytes(b"user_changed user=ann by=admin password=set\n")
    return tmp_path


def test_secrets_are_found_where_they_are_kept(folder: Path) -> None:
    assert set(leaks.secrets_in([folder]).values()) == {PASSWORD, FORMER, TOKEN, KEY_LINE}
    assert leaks.leaks([folder], {"a command line": b"imago up --data x"}) == []


@pytest.mark.parametrize("secret", [PASSWORD, FORMER, TOKEN, KEY_LINE])
@pytest.mark.parametrize(
    "place",
    ["broker.log", "data/zookeeper/version-2/log.1", "data/state.json", "data/shard-0/up.json"],
)
def test_a_secret_in_a_file_is_found(folder: Path, place: str, secret: bytes) -> None:
    with (folder / place).open("ab") as file:
        file.write(b"x" * leaks.CHUNK + b" user=ann password=" + secret + b"\n")
    (found,) = leaks.leaks([folder])
    assert found.startswith(f"{folder / place} shows what only ")


def test_a_secret_that_two_pieces_share_is_found(folder: Path) -> None:
    with (folder / "broker.log").open("wb") as file:
        file.write(b"x" * (leaks.CHUNK - 5) + TOKEN)
    assert len(leaks.leaks([folder])) == 1


def test_a_secret_that_is_shown_is_found(folder: Path) -> None:
    (found,) = leaks.leaks([folder], {"the dump": b"body: " + FORMER})
    assert found.startswith("the dump shows what only ")


def test_command_lines_are_seen() -> None:
    subprocess.run([sys.executable, "-c", "pass", "--password", "word-in-a-line"], check=True)
    assert "--password word-in-a-line" in leaks.commands[-1]


def test_command_lines_of_grandchildren_are_seen(tmp_path: Path) -> None:
    grandchild = [sys.executable, "-c", "import time; time.sleep(600)", "--token=word-of-it"]
    child = f"import subprocess; subprocess.run({grandchild}, check=False)"
    server = ServerProcess.start("child", [sys.executable, "-c", child], tmp_path)
    parent = psutil.Process(server.pid)
    wait_until(lambda: bool(parent.children()), seconds_max=60, what="there is a grandchild")
    (started,) = parent.children()
    wait_until(lambda: "--token" in " ".join(started.cmdline()), seconds_max=60, what="it runs")
    leaks.commands.clear()
    server.stop()
    started.kill()
    assert any(each.endswith("--token=word-of-it") for each in leaks.commands)
