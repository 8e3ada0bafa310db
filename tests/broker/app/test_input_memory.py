"""How much unfinished input may take, by the settings and by the memory that the process has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app.ports.input_memory import input_budget, memory_limit
from imago_broker.config import BrokerConfig

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def configured(**limits: int) -> BrokerConfig:
    config = BrokerConfig()
    return replace(config, limits=replace(config.limits, **limits))


@pytest.mark.parametrize(
    ("limit", "bytes_max"),
    [
        (None, 64 * MIB),
        (1024 * MIB, 64 * MIB),
        (256 * MIB, 32 * MIB),
        (64 * MIB, 16 * MIB),  # one frame has to fit
    ],
)
def test_unfinished_input_gets_an_eighth_of_the_memory(limit: int | None, bytes_max: int) -> None:
    assert input_budget(BrokerConfig(), limit).bytes_max == bytes_max


def test_what_is_set_counts() -> None:
    budget = input_budget(configured(input_bytes_total_max=100 * MIB), 256 * MIB)
    assert budget.bytes_max == 100 * MIB


def test_a_budget_that_holds_no_frame_is_refused() -> None:
    with pytest.raises(ValueError, match=r"input_bytes_total_max: 1048576.*frame_bytes_max"):
        configured(input_bytes_total_max=MIB)


def test_the_least_limit_of_all_groups_above_counts(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    (root / "pods" / "one").mkdir(parents=True)
    (root / "pods" / "memory.max").write_text(f"{512 * MIB}\n")
    (root / "pods" / "one" / "memory.max").write_text("max\n")
    own.write_text("0::/pods/one\n")
    assert memory_limit(root, own) == 512 * MIB
    (root / "pods" / "one" / "memory.max").write_text(f"{256 * MIB}\n")
    assert memory_limit(root, own) == 256 * MIB


def test_the_older_version_of_groups_is_understood(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    (root / "memory" / "pod").mkdir(parents=True)
    (root / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    own.write_text("5:cpu:/pod\n4:memory:/pod\n")
    assert memory_limit(root, own) is None
    (root / "memory" / "pod" / "memory.limit_in_bytes").write_text(str(256 * MIB))
    assert memory_limit(root, own) == 256 * MIB


def test_without_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path, tmp_path / "none") is None
