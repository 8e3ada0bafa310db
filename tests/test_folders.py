"""Folders of fixtures, in a run of pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from imago_testing.folders import FixtureFolders

ROOT = Path(__file__).parents[1]
MODULE = """
import pytest

@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("module")
    (folder / "log").write_text("x")
    yield folder

@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    yield tmp_path_factory.mktemp("session")

def test_one(kept, shared):
    assert (kept / "log").exists() and shared.exists()

def test_{outcome}(kept, tmp_path_factory):
    found = sorted(each.name for each in tmp_path_factory.getbasetemp().iterdir() if each.is_dir())
    print("there:", *found)
    assert kept.exists() and "{outcome}" == "passes"
"""


def test_folders_of_ended_fixtures_go_unless_something_failed(tmp_path: Path) -> None:
    folders = FixtureFolders()
    first, second = tmp_path / "first", tmp_path / "second"
    for each in (first, second):
        each.mkdir()
        folders.note(each.name, [each])
    folders.remove(failed=False)
    assert first.exists(), "its fixture has not ended"
    folders.end("first")
    folders.end("first")
    folders.remove(failed=False)
    assert not first.exists()
    folders.end("second")
    folders.remove(failed=True)
    assert second.exists()


@pytest.mark.parametrize(("outcome", "left"), [("passes", False), ("fails", True)])
def test_a_module_takes_its_folders_along(tmp_path: Path, outcome: str, *, left: bool) -> None:
    here = tmp_path / "tests"
    here.mkdir()
    (here / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text())
    (here / "test_a.py").write_text(MODULE.format(outcome=outcome))
    (here / "test_b.py").write_text(
        "def test_last(shared_base):\n    print('left:', *shared_base)\n"
        "import pytest\n"
        "@pytest.fixture\n"
        "def shared_base(tmp_path_factory):\n"
        "    return sorted(each.name for each in tmp_path_factory.getbasetemp().iterdir())\n"
    )
    (here / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    words = ["-q", "-s", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"), str(here)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=here,
        env={"PYTHONPATH": str(ROOT / "tests" / "support"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "left:" in done.stdout, done.stdout + done.stderr
    said = next(line for line in done.stdout.splitlines() if "left:" in line)
    assert ("module0" in said) == left, done.stdout + done.stderr
    assert "session0" in said
