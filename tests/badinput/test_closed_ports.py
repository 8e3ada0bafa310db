"""Signed requests of all kinds of users, and changed bytes, on the ports of a closed broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "executions", [1, pytest.param(20_000, marks=pytest.mark.full)], ids=["a round", "more"]
)
def test_every_request_is_answered_and_every_connection_ends(executions: int) -> None:
    command = [sys.executable, "-m", "tests.fuzz.served", "--seed", "15"]
    command += ["--seconds", "1500" if executions > 1 else "0", "--executions", str(executions)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    ran = {line.split()[0] for line in done.stdout.splitlines() if line.endswith("/s")}
    ports = ("rocketmq", "namesrv")
    assert ran == {
        *(f"served.{port}" for port in ports),
        *(f"served.{port}.bytes" for port in (*ports, "metaq", "admin", "grpc")),
    }
