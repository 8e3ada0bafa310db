"""Puts of a shard with several members: refused in time, acknowledged only while that is safe."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.service.puts.gate import ShardGate
from imago_broker.service.puts.messages import MessageService
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.stores.manual import ManualStore
from imago_testing.virtual.clocks import ManualClock
from imago_wire.records.record import QueueTail, make_entry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from imago_log.store import MessageStore
    from imago_wire.records.record import Placed

LEADER, FSYNC, REPLICATED, BOTH = Acknowledgement


class Shard:
    """A service behind a gate that is open, with a lease of a second."""

    def __init__(self) -> None:
        self.store, self.clock = ManualStore(), ManualClock()
        store = cast("MessageStore", self.store)
        self.gate = ShardGate(store, self.clock)
        self.gate.accept(replicated=True)
        self.gate.lease_end_ms = self.clock.monotonic_ms() + 1000
        self.tail = QueueTail(b"t", 0, dual=True)
        self.answers: dict[object, PutStatus] = {}
        self.arrivals: list[set[QueueTail]] = []
        self.service = MessageService(
            store,
            loop=asyncio.get_running_loop(),
            clock=self.clock,
            level_of=lambda _: REPLICATED,
            timeout_ms=50,
            gate=self.gate,
        )
        self.service.on_arrival(self._arrived)

    async def put(self, token: object, level: Acknowledgement | None) -> None:
        entry = make_entry(self.tail, b"x", born_ms=1, born_host=bytes(8))
        self.service.put_one(entry, level, self._done, token)
        await asyncio.sleep(0)

    async def until_answered(self, *tokens: object) -> None:
        while not set(tokens) <= self.answers.keys():
            self.clock.advance(10)
            await asyncio.sleep(0.005)

    def _done(self, token: Any, status: PutStatus, _: Sequence[Placed]) -> None:
        assert token not in self.answers
        self.answers[token] = status

    def _arrived(self, tails: Iterable[QueueTail]) -> None:
        self.arrivals.append(set(tails))


@pytest.fixture
async def shard() -> AsyncIterator[Shard]:
    made = Shard()
    yield made
    made.service.acknowledgements.close()


async def test_put_without_a_lease_is_refused_before_the_append(shard: Shard) -> None:
    shard.clock.advance(1000)
    for level in Acknowledgement:
        await shard.put(level, level)
    assert set(shard.answers.values()) == {PutStatus.NOT_WRITABLE}
    assert shard.store.appended == []


async def test_member_that_does_not_lead_takes_nothing(shard: Shard) -> None:
    shard.gate.close()
    await shard.put("one", LEADER)
    assert shard.answers == {"one": PutStatus.NOT_WRITABLE}


@pytest.mark.parametrize("level", [REPLICATED, BOTH, None])
async def test_too_few_in_sync_members_refuse_what_waits_for_them(
    shard: Shard, level: Acknowledgement | None
) -> None:
    shard.gate.accept(replicated=False)
    shard.service.put_one(
        make_entry(shard.tail, b"x", born_ms=1, born_host=bytes(8)), LEADER, shard._done, "leader"
    )
    await shard.put("replicated", level)
    assert shard.answers == {"replicated": PutStatus.TOO_FEW_IN_SYNC, "leader": PutStatus.OK}
    assert [len(entries) for entries in shard.store.appended] == [1]


async def test_answer_waits_when_the_lease_ends_between_append_and_answer(shard: Shard) -> None:
    append = shard.store.append

    def slow(entries: Sequence[Any], **options: bool) -> list[Any]:
        shard.clock.advance(1000)
        return append(entries, **options)

    shard.store.append = slow  # type: ignore[method-assign]  # a disk that hangs
    await shard.put("one", LEADER)
    assert shard.answers == {}
    shard.gate.lease_end_ms += 1000
    shard.service.acknowledgements.progressed()
    assert shard.answers == {"one": PutStatus.OK}


async def test_progress_without_a_lease_answers_nobody(shard: Shard) -> None:
    await shard.put("one", REPLICATED)
    shard.store.replicate_to(100)
    shard.gate.lease_end_ms = 0
    shard.service.acknowledgements.progressed()
    assert shard.answers == {}
    await shard.until_answered("one")
    assert shard.answers == {"one": PutStatus.NOT_WRITABLE}


async def test_replicated_put_is_not_confirmed_by_a_set_that_has_shrunk(shard: Shard) -> None:
    await shard.put("before", REPLICATED)
    shard.store.replicate_to(100)
    await shard.put("one", REPLICATED)
    assert shard.answers == {"before": PutStatus.OK}
    shard.gate.accept(replicated=False)
    shard.store.replicate_to(200)
    shard.service.acknowledgements.progressed()
    assert "one" not in shard.answers
    await shard.until_answered("one")
    assert shard.answers["one"] is PutStatus.SLAVE_UNAVAILABLE


async def test_replicated_put_is_confirmed_when_the_set_has_grown_again(shard: Shard) -> None:
    await shard.put("one", REPLICATED)
    shard.gate.accept(replicated=False)
    shard.store.replicate_to(100)
    shard.gate.accept(replicated=True)
    shard.service.acknowledgements.progressed()
    assert shard.answers == {"one": PutStatus.OK}


async def test_nobody_waits_for_members_of_a_shard_that_another_leads(shard: Shard) -> None:
    await shard.put("one", REPLICATED)
    shard.gate.close()
    shard.service.acknowledgements.release_all(PutStatus.NOT_WRITABLE)
    shard.service.acknowledgements.when_replicated(shard._done, "late")
    assert shard.answers == {"one": PutStatus.NOT_WRITABLE, "late": PutStatus.NOT_WRITABLE}
    assert not shard.service.in_flight, "the next leadership's log may end before"


async def test_change_waits_for_members_that_are_about_to_join(shard: Shard) -> None:
    await shard.put("leader", LEADER)
    shard.gate.accept(replicated=False)
    shard.service.acknowledgements.when_replicated(shard._done, "change")
    assert "change" not in shard.answers
    shard.gate.accept(replicated=True)
    shard.store.replicate_to(100)
    shard.service.acknowledgements.progressed()
    assert shard.answers["change"] is PutStatus.OK


async def test_change_is_answered_at_once_where_too_few_have_been_in_sync_for_long(
    shard: Shard,
) -> None:
    await shard.put("leader", LEADER)
    shard.gate.count(replicated=False)
    shard.clock.advance(shard.service.acknowledgements.timeout_ms - 1)
    shard.gate.count(replicated=False)
    shard.service.acknowledgements.when_replicated(shard._done, "waits")
    assert "waits" not in shard.answers
    shard.clock.advance(1)
    shard.gate.accept(replicated=False)
    shard.service.acknowledgements.when_replicated(shard._done, "at once")
    assert shard.answers["at once"] is PutStatus.SLAVE_UNAVAILABLE
    assert "waits" not in shard.answers, "somebody may still join in time"
    shard.gate.accept(replicated=True)
    shard.store.replicate_to(100)
    shard.service.acknowledgements.progressed()
    assert shard.answers["waits"] is PutStatus.OK
    shard.service.acknowledgements.when_replicated(shard._done, "confirmed")
    assert shard.answers["confirmed"] is PutStatus.OK


async def test_what_all_had_before_they_were_too_few_is_confirmed_for_ever(shard: Shard) -> None:
    await shard.put("one", REPLICATED)
    shard.store.replicate_to(100)
    shard.service.acknowledgements.progressed()
    shard.gate.count(replicated=False)
    shard.clock.advance(shard.service.acknowledgements.timeout_ms)
    shard.service.acknowledgements.when_replicated(shard._done, "question")
    assert shard.answers["question"] is PutStatus.OK, "nothing has come to the log since"


async def test_the_first_moments_of_a_leadership_are_waited_for(shard: Shard) -> None:
    await shard.put("leader", LEADER)
    shard.gate.count(replicated=False)
    shard.clock.advance(shard.service.acknowledgements.timeout_ms)
    shard.gate.close()
    shard.gate.accept(replicated=False)
    shard.service.acknowledgements.when_replicated(shard._done, "change")
    assert "change" not in shard.answers, "members that followed another are about to join"


async def test_slow_members_are_named_by_the_answer(shard: Shard) -> None:
    await shard.put("one", REPLICATED)
    await shard.until_answered("one")
    assert shard.answers == {"one": PutStatus.SLAVE_TIMEOUT}


async def test_both_disks_and_members_are_waited_for(shard: Shard) -> None:
    await shard.put("one", BOTH)
    shard.store.replicate_to(100)
    shard.store.durable_end = 100
    shard.service.acknowledgements.progressed()
    assert shard.answers == {}
    shard.gate.durable_end = 100
    shard.service.acknowledgements.progressed()
    assert shard.answers == {"one": PutStatus.OK}


async def test_what_a_member_alone_has_is_not_acknowledged_once_it_gives_up_to_lead(
    shard: Shard,
) -> None:
    await shard.put("synced", FSYNC)
    await shard.put("everywhere", REPLICATED)
    shard.gate.alone = False
    await shard.put("written", LEADER)
    shard.store.durable_end = 200
    shard.store.replicate_to(200)
    shard.service.acknowledgements.progressed()
    assert shard.answers == {"everywhere": PutStatus.OK}
    await shard.until_answered("synced")
    assert shard.answers["synced"] is PutStatus.NOT_WRITABLE
    shard.gate.accept(replicated=True)
    await shard.put("again", LEADER)
    assert shard.answers["again"] is PutStatus.OK


async def test_readers_hear_of_messages_that_every_in_sync_member_has(shard: Shard) -> None:
    await shard.put("one", LEADER)
    assert shard.answers == {"one": PutStatus.OK}
    assert shard.arrivals == []
    shard.store.replicate_to(100)
    shard.service.acknowledgements.progressed()
    shard.service.acknowledgements.progressed()
    assert shard.arrivals == [{shard.tail}]


async def test_watermark_that_is_at_the_end_already_tells_readers_in_the_same_turn(
    shard: Shard,
) -> None:
    shard.store.replicate_to(100)
    await shard.put("one", LEADER)
    assert shard.arrivals == [{shard.tail}]


async def test_whoever_waits_for_an_offset_is_told_once_when_it_is_visible(shard: Shard) -> None:
    told: list[str] = []
    shard.service.when_visible(0, lambda: told.append("at once"))
    shard.service.when_visible(200, lambda: told.append("later"))
    assert told == ["at once"]
    for end in (100, 200, 300):
        shard.store.replicate_to(end)
        shard.service.acknowledgements.progressed()
    assert told == ["at once", "later"]


async def test_nobody_waits_for_offsets_of_a_leadership_that_has_ended(shard: Shard) -> None:
    told: list[str] = []
    shard.service.when_visible(200, lambda: told.append("never"))
    await shard.put("one", REPLICATED)
    shard.service.acknowledgements.release_all(PutStatus.NOT_WRITABLE)
    shard.store.replicate_to(300)
    shard.service.acknowledgements.progressed()
    assert told == []
    assert shard.arrivals == []
    assert shard.answers == {"one": PutStatus.NOT_WRITABLE}
