"""Seals: closed to producers, open to readers, and back to what it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.model.topics.placed import placement
from imago_broker.model.topics.sealing import DRAIN, MOVE, Seal, kept, seal_of, sealed, unsealed
from imago_broker.model.topics.topics import SEALED, TopicConfig

TOPIC = TopicConfig(name="t", write_queues=4, read_queues=4, attributes={"a": "b"})
CLOSED = sealed(TOPIC, until_ms=5, cause=DRAIN)


@given(write=st.integers(1, 64), extra=st.integers(0, 8), perm=st.sampled_from([2, 6, 7]))
def test_a_topic_is_what_it_was_once_its_seal_is_gone(write: int, extra: int, perm: int) -> None:
    topic = TopicConfig(name="t", write_queues=write, read_queues=write + extra, perm=perm)
    closed = sealed(topic, until_ms=7, cause=MOVE)
    assert (closed.write_queues, closed.perm) == (0, perm & ~2)
    assert closed.read_queues >= write, "what was written can be read"
    assert seal_of(closed) == Seal(write, perm, 7, MOVE)
    assert unsealed(closed) == topic
    assert TopicConfig.from_json(closed.to_json()) == closed


def test_a_seal_stays_the_first() -> None:
    assert sealed(CLOSED, until_ms=9, cause=MOVE) == CLOSED
    assert seal_of(TOPIC) is None
    assert unsealed(TOPIC) == TOPIC


def test_a_change_of_settings_neither_seals_nor_opens() -> None:
    wanted = TopicConfig(name="t", write_queues=8, read_queues=8, perm=6, attributes={"a": "c"})
    changed = kept(CLOSED, wanted)
    assert (changed.write_queues, changed.perm, changed.read_queues) == (0, 4, 8)
    assert changed.attributes["a"] == "c"
    assert unsealed(changed) == wanted, "what was asked for comes with the opening"
    only_attributes = kept(CLOSED, CLOSED.with_attributes(x="y"))
    assert seal_of(only_attributes) == seal_of(CLOSED)
    forged = TOPIC.with_attributes(sealed="1,6,0,drain")
    assert kept(None, forged) == TOPIC
    assert kept(TOPIC, forged) == TOPIC


@pytest.mark.parametrize("text", ["", "x", "1,2,3", "1,2,x,drain", "1,2,3,4,drain", "-1,6,0,drain"])
def test_a_seal_that_nobody_can_read_keeps_the_topic_closed(text: str) -> None:
    broken = TopicConfig(name="t", write_queues=0, read_queues=3, perm=4, attributes={SEALED: text})
    assert seal_of(broken) is not None
    assert (unsealed(broken).write_queues, unsealed(broken).perm) == (3, 6)


def test_the_registry_has_the_queues_of_this_shard_and_the_attributes_of_all() -> None:
    entry = placement(CLOSED, 2)
    assert entry.shards == {2: (0, 4, 4)}
    assert entry.attributes == {"a": "b"}
