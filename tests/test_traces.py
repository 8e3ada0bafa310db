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


LATE = """\
  File "worker_util.py", line 246, in get_sock_file_to_executor
pyspark.errors.exceptions.base.PySparkRuntimeError: [CANNOT_OPEN_SOCKET] Can not open socket: []
"""


def test_a_late_python_of_spark_is_no_trace_but_what_stands_beside_it_is() -> None:
    late = f"26/11/29 WARN late\n{traces.BEGIN}:\n{LATE}"
    assert traces.in_text(late + "INFO batch 0\n") == []
    other = f'{traces.BEGIN}:\n  File "a.py", line 1, in b\nKeyError: "[CANNOT_OPEN_SOCKET]"\n'
    for text in (late + other + late, other + late, late + other, late + late + other):
        (found,) = traces.in_text(text)
        assert "KeyError" in found
    assert traces.in_text(f"{traces.BEGIN}:\n") != []
    assert len(traces.in_text(other + other)) == 2
