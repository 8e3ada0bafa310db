"""The checker of drains finds what is planted in a drain in which all goes well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.chaos.checker import check
from imago_testing.chaos.drained import DrainedShard
from imago_testing.chaos.planted import good_history
from imago_testing.chaos.violations import Broken

if TYPE_CHECKING:
    from collections.abc import Callable

READERS = ("g of orders", "fresh of orders", "%LMQ%a of light", "pops of pop")


def good_drain() -> DrainedShard:
    """Everybody had what was acknowledged, before the shard said that it is drained."""
    drained = DrainedShard(removed=True)
    for reader in READERS:
        for number in range(3):
            body = b"%b %d" % (reader.encode(), number)
            drained.acked(body, reader)
            drained.got(reader, [body])
    return drained


def found(drained: DrainedShard) -> list[tuple[Broken, str]]:
    history = good_history()
    history.drains.append(drained)
    return [(each.broken, each.text) for each in check(history)]


def test_a_drain_in_which_all_goes_well_breaks_nothing() -> None:
    assert found(good_drain()) == []


def _never_had(drained: DrainedShard) -> None:
    drained.had["fresh of orders"].clear()


def _one_lost(drained: DrainedShard) -> None:
    del drained.had["%LMQ%a of light"][1]


def _twice(drained: DrainedShard) -> None:
    drained.got("pops of pop", [b"pops of pop 0"])


def _unknown(drained: DrainedShard) -> None:
    drained.got("g of orders", [b"rolled back"])


def _early(drained: DrainedShard) -> None:
    drained.early.append("prepared is still owed what it was told")


def _late(drained: DrainedShard) -> None:
    drained.late.append(b"too late")


def _stuck(drained: DrainedShard) -> None:
    drained.removed = False


@pytest.mark.parametrize(
    ("plant", "broken", "count"),
    [
        (_never_had, Broken.LOST, 3),
        (_one_lost, Broken.LOST, 1),
        (_twice, Broken.DUPLICATED, 1),
        (_unknown, Broken.PHANTOM, 1),
        (_early, Broken.EARLY, 1),
        (_late, Broken.LOST, 1),
        (_stuck, Broken.APART, 1),
    ],
)
def test_what_is_planted_is_found(
    plant: Callable[[DrainedShard], None], broken: Broken, count: int
) -> None:
    drained = good_drain()
    plant(drained)
    assert [each for each, _ in found(drained)] == [broken] * count
