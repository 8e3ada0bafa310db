"""docs/tutorial.md, block by block: what it says to type is typed, what it shows is shown.

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
from imago_testing.processes.servers import ServerProcess, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
PROGRAMS = Path(sys.executable).parent
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_NAME_SERVICE = "127.0.0.1:9876"
_STOPS = "Stop the cluster with Ctrl-C"
PORTS = 60
SECONDS_MAX = 120

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]


class Block(NamedTuple):
    kind: str
    text: str
    is_behind_a_stop: bool
    """The words before it say that the cluster is stopped."""


def blocks() -> list[Block]:
    page, before, found = PAGE.read_text(encoding="utf-8"), 0, []
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

    @property
    def name_service(self) -> str:
        return f"127.0.0.1:{self.base}"

    def environment(self) -> dict[str, str]:
        return os.environ | {
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "IMAGO_BOOTSTRAP": self.name_service,
            "IMAGO_METAQ": f"127.0.0.1:{self.base + 11}",
            "IMAGO_ADMIN": f"http://127.0.0.1:{self.base + 14}",
        }

    def up(self, command: str) -> None:
        self.stop()
        self._starts += 1
        words = [str(PROGRAMS / "imago"), *shlex.split(command)[1:], "--port-base", str(self.base)]
        server = ServerProcess.start(f"up-{self._starts}", words, self.folder)
        self._server = server
        wait_until(
            lambda: "Ctrl-C stops everything" in server.log_tail(),
            seconds_max=SECONDS_MAX,
            what="imago up says that it serves",
        )

    def stop(self) -> None:
        if self._server:
            self._server.stop(seconds_max=SECONDS_MAX)
        self._server = None

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


def test_every_block_does_what_the_page_says(tmp_path: Path) -> None:
    with ExitStack() as stack:
        reader = Reader(tmp_path)
        stack.callback(reader.stop)
        for block in blocks():
            if block.is_behind_a_stop:
                reader.stop()
            if block.kind == "sh" and block.text.startswith("imago up"):
                reader.up(block.text)
            elif block.kind == "sh":
                reader.run(["bash", "-euc", block.text])
            elif block.kind == "python" and "spark." not in block.text:
                code = block.text.replace(_NAME_SERVICE, reader.name_service)
                reader.run([sys.executable, "-W", "error", "-c", code])
            elif block.kind == "text":
                missing = [line for line in block.text.splitlines() if line not in reader.said]
                assert missing == [], reader.said


def test_no_block_is_of_a_kind_that_nothing_runs() -> None:
    kinds = [block.kind for block in blocks()]
    assert set(kinds) == {"sh", "text", "python"}
    assert kinds.count("sh") > 6
    assert PAGE.read_text(encoding="utf-8").count("\n```") == 2 * len(kinds)
