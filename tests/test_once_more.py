"""What CI may run a second time: what was late, and nothing that finds a message gone."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
REFUSAL = runpy.run_path(str(ROOT / ".ci" / "once_more.py"))["refusal"]
LATE = "tests/cli/up/test_up.py::test_a_busy_port_is_named"


def test_what_was_late_is_tried_again() -> None:
    assert REFUSAL([LATE]) is None
    assert REFUSAL([f"{LATE}[{number}]" for number in range(8)]) is None


@pytest.mark.parametrize(
    "test",
    [
        "tests/chaos/test_cluster.py::test_run_that_is_told_to_end_leaves_no_network_behind",
        "tests/interop/cross/test_cross_drain.py::test_no_original_client_loses_a_message",
        "tests/spark/sink/test_sink.py::test_replayed_micro_batch_writes_nothing_twice",
        "tests/k8s_operator/plan/test_promises.py::test_every_plan_keeps_every_promise",
    ],
)
def test_who_looks_for_what_must_never_happen_has_one_chance(test: str) -> None:
    assert test in REFUSAL([LATE, test])


@pytest.mark.parametrize("count", [0, 9])
def test_many_failures_and_none_are_not_excused(count: int) -> None:
    assert f"{count} failed" in REFUSAL([LATE] * count)
