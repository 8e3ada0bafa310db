"""A change of metadata that no follower should have to take is refused before the log has it."""

from __future__ import annotations

from typing import Any

import pytest

from imago_log.errors import ChangeTooLargeError
from imago_log.metadata.changes import CHANGE_BYTES_MAX
from imago_testing.stores.in_memory import open_store
from imago_testing.stores.vfs import MemoryVfs

LARGE: Any = {"segment_bytes_max": 8 << 20, "message_bytes_max": 1 << 20}


def test_a_change_above_the_limit_is_refused_and_nothing_is_kept() -> None:
    store = open_store(MemoryVfs(), **LARGE)
    end, word = store.log_end, "x" * CHANGE_BYTES_MAX
    with pytest.raises(ChangeTooLargeError, match="at most 1048576: make it smaller"):
        store.put_meta([("lock", "small", "owner"), ("lock", word, "owner")])
    with pytest.raises(ChangeTooLargeError):
        store.put_meta([("lock", "key", word)])
    with pytest.raises(ChangeTooLargeError):
        store.create_topic("T", {"attributes": {"a": word}})
    assert store.log_end == end
    assert not store.meta("lock")
    assert "T" not in store.topics()
    store.put_meta([("lock", "key", word[:-100])])
    assert store.log_end > end
    store.close()
