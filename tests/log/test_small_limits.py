"""Every limit of the store and the replication is met by tests, or is said to stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from imago_testing.small_limits import KEPT, SMALL, constants

ROOT = Path(__file__).parents[2]
TRIVIAL = 16


def test_every_number_is_made_small_or_said_to_stay() -> None:
    """A new constant: give it a small value in `small_limits.SMALL`, or say in KEPT why not."""
    found = {(module, name) for module, name, value in constants() if abs(value) >= TRIVIAL}
    named = {(module, name) for module, names in SMALL.items() for name in names}
    kept = {(module, name) for module, names in KEPT.items() for name in names}
    known = {(module, name) for module, name, _ in constants()}
    assert found - named - kept == set()
    assert kept - known == set(), "gone: take them out of KEPT"
    assert named & kept == set()


def test_small_numbers_are_smaller() -> None:
    shipped = {(module, name): value for module, name, value in constants()}
    for module, numbers in SMALL.items():
        for name, value in numbers.items():
            assert value < shipped.get((module, name), 1 << 62), f"{module}.{name}"


def test_modules_are_compiled_with_the_small_numbers() -> None:
    program = (
        "from imago_testing import small_limits; small_limits.install()\n"
        "from imago_log import borders, key_index, log_bytes, parts\n"
        "from imago_log.checks import log_files\n"
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
