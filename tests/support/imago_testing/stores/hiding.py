"""Queues that cannot be read for a while, as where the store is looking at what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_log import MessageStore
from imago_log.results import ReadResult, ReadStatus

if TYPE_CHECKING:
    import pytest


def hidden_queues(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """Return a set: the queues of any store that are in it are to be read again later."""
    hidden: set[tuple[str, int]] = set()
    real = MessageStore.read

    def read(store: MessageStore, topic: str, queue_id: int, offset: int, **how: Any) -> ReadResult:
        if (topic, queue_id) in hidden:
            bounds = store.queue_range(topic, queue_id)
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, offset, *bounds)
        return real(store, topic, queue_id, offset, **how)

    monkeypatch.setattr(MessageStore, "read", read)
    return hidden
