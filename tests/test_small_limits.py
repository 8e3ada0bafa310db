"""The suite with small limits begins: nothing it loads may import the store before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_tests_are_collected_with_small_limits() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests/test_room.py"],
        cwd=ROOT,
        env={**os.environ, "IMAGO_LIMITS": "small"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
