"""A new configuration for a running broker."""

from __future__ import annotations

from imago_broker.config import load
from imago_broker.config.changes import compare

OLD = """
[metaq]
port = 1
default_partitions = 2
[topics.a]
queues = 1
[topics.b]
queues = 1
"""


def test_equal_configurations_change_nothing() -> None:
    changes = compare(load(OLD), load(OLD))
    assert changes.config == load(OLD)
    assert (changes.applied, changes.waiting, dict(changes.topics)) == ((), (), {})


def test_dynamic_keys_apply_and_others_wait() -> None:
    new = OLD.replace("port = 1", "port = 9").replace("default_partitions = 2", "stat = true")
    changes = compare(load(OLD), load(new))
    assert set(changes.applied) == {"metaq.default_partitions", "metaq.stat"}
    assert changes.waiting == ("metaq.port",)
    assert changes.config.metaq.port == 1
    assert changes.config.metaq.stat
    assert changes.config.metaq.default_partitions == 8


def test_topics_that_are_new_or_different_are_named_and_none_is_taken_away() -> None:
    new = "[topics.a]\nqueues = 1\n[topics.b]\nqueues = 4\n[topics.c]\n"
    changes = compare(load(OLD), load(new))
    assert changes.topics == {"b": {"queues": 4}, "c": {}}
    assert set(changes.config.topics) == {"a", "b", "c"}
