"""A change of metadata that no follower should have to take is refused before the log has it."""

from __future__ import annotations

from typing import Any

import pytest

from imago_log.errors import ChangeTooLargeError
from imago_log.metadata.changes import (
    CHANGE_BYTES_MAX,
    RECORD_BYTES_MAX,
    Change,
    decode_changes,
    encode_changes,
)
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


def test_small_changes_share_a_record_with_the_large_one_behind_them() -> None:
    half = "x" * (RECORD_BYTES_MAX // 2 + 1)
    changes: list[Change] = [("lock", f"{at}", value) for at, value in enumerate(["a", half, half])]
    large: list[Change] = [("lock", "large", "x" * (CHANGE_BYTES_MAX - 100)), ("lock", "b", "b")]
    bodies = encode_changes([*changes[:1], *large, *changes])
    assert [decode_changes(body) for body in bodies] == [
        [changes[0], large[0]],
        [large[1], *changes],
    ]
    assert max(map(len, bodies)) < RECORD_BYTES_MAX + CHANGE_BYTES_MAX
