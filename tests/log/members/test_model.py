"""Any order of appends, reads, restarts, kills, deletions and retention, against a dumb model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from imago_log import ReadStatus
from imago_testing.searching import examples
from imago_testing.stores.in_memory import FakeClock, Model, open_store, split_records
from imago_testing.stores.vfs import MemoryVfs
from imago_wire.record_format.tags import tag_code

DUAL, PLAIN = "dual", "plain"
VALUES: dict[str, dict[str, Any]] = {
    DUAL: {"name": DUAL},
    PLAIN: {"name": PLAIN, "attributes": {"dialects": "rocketmq"}},
}
LIMITS = {"retention_bytes": 6 * 4096}

topics = st.sampled_from([DUAL, PLAIN])
places = st.tuples(topics, st.integers(0, 2), st.integers(0, 400))


class StoreMachine(RuleBasedStateMachine):
    """One store and one process at a time; the model never restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.vfs = MemoryVfs()
        self.clock = FakeClock()
        self.model = Model()
        self.meta: dict[str, int] = {}
        self.log_end = 0
        self.epoch = 0

    @initialize()
    def start(self) -> None:
        self.store = open_store(self.vfs, self.clock, **LIMITS)
        for topic, value in VALUES.items():
            self.store.create_topic(topic, value)

    @rule(where=st.lists(places, min_size=1, max_size=12))
    def append(self, where: list[tuple[str, int, int]]) -> None:
        self.model.send(self.store, where)

    @rule(passed_ms=st.sampled_from([0, 5, 300, 4000]))
    def tick(self, passed_ms: int) -> None:
        self.clock.now_ms += passed_ms
        self.store.tick()

    @rule()
    def sync(self) -> None:
        self.store.request_sync()
        assert self.store.durable_end == self.store.log_end

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.store.close(clean=clean)
        self.open()

    @rule()
    def kill(self) -> None:
        left = self.vfs.crashed(power_loss=False)
        self.store.close(clean=False)
        self.vfs = left
        self.open()

    @rule()
    def lose_power_after_a_sync(self) -> None:
        self.store.request_sync()
        left = self.vfs.crashed(power_loss=True)
        self.store.close(clean=False)
        self.vfs = left
        self.open()

    def open(self) -> None:
        self.store = open_store(self.vfs, self.clock, **LIMITS)
        assert self.store.log_end == self.log_end
        assert self.store.epoch_seen > self.epoch
        self.epoch = self.store.epoch_seen
        self.model.check(self.store)

    @rule(topic=topics)
    def delete_and_create(self, topic: str) -> None:
        self.store.delete_topic(topic)
        assert topic not in self.store.topics()
        assert self.store.queue_range(topic, 0) == (0, 0)
        with pytest.raises(KeyError):
            self.store.tail(topic, 0)
        self.store.create_topic(topic, VALUES[topic])
        self.model.forget_topic(topic)

    @rule(key=st.sampled_from(["g1", "g2", "g3"]), value=st.none() | st.integers(0, 999))
    def put_meta(self, key: str, value: int | None) -> None:
        self.store.put_meta([("offset", key, value)])
        if value is None:
            self.meta.pop(key, None)
        else:
            self.meta[key] = value

    @rule()
    def materialise(self) -> None:
        self.store.set_materialised(DUAL)

    @rule(topic=topics, queue_id=st.integers(0, 2), tag=st.sampled_from(["t0", "t1", "t2"]))
    def read_one_tag(self, topic: str, queue_id: int, tag: str) -> None:
        expected = [
            sent.body
            for sent in self.model.sent
            if (sent.topic, sent.queue_id, sent.tag) == (topic, queue_id, tag)
            and sent.place >= self.store.log_start
        ]
        offset, high = self.store.queue_range(topic, queue_id)
        found: list[bytes] = []
        while offset < high:
            result = self.store.read(
                topic, queue_id, offset, messages_max=3, bytes_max=1500,
                tags=frozenset({tag_code(tag.encode())}),
            )  # fmt: skip
            assert result.status in (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE)
            assert result.next_offset > offset
            found += [record.body for record in split_records(result.body)]
            offset = result.next_offset
        assert found == expected

    @rule()
    def look_at_everything(self) -> None:
        self.model.check(self.store)

    @rule()
    @precondition(lambda self: self.model.sent)
    def look_up_one_record(self) -> None:
        sent = self.model.sent[-1]
        record = self.store.record_at(sent.place)
        assert record is not None
        assert split_records(record)[0].body == sent.body
        assert self.store.record_at(sent.place + 1) is None

    @invariant()
    def remember(self) -> None:
        if not hasattr(self, "store"):
            return
        assert dict(self.store.meta("offset")) == self.meta
        assert set(self.store.topics()) == set(VALUES)
        assert self.store.log_start <= self.store.durable_end <= self.store.log_end
        self.log_end = self.store.log_end

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.model.check(self.store)
            self.store.close()


StoreMachine.TestCase.settings = settings(
    max_examples=examples(60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStore = StoreMachine.TestCase
