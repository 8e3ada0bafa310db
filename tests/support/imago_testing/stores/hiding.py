"""Queues that cannot be read for a while, as where the store is looking at what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_log.reading import by_offset
from imago_log.results import ReadResult, ReadStatus

if TYPE_CHECKING:
    import pytest

    from imago_log.views.units.consume_queue import ConsumeQueue


def hidden_queues(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """Return a set: the queues of any store that are in it are to be read again later."""
    hidden: set[tuple[str, int]] = set()
    real = by_offset.read_queue

    def read(
        queue: ConsumeQueue | None, records: Any, bounds: tuple[int, int], offset: int, *how: Any
    ) -> ReadResult:
        if queue is not None and (queue.tail.topic.decode(), queue.tail.queue_id) in hidden:
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, offset, *bounds)
        return real(queue, records, bounds, offset, *how)

    monkeypatch.setattr(by_offset, "read_queue", read)
    return hidden
