"""Which topics are copied, their settings at the target, and which queue goes where."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from imago_client.errors import ClientError, NoRouteError
from imago_client.message_queue import MessageQueue
from imago_mirror.copier import Ends, life_of
from imago_mirror.core.assignment import QueuePlace, assign, queues_wanted
from imago_mirror.core.notes import TOPIC_PREFIX, CopiedQueue
from imago_mirror.core.origins import SourceQueue
from imago_mirror.core.positions import CopyPosition
from imago_mirror.troubles import SOURCE, TARGET
from imago_wire.errors import ProtocolError
from imago_wire.system_topics import SYSTEM_TOPICS, is_system

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from imago_mirror.core.notes import MirrorNote
    from imago_mirror.knowledge import Knowledge
    from imago_wire.remoting.bodies.config import TopicConfig

ASKED_AT_ONCE_MAX: Final = 16
"""Topics that are looked at side by side."""
_NOT_FOLLOWED: Final = ("materialised", "sealed", "metaq.begin.")
"""Attributes that brokers keep for themselves."""
_PERM_WRITE: Final = 2
_TYPES_THAT_STAY: Final = ("LITE", "PRIORITY")
"""Brokers choose the queue of their messages themselves."""


class TopicFollowing:
    """Looks at the topics of both sides, and notes a lane for each source queue."""

    def __init__(
        self,
        ends: Ends,
        knowledge: Knowledge,
        halt: Callable[[Iterable[SourceQueue]], Awaitable[None]],
        newest: Callable[[], Awaitable[MirrorNote | None]],
    ) -> None:
        """`halt`: returns once queues are not being copied any more; `newest`: the last note of
        any mirror of the name."""
        self._halt, self._newest = halt, newest
        self._reading = asyncio.Lock()
        self._noted: tuple[MirrorNote | None] | None = None
        """What was read of it in this look."""
        self._ends, self._knowledge = ends, knowledge
        self._settings, self._troubles = ends.settings, ends.troubles
        self._source, self._target = ends.source_client, ends.target_client
        self._places = self._target.producer()
        self.source_cluster = ""
        self.changed = False
        """Whether a lane was noted, or went to another queue, since the last note."""

    async def look(self) -> list[SourceQueue]:
        """Return the queues to copy. ClientError: a side cannot be asked at all."""
        with self._troubles.at(SOURCE, "topics"):
            names = await self._source.admin.topics()
            clusters = {shard.cluster for shard in await self._source.admin.shards()}
        self._troubles.end("topics")
        wanted = [
            name
            for name in names
            if self._settings.wants_topic(name)
            and not name.startswith(("%", TOPIC_PREFIX))
            and not is_system(name, clusters)
        ]
        self._note_missing(names)
        with self._troubles.at(TARGET, "shards"):
            shards = len(await self._target.admin.shards())
        self._troubles.end("shards")
        self._noted = None
        gate = asyncio.Semaphore(ASKED_AT_ONCE_MAX)

        async def looked(name: str) -> list[SourceQueue]:
            async with gate:
                try:
                    return await self._topic(name, shards)
                except (ClientError, ProtocolError) as error:
                    if isinstance(error, NoRouteError):  # nobody leads it: its queues wait
                        self._troubles.note("SourceAway", name, str(error))
                    return [queue for queue in self._knowledge.note.lanes if queue.topic == name]

        found = await asyncio.gather(*map(looked, wanted))
        return [queue for queues in found for queue in queues]

    def _note_missing(self, names: list[str]) -> None:
        there = set(names)
        for name in self._settings.topics_by_name:
            if name in SYSTEM_TOPICS or name.startswith(("%", TOPIC_PREFIX)):
                self._troubles.note("NotMirrored", name, f"topic {name} is the brokers' own")
            elif name not in there:
                self._troubles.note("TopicMissing", name, f"the source has no topic {name}")
            else:
                self._troubles.over("TopicMissing", name)

    async def _topic(self, topic: str, target_shards: int) -> list[SourceQueue]:
        with self._troubles.at(SOURCE, topic):
            settings = await self._source.admin.topic_settings(topic)
            sources = await self._sources(topic)
        kinds = {(each.attributes or {}).get("message.type") for each in settings.values()}
        if kinds & set(_TYPES_THAT_STAY):
            self._troubles.note(
                "NotMirrored", topic, f"it is of the type {', '.join(map(str, kinds))}"
            )
            return []
        places = [QueuePlace(queue.shard, queue.queue_id) for queue in sources]
        with self._troubles.at(TARGET, topic):
            # A route may be older than what another mirror of the name has seen to.
            made = await self._ensure(topic, queues_wanted(places, target_shards), settings)
            routed = {QueuePlace(q.shard, q.queue_id) for q in await self._places.queues(topic)}
            targets = sorted(routed | made)
            await self._note_target(topic, targets)
            await self._lanes(topic, sources, targets)
        self._troubles.end(topic)
        return [queue for queue in sources if queue in self._knowledge.note.lanes]

    async def _sources(self, topic: str) -> list[SourceQueue]:
        reader, found = self._ends.source, list[SourceQueue]()
        queues = await reader.queues(topic)
        for shard in sorted({queue.shard for queue in queues}):
            ids = [queue.queue_id for queue in queues if queue.shard == shard]
            bounds = await reader.shard_bounds(topic, shard, max(ids) + 1)
            if bounds is None or bounds.cluster_id is None:
                raise ClientError(
                    f"topic {topic}: its brokers do not tell which topic it is; a static topic, or"
                    " brokers that are not Imago's, or of 0.1"
                )
            self.source_cluster = bounds.cluster_id
            for queue_id in ids:
                queue = SourceQueue(bounds.cluster_id, topic, life_of(bounds), shard, queue_id)
                found.append(queue)
                if queue_id < len(bounds.queues):
                    self._knowledge.ends[queue] = bounds.queues[queue_id][1]
        lost = {(queue.shard, queue.queue_id) for queue in await reader.lost_queues(topic)}
        found += [
            queue
            for queue in self._knowledge.note.lanes
            if queue.topic == topic and (queue.shard, queue.queue_id) in lost
        ]
        return found

    async def _ensure(
        self, topic: str, queues: int, settings: Mapping[str, TopicConfig]
    ) -> set[QueuePlace]:
        """Have the target's topic be like the source's: as many queues, and its attributes.

        Return the queues that it has then, as far as its masters say.
        """
        attributes = {
            name: value
            for config in settings.values()
            for name, value in (config.attributes or {}).items()
            if not name.startswith(_NOT_FOLLOWED)
        }
        admin = self._target.admin
        there = await admin.topic_settings(topic)
        if not there:
            await admin.create_topic(topic, queues=queues, attributes=attributes)
            return set()
        # A shard that is drained takes none, however often it is asked.
        open_ = {
            shard: each.write_queue_nums for shard, each in there.items() if each.perm & _PERM_WRITE
        }
        wanted = max((queues, *open_.values()))
        grows = any(count < queues for count in open_.values())
        lacks = {
            name: value
            for name, value in attributes.items()
            if any((config.attributes or {}).get(name) != value for config in there.values())
        }
        if grows or lacks:
            await admin.alter_topic(topic, queues=wanted if grows else None, attributes=lacks)
        return {
            QueuePlace(shard, number)
            for shard, count in open_.items()
            for number in range(wanted if grows else count)
        }

    async def _note_target(self, topic: str, targets: list[QueuePlace]) -> None:
        for shard in {place.shard for place in targets}:
            most = max(place.queue_id for place in targets if place.shard == shard)
            bounds = await self._ends.target.shard_bounds(topic, shard, most + 1)
            if bounds is not None:
                self._knowledge.note_target(topic, shard, life_of(bounds))

    async def _lanes(
        self, topic: str, sources: list[SourceQueue], targets: list[QueuePlace]
    ) -> None:
        lanes = self._knowledge.note.lanes
        before: dict[QueuePlace, QueuePlace] = {}
        for queue in [queue for queue in lanes if queue.topic == topic]:
            if queue in sources:
                before[QueuePlace(queue.shard, queue.queue_id)] = lanes[queue].target
            else:  # its topic, or its shard, has gone
                await self._halt([queue])
                self._knowledge.forget(queue)
        await self._adopt([queue for queue in sources if queue not in lanes], targets, before)
        made = assign((QueuePlace(q.shard, q.queue_id) for q in sources), targets, before)
        for queue in sources:
            place = made.get(QueuePlace(queue.shard, queue.queue_id))
            lane = lanes.get(queue)
            if place is None or (lane is not None and lane.target == place):
                continue
            self.changed = True
            if lane is None:
                lanes[queue] = CopiedQueue(place, 0, CopyPosition(0, 0, 0, 0, -1))
                continue
            await self._halt([queue])  # what it is sending counts for the place before
            end = await self._ends.target.max_offset(MessageQueue(topic, *place))
            position = lane.position.anew().unfounded()._replace(floor=end)
            lanes[queue] = CopiedQueue(
                place, self._knowledge.target_incarnations.get((topic, place.shard), 0), position
            )

    async def _adopt(
        self,
        new: list[SourceQueue],
        targets: list[QueuePlace],
        before: dict[QueuePlace, QueuePlace],
    ) -> None:
        """Have queues go where another mirror of the name copies them to already."""
        if not new:
            return
        async with self._reading:
            if self._noted is None:
                self._noted = (await self._newest(),)
        (note,) = self._noted
        if note is None:
            return
        for queue in new:
            lane = note.lanes.get(queue)
            if lane is not None and lane.target in targets:
                before[QueuePlace(queue.shard, queue.queue_id)] = lane.target
