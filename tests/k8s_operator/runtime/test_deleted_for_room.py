"""What a shard deletes for want of room is an event: one a stretch, however often it is seen."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from imago_operator.brokers.answers import registry_of
from imago_operator.model.state import written
from imago_operator.reporting.room import CALM, stretches
from imago_operator.spec.cluster.cluster_status import ClusterStatus, DeletedForRoom, ShardStatus
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.things import START

WENT = DeletedForRoom(start=0, end=4096, messages=12, at=written(START))


def status(went: DeletedForRoom | None, *, shard: int = 0) -> ClusterStatus:
    return ClusterStatus(shards=(ShardStatus(id=shard, phase="Serving", deleted_for_room=went),))


def later(went: DeletedForRoom, by: timedelta, **changes: Any) -> DeletedForRoom:
    return replace(went, at=written(START + by), **changes)


def test_a_stretch_is_told_of_once_with_its_amount_and_what_to_do() -> None:
    [text] = stretches(status(None), status(WENT))
    assert "shard-0: 12 messages (4096 bytes of its log)" in text
    assert WENT.at in text
    assert "Give the disks room" in text
    grown = later(WENT, CALM - timedelta(seconds=1), end=8192, messages=30)
    for before, after in ((WENT, WENT), (WENT, grown), (grown, grown), (WENT, None)):
        assert not list(stretches(status(before), status(after)))


@pytest.mark.parametrize(
    ("before", "after", "amount"),
    [
        (WENT, replace(WENT, start=9000, end=10000, messages=3), "3 messages (1000 bytes"),
        (WENT, later(WENT, CALM, end=5096, messages=13), "1 message (1000 bytes"),
    ],
)
def test_what_begins_elsewhere_or_much_later_is_another_stretch(
    before: DeletedForRoom, after: DeletedForRoom, amount: str
) -> None:
    [text] = stretches(status(before), status(after))
    assert amount in text


def test_each_shard_is_told_of() -> None:
    [text] = stretches(status(WENT), status(WENT, shard=1))
    assert text.startswith("shard-1:")


def test_what_brokers_answer_is_read_and_what_older_ones_lack_is_nothing() -> None:
    said: dict[str, Any] = {"id": 0, "deletedForRoom": None}
    went = {"from": 0, "to": 4096, "messages": 12, "at": int(START.timestamp() * 1000)}
    for answer, expected in (
        ({"id": 0}, None),
        (said, None),
        (said | {"deletedForRoom": went}, WENT),
    ):
        assert registry_of({"shards": [answer]}).shards[0].deleted_for_room == expected


class Deleting:
    """A cluster of two shards that delete what they are told to, and the events about it."""

    def __init__(self) -> None:
        found = manifest(CLUSTER, {"spec.brokers.shards": 2})
        found["metadata"]["namespace"] = "mq"
        self.made = OperatedCluster(found)
        self.made.run()
        self.events: list[tuple[str, str]] = []

    async def note(self, _: object, type_: str, reason: str, message: str) -> None:
        if reason == "DeletedForRoom":
            self.events.append((type_, message))

    def says(self, shard: int, went: DeletedForRoom | None) -> None:
        """Have the master say so, and the operator look many times."""
        shards = self.made.world.shards
        shards[shard] = replace(shards[shard], deleted_for_room=went)
        self.made.reconciler._kube.event = self.note  # type: ignore[method-assign,assignment]

        async def looks() -> None:
            for _ in range(30):
                await self.made.look()

        asyncio.run(looks())

    def status(self, shard: int) -> Any:
        return self.made.cluster["status"]["shards"][shard]["deletedForRoom"]


def test_a_cluster_gets_one_event_a_stretch_also_of_an_operator_that_has_just_begun() -> None:
    shards = Deleting()
    shards.says(0, WENT)
    [(type_, message)] = shards.events
    assert type_ == "Warning"
    assert message.startswith("shard-0: 12 messages")
    grown = replace(WENT, end=8192, messages=30)
    shards.says(0, grown)
    kept = shards.status(0)
    assert (kept["end"], kept["messages"]) == (8192, 30), "the status goes on"
    shards.says(0, None)
    assert shards.status(0) == kept, "its master does not answer"
    shards.made.start()
    shards.says(0, grown)
    assert len(shards.events) == 1
    shards.says(1, WENT)
    assert [message[:8] for _, message in shards.events] == ["shard-0:", "shard-1:"]
    assert shards.made.condition("Ready") == ("True", "AllShardsServing")
