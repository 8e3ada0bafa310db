"""How much unfinished input may take, by the settings and by the memory that the process has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.app.ports import input_memory
from imago_broker.app.ports.input_memory import FreedInput, input_budget, memory_limit
from imago_broker.config import BrokerConfig
from imago_broker.core.budget import InputBudget

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


def configured(**limits: int) -> BrokerConfig:
    config = BrokerConfig()
    return replace(config, limits=replace(config.limits, **limits))


@pytest.mark.parametrize(
    ("limit", "bytes_max"),
    [
        (None, 40 * MIB),
        (1024 * MIB, 40 * MIB),
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


class Peer:
    """One that begins commands."""

    def steer(self) -> None:
        """Nothing waits here."""

    def drop(self) -> None:
        raise AssertionError("there is room")


def test_what_peers_took_goes_back_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_memory, "FREED_BYTES_MIN", 100)
    budget, given_back = InputBudget(1000), []
    freed, one, other = FreedInput(budget, lambda: given_back.append(budget.held)), Peer(), Peer()
    for holder, size, back in (
        (one, 150, []),
        (other, 80, []),
        (one, 100, []),
        (one, 40, [120]),
        (other, 0, [120]),
        (one, 100, [120]),
        (one, 0, [120, 0]),
    ):
        budget.count(holder, size, again=False)
        freed.look()
        assert given_back == back, (size, budget.held)


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
