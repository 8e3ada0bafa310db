"""What a queue's messages take: exact of few, near enough of many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.service.topics import sizes
from imago_testing.stores.in_memory import FakeClock, Model, open_store
from imago_testing.stores.vfs import MemoryVfs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log import MessageStore


@pytest.fixture
def store() -> Iterator[MessageStore]:
    opened = open_store(MemoryVfs(), FakeClock())
    opened.create_topic("T", {})
    yield opened
    opened.close()


def fill(store: MessageStore, body_sizes: list[int]) -> int:
    """Store messages of these sizes; return what their records take."""
    Model().send(store, [("T", 0, size) for size in body_sizes])
    return sum(
        len(store.read("T", 0, n, messages_max=1, bytes_max=1).body) for n in range(len(body_sizes))
    )


def test_of_few_messages_it_is_exact(store: MessageStore) -> None:
    assert fill(store, [1, 50, 200]) == sizes.queue_bytes(store, "T", 0)


def test_of_many_it_is_near_enough(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizes, "STRETCH_UNITS", 4)
    whole = fill(store, [n % 40 for n in range(400)])
    found = sizes.queue_bytes(store, "T", 0)
    assert found != whole
    assert found == pytest.approx(whole, rel=0.05)


def test_an_empty_queue_and_one_that_is_not_there_take_nothing(store: MessageStore) -> None:
    store.tail("T", 0)
    assert sizes.queue_bytes(store, "T", 0) == sizes.queue_bytes(store, "none", 3) == 0
