"""A traceback that a process of tests prints fails its test."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from imago_testing import traces

if TYPE_CHECKING:
    from pathlib import Path

DYING_THREAD = "import threading; threading.Thread(target=lambda: 1 / 0).start()"


def test_a_thread_that_dies_is_found_by_what_is_printed(tmp_path: Path) -> None:
    folder = tmp_path / "member-0"
    folder.mkdir()
    (folder / "other.log").write_text("WARNING broker late: Traceback is off\n")
    assert traces.traces([tmp_path]) == []
    with (folder / "broker.log").open("wb") as log:
        subprocess.run([sys.executable, "-c", DYING_THREAD], stderr=log, check=True)
    (found,) = traces.traces([tmp_path])
    assert found.startswith(f"{folder / 'broker.log'} has\n")
    assert "ZeroDivisionError" in found


def test_what_is_no_print_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000").write_text(traces.BEGIN)
    assert traces.traces([tmp_path]) == []
