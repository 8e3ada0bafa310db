"""Half messages kept in memory: as many bytes as they may take, and no places of others."""

from __future__ import annotations

from random import Random

import pytest

from imago_broker.service.transactions import recent_halves
from imago_broker.service.transactions.recent_halves import OVERHEAD, RecentHalves, copy_of
from imago_testing.searching import examples
from imago_wire.hot import Half, close_halves, make_entry
from imago_wire.records.record_twins import QueueTail
from imago_wire.remoting.scanning.halves import kept_size

TAIL = QueueTail(b"halves", 0, dual=False)


def half(offset: int, size: int) -> Half:
    one = Half(offset, 100 * offset, "g")
    one.entry = make_entry(TAIL, bytes(size), b"A\x01b\x02", born_ms=1, born_host=bytes(8))
    return one


def size_of(halves: list[Half]) -> int:
    return sum(kept_size(one.entry) for one in halves if one.entry is not None)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_the_newest_stay_within_the_bytes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_halves, "SPARE", 3)
    rng, bytes_max = Random(seed), 5 * (OVERHEAD + 100)
    recent, ever, offset = RecentHalves(bytes_max), list[Half](), 0
    for _ in range(200):
        brought = [
            half(offset + at, rng.choice([0, 50, 100, 400])) for at in range(rng.choice([1, 1, 4]))
        ]
        offset += len(brought)
        ever += brought
        recent.add_all(brought, size_of(brought))
        kept = [one for one in ever if one.entry is not None]
        ended = rng.sample(kept, rng.randrange(len(kept) + 1))
        if rng.random() < 0.5:
            closed = close_halves(ended, {}, {})
            recent.have_left(closed.kept, closed.size)
        else:
            for one in (*ended, *ended):
                recent.drop(one)
        kept = [one for one in ever if one.entry is not None]
        assert recent.bytes == size_of(kept) + OVERHEAD * len(kept) <= bytes_max
        assert set(kept) <= set(recent._halves)
        assert len(recent._halves) <= 2 * bytes_max // OVERHEAD + 3 + 4
    large = half(offset, bytes_max)
    recent.add_all([large], size_of([large]))
    assert (large.entry, recent.bytes) == (None, 0), "it alone is too large, and the last to come"


def test_kept_one_is_as_it_came() -> None:
    one, entry = Half(7, 700, "g"), half(7, 5).entry
    assert entry is not None
    recent = RecentHalves()
    recent.add(one, entry)
    assert one.entry is entry
    copy = copy_of(one, entry)
    assert (copy.queue_offset, copy.physical_offset, copy.body) == (7, 700, bytes(5))
    assert copy.properties == b"A\x01b\x02"
