"""Groups are moved each by itself, never back, also where a shard has no master for a moment."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from imago_client.errors import BrokerError
from imago_client.message_queue import MessageQueue
from imago_client.messages import ShardBounds
from imago_mirror.copier import need_of
from imago_mirror.core.assignment import QueuePlace
from imago_mirror.core.notes import CopiedQueue
from imago_mirror.core.origins import SourceQueue
from imago_mirror.core.positions import CopyPosition
from imago_mirror.knowledge import Knowledge
from imago_mirror.translating import Translating
from imago_mirror.troubles import MirrorTroubles
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

QUEUES = [SourceQueue("A", "orders", 7, f"shard-{number}", 0) for number in range(2)]
PLACES = [MessageQueue("orders", queue.shard, 0) for queue in QUEUES]
LIFE = 9


class PlayedSide:
    """The groups of a cluster of which some shards may have no master."""

    def __init__(self) -> None:
        self.offsets: dict[str, dict[MessageQueue, int]] = {}
        self.led = {"shard-0", "shard-1"}
        self.refused = ""
        self.admin = self

    async def committed_offsets(self) -> Mapping[str, Mapping[MessageQueue, int]]:
        return {
            group: {queue: at for queue, at in places.items() if queue.shard in self.led}
            for group, places in self.offsets.items()
        }

    async def groups(self) -> dict[str, Any]:
        return {}

    async def describe_group(self, group: str) -> Any:
        if group == self.refused:
            raise BrokerError("b:1", ResponseCode.NO_PERMISSION, "it may not")
        return SimpleNamespace(members=())

    async def shard_bounds(self, topic: str, shard: str, count: int) -> ShardBounds:
        del topic, shard
        return ShardBounds(((0, 100),) * count, LIFE, LIFE, "B")

    def pull_consumer(self, group: str) -> Any:
        places = self.offsets.setdefault(group, {})

        async def commit(queue: MessageQueue, offset: int) -> None:
            places[queue] = offset

        async def committed(queue: MessageQueue) -> int | None:
            return places.get(queue)

        return SimpleNamespace(commit=commit, committed=committed)


def translating(source: PlayedSide, target: PlayedSide) -> tuple[Translating, MirrorTroubles]:
    knowledge, troubles = Knowledge(), MirrorTroubles()
    for queue in QUEUES:
        place = QueuePlace(queue.shard, 0)
        knowledge.note_target("orders", queue.shard, LIFE)
        knowledge.note.lanes[queue] = CopiedQueue(place, LIFE, CopyPosition(50, 50, 0, 50, 50))
        knowledge.map_of("orders", place).note(need_of(queue), 0, 0, 50)
    ends: Any = SimpleNamespace(
        settings=SimpleNamespace(groups=("g",), wants_group=bool),
        troubles=troubles,
        source_client=source,
        target_client=target,
        target=target,
    )
    return Translating(ends, knowledge), troubles


def test_a_group_that_cannot_be_moved_holds_up_no_other() -> None:
    source, target = PlayedSide(), PlayedSide()
    source.offsets = {name: dict.fromkeys(PLACES, 20) for name in ("a", "b", "c")}
    target.refused = "b"
    moving, troubles = translating(source, target)

    async def moved() -> None:
        await moving.ask()
        await moving.translate()
        assert target.offsets == {name: dict.fromkeys(PLACES, 20) for name in ("a", "c")}
        assert [(one.reason, one.subject) for one in troubles.all()] == [
            ("TargetRefused", "group b")
        ]
        target.refused = ""
        await moving.translate()
        assert target.offsets["b"] == dict.fromkeys(PLACES, 20)
        assert troubles.all() == []

    asyncio.run(moved())


def test_a_target_shard_that_nobody_led_when_it_was_asked_keeps_its_offset() -> None:
    source, target = PlayedSide(), PlayedSide()
    source.offsets = {"g": dict.fromkeys(PLACES, 20)}
    target.offsets = {"g": {PLACES[0]: 10, PLACES[1]: 70}}
    target.led = {"shard-0"}
    moving, _ = translating(source, target)

    async def moved() -> None:
        await moving.ask()
        await moving.translate()

    asyncio.run(moved())
    assert target.offsets["g"] == {PLACES[0]: 20, PLACES[1]: 70}


def test_what_a_source_shard_said_last_counts_while_nobody_leads_it() -> None:
    source, target = PlayedSide(), PlayedSide()
    source.offsets = {"g": dict.fromkeys(PLACES, 20), "gone": {PLACES[0]: 5}}
    moving, _ = translating(source, target)

    async def moved() -> None:
        await moving.ask()
        source.led = {"shard-0"}
        source.offsets["g"][PLACES[0]] = 30
        del source.offsets["gone"]
        await moving.ask()
        await moving.translate()

    asyncio.run(moved())
    assert target.offsets["g"] == {PLACES[0]: 30, PLACES[1]: 20}
    assert not target.offsets.get("gone"), "it was deleted"
