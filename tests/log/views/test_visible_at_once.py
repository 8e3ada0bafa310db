"""What becomes visible at once: no high watermark stands inside of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_log.commitlog.watermark import HighWatermark
from imago_testing.stores.in_memory import open_store
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from collections.abc import Sequence


def watermark(end: int) -> HighWatermark:
    return HighWatermark(cast("Any", SimpleNamespace(end=end)))


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=8),
    told=st.lists(st.integers(0, 80), max_size=12),
)
def test_nobody_sees_a_part(sizes: Sequence[tuple[int, bool]], told: Sequence[int]) -> None:
    end = sum(size for size, _ in sizes)
    mark, at = watermark(end), 0
    mark.begin(0)
    whole = []
    for size, together in sizes:
        if together:
            mark.keep_whole(at, at + size)
            whole.append((at, at + size))
        at += size
    highest = 0
    for offset in told:
        mark.raise_to(offset)
        highest = max(highest, min(offset, end))
        assert not any(start < mark.value < border for start, border in whole)
        within = [start for start, border in whole if start < highest < border]
        assert mark.value == (within[0] if within else highest)


def test_alone_everything_is_visible() -> None:
    mark = watermark(10)
    mark.keep_whole(2, 8)
    assert mark.visible == 10
    mark.raise_to(5)
    assert mark.visible == 5


@pytest.mark.parametrize("cut", [0, 2, 5])
def test_what_is_cut_holds_nothing_up(cut: int) -> None:
    mark = watermark(20)
    mark.begin(0)
    mark.keep_whole(2, 8)
    mark.lower_to(cut)
    mark.raise_to(7)
    assert mark.value == 7


def test_an_id_given_out_is_given_once() -> None:
    store = open_store(MemoryVfs())
    ids = [store.take_metaq_id() for _ in range(5)]
    ids += [store.take_metaq_id(ids[-1] + 5000), store.take_metaq_id()]
    assert ids == sorted(set(ids))
    store.close()
