"""A cluster of three is broken in many ways under load: nothing acknowledged is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [pytest.mark.processes, pytest.mark.zookeeper, pytest.mark.timeout(1500)]

SEED = 20265
FAULTS = (
    "kill_leader",
    "damage_files",
    "part_leader_from_zookeeper",
    "fill_disk",
)
MORE_FAULTS = (
    "wipe_follower",
    "break_sync",
    "isolate_leader",
    "cut_towards_leader",
    "kill_all_damage_one",
    "pause_leader",
    "pause_every_zookeeper",
    "step_clock",
    "change_bits",
    "roll",
)
CLOSED_FAULTS = ("rotate_certificates", "kill_leader", "rotate_password")
"""Of a cluster with TLS on all ports, to clients that sign or show certificates."""
MORE_CLOSED_FAULTS = (
    "rotate_and_kill_leader",
    "wipe_follower",
    "step_clock",
    "change_bits",
    "isolate_leader",
    "hand_over",
    "roll",
)
DRAIN_FAULTS = ("drain_two_shards", "drain_shard_and_restart", "drain_shard_and_fill_disk")
"""More shards come and go; each takes minutes, for a drain waits for clients that may come back."""
BURST_BYTES = 9 << 20
"""Written before each fault: more than any chunk in which the log is read."""


@pytest.mark.full
@pytest.mark.parametrize(
    ("faults", "more"),
    [
        (FAULTS, ()),
        (MORE_FAULTS, ()),
        (CLOSED_FAULTS, ("--closed",)),
        (MORE_CLOSED_FAULTS, ("--closed",)),
        *(((fault,), ()) for fault in DRAIN_FAULTS),
    ],
    ids=["some", "others", "closed", "closed, others", *DRAIN_FAULTS],
)
def test_faults_of_many_kinds_break_no_promise(
    tmp_path: Path, faults: tuple[str, ...], more: tuple[str, ...]
) -> None:
    # A process of its own: it moves into the network that it makes.
    told = tmp_path / "report.json"
    command = [sys.executable, "-m", "imago_testing.chaos.cluster", "--seed", str(SEED)]
    command += ["--faults", ",".join(faults), "--json", str(told)]
    command += ["--every", "0", "--calm", "0.3,0.6", "--burst-bytes", str(BURST_BYTES)]
    # How fast this machine is, and what else it does, is no matter of this test.
    command += ["--rate-min", "0", "--rate-max", "4", "--retention-bytes", str(64 << 20)]
    command += more
    environment = _environment()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=1480, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    report = json.loads(told.read_text())
    assert report["violations"] == []
    assert set(report["gaps_ms"]) == set(faults)
    assert report["calm_bytes"] >= BURST_BYTES * len(faults)


def test_run_that_is_told_to_end_leaves_no_network_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "imago_testing.chaos.cluster", "--faults", "kill_leader"]
    environment = {**_environment(), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as run:

        def machines() -> Sequence[Path]:
            return [*Path("/run/netns").glob(f"imago-{run.pid}-*")]

        wait_until(lambda: len(machines()) > 1, seconds_max=120, what="machines are made")
        run.send_signal(signal.SIGTERM)
        assert run.wait(timeout=120)
        assert not machines()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
