"""Every fuzz target holds for some hundred inputs, and the driver reports one that does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEED = "20240229"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'support'}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_target_holds_for_some_hundred_inputs() -> None:
    done = run("-m", "tests.fuzz.driver", "--executions", "400", "--seed", SEED)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    ran = {line.split()[0]: line.split()[1] for line in lines if line.endswith("/s")}
    for part in ("text.", "record.", "remoting.", "replication.", "sql92", "access.", "grpc."):
        assert any(name.startswith(part) for name in ran)
    assert set(ran.values()) == {"400"}


FAILING = """
import random, signal, sys
from tests.fuzz import driver
signal.signal(signal.SIGVTALRM, driver._too_long)
def run(data):
    {body}
driver.fuzz(driver.Target("sample", run, [b"good"]), random.Random(1), until=1e18,
            executions_max=100000)
"""


def test_failing_input_is_printed_with_the_way_to_repeat_it() -> None:
    done = run("-c", FAILING.format(body="assert b'good' in data"))
    assert done.returncode == 1
    assert "sample failed on these" in done.stderr
    assert "--target sample --input" in done.stderr


def test_input_that_keeps_a_decoder_busy_is_a_failure() -> None:
    done = run("-c", FAILING.format(body="while b'good' not in data: pass"))
    assert done.returncode == 1
    assert "TooLongError" in done.stderr


@pytest.mark.full
def test_counts_of_runs_are_kept_and_added_up(tmp_path: Path) -> None:
    kept = tmp_path / "fuzz.json"
    told = ""
    for seed in ("1", "2"):
        limits = ("--executions", "50", "--target", "text.", "--seed", seed)
        done = run("-m", "tests.fuzz.driver", *limits, "--record", str(kept))
        assert done.returncode == 0, done.stderr
        told = done.stdout
    runs = json.loads(kept.read_text())["runs"]
    assert [each["seed"] for each in runs] == [1, 2]
    assert set(runs[0]["inputs"].values()) == {50}
    assert f"{2 * 50 * len(runs[0]['inputs'])} inputs in" in told


def test_unknown_target_is_refused() -> None:
    assert run("-m", "tests.fuzz.driver", "--target", "nonsense").returncode == 2
