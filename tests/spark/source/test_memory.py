"""What a worker frees is there for its next answer, and what it has loaded is left alone."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import resource
from imago_spark.columns.memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        blocks = [b"x" * (4 << 20), bytearray(2 << 20)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

{call}
faults()
print(faults())
"""
PAGES = 20 * (6 << 20) // 4096


def faults(call: str) -> int:
    code = PROGRAM.format(call=call)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    return int(found.stdout)


def test_memory_that_was_freed_costs_no_page_faults_again() -> None:
    assert faults("keep_freed_memory()") < PAGES // 20


LOADED = """
import gc
import pyarrow, numpy
from imago_spark.columns.memory import settle

settle()
print(gc.get_freeze_count(), len(gc.get_objects()))
"""


def test_what_is_loaded_is_not_looked_through_after_each_task() -> None:
    found = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, check=True, text=True
    )
    frozen, looked_at = map(int, found.stdout.split())
    assert frozen > 20 * looked_at
