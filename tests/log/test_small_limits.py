"""The store and the replication in small pieces."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from imago_testing.small_limits import SMALL, constants

ROOT = Path(__file__).parents[2]


def test_small_numbers_are_smaller() -> None:
    shipped = {(module, name): value for module, name, value in constants()}
    for module, numbers in SMALL.items():
        for name, value in numbers.items():
            assert value < shipped.get((module, name), 1 << 62), f"{module}.{name}"


def test_modules_are_compiled_with_the_small_numbers() -> None:
    program = (
        "from imago_testing import small_limits; small_limits.install()\n"
        "from imago_log.commitlog import borders\n"
        "from imago_log.replica import log_bytes\n"
        "from imago_log.offline import log_files\n"
        "print(log_bytes.CHUNK_BYTES, log_files.CHUNK_BYTES, len(borders._ZEROS))\n"
    )
    path = os.pathsep.join([str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["300", "300", "300"]
