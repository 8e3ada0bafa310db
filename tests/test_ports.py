"""Ports of tests: processes that run side by side never choose the same ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from imago_testing.processes import ports
from imago_testing.processes.ports import END, FIRST, WIDTH, Lease

SUPPORT = Path(ports.__file__).parents[2]
HOLDS = """
import sys
from pathlib import Path
from imago_testing.processes.ports import Lease
lease = Lease(Path(sys.argv[1]))
print(lease.first, flush=True)
sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Start a process that leases a range and keeps it until its input ends."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(SUPPORT)},
    )


def test_leases_never_overlap_until_there_is_none_left(tmp_path: Path) -> None:
    leases = [Lease(tmp_path) for _ in range(FIRST, END, WIDTH)]
    assert sorted(each.first for each in leases) == list(range(FIRST, END, WIDTH))
    with pytest.raises(RuntimeError, match="wait until some end"):
        Lease(tmp_path)
    leases[7].give_back()
    again = Lease(tmp_path)
    assert again.first == leases[7].first
    for lease in (again, *leases):
        lease.give_back()


def test_range_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    with holder(tmp_path) as one, holder(tmp_path) as other:
        assert one.stdout is not None
        assert other.stdout is not None
        taken = {int(one.stdout.readline()), int(other.stdout.readline())}
        assert len(taken) == 2
        one.kill()
        one.wait()
        rest = [Lease(tmp_path) for _ in range(FIRST + WIDTH, END, WIDTH)]
        assert len({each.first for each in rest} & taken) == 1
        other.kill()
    for lease in rest:
        lease.give_back()


def test_blocks_of_a_lease_stay_inside_it_and_come_back_late(tmp_path: Path) -> None:
    lease = Lease(tmp_path)
    firsts = list(lease.blocks(30))
    lease.give_back()
    assert len(set(firsts)) == len(firsts) == WIDTH // 30
    assert min(firsts) >= lease.first
    assert max(firsts) + 30 <= lease.first + WIDTH
