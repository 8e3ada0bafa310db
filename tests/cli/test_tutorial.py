"""Pages to follow, block by block: what they say to type is typed, what they show is shown.

Blocks of `sh` run one after the other; `imago up` runs beside them until the page says to stop it.
A block of `text` holds parts of what the block before printed. Blocks that need Spark run in
tests/spark/test_documented.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from imago_testing.processes.ports import free_port_block
from imago_testing.processes.segments import SEGMENT_BYTES
from imago_testing.processes.servers import ServerProcess, wait_until

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("tutorial", "secure", "backup")
PROGRAMS = Path(sys.executable).parent
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_STOPS = "top the cluster with Ctrl-C"
PORTS = 60
SECONDS_MAX = 240
"""It takes two seconds, where nobody else uses the machine."""

pytestmark = [pytest.mark.processes]


class Block(NamedTuple):
    kind: str
    text: str
    is_behind_a_stop: bool
    """The words before it say that the cluster is stopped."""


def blocks(name: str) -> list[Block]:
    page, before, found = (DOCS / f"{name}.md").read_text(encoding="utf-8"), 0, []
    for match in _BLOCK.finditer(page):
        said = page[before : match.start()]
        found.append(Block(match[1], match[2], _STOPS in " ".join(said.split())))
        before = match.end()
    return found


class Reader:
    """Somebody who types what the page says, in a folder of their own, beside other clusters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.base = free_port_block(PORTS)
        self._server: ServerProcess | None = None
        self._starts = 0
        self.said = ""
        self._exported: list[str] = []
        self._places = {
            "127.0.0.1:9876": f"127.0.0.1:{self.base}",
            "127.0.0.1:8080": f"127.0.0.1:{self.base + 14}",
        }
        """Where the page's addresses are here."""

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "IMAGO_BOOTSTRAP": f"127.0.0.1:{self.base}",
            "IMAGO_METAQ": f"127.0.0.1:{self.base + 11}",
            "IMAGO_ADMIN": f"http://127.0.0.1:{self.base + 14}",
        }

    def up(self, command: str) -> None:
        self.stop()
        self._starts += 1
        words = [
            str(PROGRAMS / "imago"),
            *shlex.split(command.replace("$PWD", str(self.folder)))[1:],
            "--port-base",
            str(self.base),
        ]
        words += ["--set", f"store.segment_bytes_max={SEGMENT_BYTES}"]
        server = ServerProcess.start(f"up-{self._starts}", words, self.folder)
        self._server = server

        def serves() -> bool:
            ended = server.process.poll()
            assert ended is None, f"imago up ended with {ended}:\n{server.log_tail()}"
            return "Ctrl-C stops everything" in server.log_tail()

        wait_until(serves, seconds_max=SECONDS_MAX, what="imago up says that it serves")

    def stop(self) -> None:
        if self._server:
            self._server.stop(seconds_max=SECONDS_MAX)
        self._server = None

    def shell(self, text: str) -> None:
        """Type a block; what it exports counts for later ones."""
        here = self.here(text)
        self.run(["bash", "-euc", "\n".join((*self._exported, here))])
        self._exported += [line for line in here.splitlines() if line.startswith("export ")]

    def python(self, text: str) -> None:
        self.run([sys.executable, "-W", "error", "-c", self.here(text)])

    def here(self, text: str) -> str:
        for named, place in self._places.items():
            text = text.replace(named, place)
        return text

    def run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        self.said = done.stdout
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}"


@pytest.mark.full
@pytest.mark.parametrize("name", PAGES)
def test_every_block_does_what_the_page_says(tmp_path: Path, name: str) -> None:
    with ExitStack() as stack:
        reader = Reader(tmp_path)
        stack.callback(reader.stop)
        for block in blocks(name):
            if block.is_behind_a_stop:
                reader.stop()
            if block.kind == "sh" and block.text.startswith("imago up"):
                reader.up(block.text)
            elif block.kind == "sh":
                reader.shell(block.text)
            elif block.kind == "python" and "spark." not in block.text:
                reader.python(block.text)
            elif block.kind == "text":
                missing = [line for line in block.text.splitlines() if line not in reader.said]
                assert missing == [], reader.said


@pytest.mark.full
def test_commands_among_the_settings_of_security_do_what_they_say(tmp_path: Path) -> None:
    """Its blocks of `sh` follow each other, in the cluster that the page has started by then."""
    with ExitStack() as stack:
        reader = Reader(tmp_path)
        stack.callback(reader.stop)
        reader.up("imago up --set acl.enabled=true")
        shell = [block.text for block in blocks("security") if block.kind == "sh"]
        assert len(shell) > 1
        for text in shell:
            reader.shell(text)
        assert "producer-bytes" in reader.said


@pytest.mark.full
def test_who_works_before_is_never_refused_where_the_order_of_security_is_followed(
    tmp_path: Path,
) -> None:
    """It sends after each line: without a user, and as soon as the page gives it one with that."""
    [order] = [block.text for block in blocks("security") if block.kind == "shell"]
    client = "imago produce orders hello"
    with ExitStack() as stack:
        reader = Reader(tmp_path)
        stack.callback(reader.stop)
        first, *others = [line.partition(" #")[0].rstrip() for line in order.splitlines()]
        reader.up(first)
        reader.shell("imago topic create orders")
        for command in others:
            if command.startswith("imago up"):
                reader.up(command)
            else:
                reader.shell(command)
            client = command if "produce" in command else client
            reader.shell(client)
        assert "--user ann" in client
        with pytest.raises(AssertionError, match=r"NO_PERMISSION|no permission|cannot be null"):
            reader.shell("imago produce orders hello")


@pytest.mark.full
def test_members_with_the_certificate_of_the_page_copy_each_other(tmp_path: Path) -> None:
    """What `imago security init` leaves to do for several members."""
    with ExitStack() as stack:
        reader = Reader(tmp_path)
        stack.callback(reader.stop)
        reader.shell("imago security init security; cp security/ca.* .")
        (made,) = [block.text for block in blocks("security") if block.kind == "bash"]
        reader.shell(made.replace("IP:10.0.0.5", "IP:127.0.0.1"))
        tls = {
            "certificate_file": tmp_path / "tls.crt",
            "key_file": tmp_path / "tls.key",
            "replication": "enforcing",
        }
        settings = " ".join(f"--set tls.{key}={value}" for key, value in tls.items())
        reader.up(f"imago up --replicas 2 --config security/security.toml {settings}")
        reader.shell(
            "export IMAGO_TLS_CA=ca.pem IMAGO_ADMIN_TOKEN_FILE=security/admin-token\n"
            f"export IMAGO_ADMIN=https://127.0.0.1:{reader.base + 14}\n"
            "imago user create root --super\n"
            "export IMAGO_USER=root IMAGO_PASSWORD_FILE=root.password\n"
            "imago topic create orders --set acknowledgement=replicated\n"
            "imago produce orders hello\n"
            "imago cluster status\n"
        )
        assert "follower" in reader.said


@pytest.mark.parametrize("name", PAGES)
def test_no_block_is_of_a_kind_that_nothing_runs(name: str) -> None:
    kinds = [block.kind for block in blocks(name)]
    assert set(kinds) <= {"sh", "text", "python"}
    assert kinds.count("sh") > 4
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8").count("\n```") == 2 * len(kinds)
