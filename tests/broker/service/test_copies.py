"""Messages of one id are read page by page, however many were stored at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from imago_broker.service.puts import copies
from imago_broker.service.puts.copies import TooManyCopiesError, named_copies


class Stored:
    """A store with messages of one id, each the millisecond in which it came in."""

    def __init__(self, *times_ms: int) -> None:
        self._times_ms = times_ms

    def find_key(self, _: str, __: str, begin_ms: int, end_ms: int, count: int) -> list[Any]:
        found = [
            SimpleNamespace(store_ms=ms, physical_offset=at)
            for at, ms in enumerate(self._times_ms)
            if begin_ms <= ms <= end_ms
        ]
        return found[-count:]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "COPIES_AT_ONCE", 2)
    monkeypatch.setattr(copies, "read_copy", lambda record: record)


@pytest.mark.parametrize("times_ms", [(), (1,), (1, 2), (1, 2, 3), (5,) * 9, (1, 5, 5, 5, 5, 9)])
def test_each_is_read_once_the_newest_first(times_ms: tuple[int, ...]) -> None:
    store: Any = Stored(*times_ms)
    found = [copy.physical_offset for copy in named_copies(store, "T", "id", 10)]
    assert found == list(reversed(range(len(times_ms))))


def test_where_there_may_be_more_than_are_looked_at_that_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "COPIES_LOOKED_MAX", 4)
    store: Any = Stored(1, 2, 2, 2, 5, 6, 7)
    with pytest.raises(TooManyCopiesError):
        list(named_copies(store, "T", "id", 10))
    few: Any = Stored(5, 6, 7)
    assert len(list(named_copies(few, "T", "id", 10))) == 3
