"""A cluster of three is broken in many ways under load: nothing acknowledged is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper, pytest.mark.timeout(600)]

SEED = 20261
FAULTS = (
    "kill_leader",
    "cut_towards_leader",
    "part_leader_from_zookeeper",
    "kill_all",
    "fill_disk",
    "pause_leader",
    "wipe_follower",
    "zookeeper_majority_down",
    "break_sync",
    "isolate_leader",
    "step_clock",
    "lose_packets",
    "change_bits",
    "roll",
)


def test_faults_of_many_kinds_break_no_promise(tmp_path: Path) -> None:
    # A process of its own: it moves into the network that it makes.
    told = tmp_path / "report.json"
    command = [sys.executable, "-m", "imago_testing.chaos.cluster", "--seed", str(SEED)]
    command += ["--faults", ",".join(FAULTS), "--json", str(told)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=580, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    report = json.loads(told.read_text())
    assert report["violations"] == []
    assert set(report["gaps_ms"]) == set(FAULTS)
    assert report["acknowledged"] > 0
