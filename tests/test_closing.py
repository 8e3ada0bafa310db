"""Who leaves a connection open is the one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from imago_testing import closing

LEAVES = """
import gc, socket
import pytest

gc.disable()  # it looks when it is told

def leave():
    left = [socket.socket()]
    left.append(left)

@pytest.fixture(scope="module")
def shared():
    yield
    leave()

def test_first(): pass
def test_leaves(): leave()
def test_next(): pass
"""
OF_A_MODULE = LEAVES.replace("def test_next(): pass", "def test_last(shared): pass").replace(
    "def test_leaves(): leave()\n", ""
)


def test_the_test_that_leaves_something_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from imago_testing.closing import *\n")
    (tmp_path / "test_one.py").write_text(LEAVES)
    (tmp_path / "test_two.py").write_text(OF_A_MODULE)
    (tmp_path / "test_three.py").write_text("def test_other(): pass\n")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:asyncio", "."],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(closing.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    failed = [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("ERROR ")]
    assert failed == ["test_one.py::test_leaves", "test_two.py::test_last"], ended
    assert "6 passed, 2 errors" in ended.stdout
