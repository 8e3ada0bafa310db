"""Moves groups at the target to where they are at the source."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_client.errors import ClientError, UsageError
from imago_client.message_queue import MessageQueue
from imago_mirror.copier import life_of, need_of
from imago_mirror.core.assignment import QueuePlace
from imago_mirror.core.groups import TargetQueue, new_offsets
from imago_mirror.core.notes import TOPIC_PREFIX
from imago_mirror.troubles import SOURCE, TARGET
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_mirror.copier import Ends
    from imago_mirror.knowledge import Knowledge
    from imago_wire.remoting.bodies.config import SubscriptionGroupConfig


class Translating:
    """Knows what the source said of groups last: it may be away when that is needed."""

    def __init__(self, ends: Ends, knowledge: Knowledge) -> None:
        self._ends, self._knowledge = ends, knowledge
        self._settings, self._troubles = ends.settings, ends.troubles
        self._source, self._target = ends.source_client, ends.target_client
        self._consumed: Mapping[str, Mapping[str, int]] = {}
        """By group: how far it is in queues, by their names in maps."""
        self._configs: Mapping[str, SubscriptionGroupConfig] = {}

    async def ask(self) -> None:
        """Ask the source how far its groups are."""
        if not self._settings.groups:
            return
        # Named before they are asked for: a topic that is made again meanwhile has other offsets.
        names = {
            MessageQueue(queue.topic, queue.shard, queue.queue_id): need_of(queue)
            for queue in self._knowledge.note.lanes
        }
        with self._troubles.at(SOURCE, "groups"):
            found = await self._source.admin.committed_offsets()
            self._configs = await self._source.admin.groups()
        answered = {queue.shard for places in found.values() for queue in places}
        away = {name for queue, name in names.items() if queue.shard not in answered}
        self._consumed = {
            group: {name: at for name, at in self._consumed.get(group, {}).items() if name in away}
            | {names[queue]: at for queue, at in found.get(group, {}).items() if queue in names}
            for group in {*found, *(self._consumed if away else ())}
        }
        self._troubles.end("groups")

    async def translate(self) -> None:
        """Commit at the target what is new. Groups with members there go their own way."""
        wanted = [
            name
            for name in self._consumed
            if self._settings.wants_group(name) and not name.startswith((TOPIC_PREFIX, "%"))
        ]
        if not wanted:
            return
        with self._troubles.at(TARGET, "groups"):
            there = await self._target.admin.committed_offsets()
            queues = await self._queues()
        self._troubles.end("groups")
        for group in wanted:
            # One that cannot be moved, for want of rights perhaps, holds up no other.
            with suppress(ClientError, ProtocolError), self._troubles.at(TARGET, f"group {group}"):
                await self._group(group, queues, there.get(group, {}))
                self._troubles.end(f"group {group}")

    async def _queues(self) -> dict[MessageQueue, TargetQueue]:
        feeds: dict[MessageQueue, set[str]] = {}
        for queue, lane in self._knowledge.note.lanes.items():
            feeds.setdefault(MessageQueue(queue.topic, *lane.target), set()).add(need_of(queue))
        for (topic, place), map_ in self._knowledge.note.maps.items():
            # Also queues to which nothing is copied, of what came from them.
            named = {need.queue for part in map_.parts for need in part.needs}
            if named:
                feeds.setdefault(MessageQueue(topic, *place), set()).update(named)
        firsts: dict[MessageQueue, int] = {}
        for topic, shard in {(queue.topic, queue.shard) for queue in feeds}:
            ids = [q.queue_id for q in feeds if (q.topic, q.shard) == (topic, shard)]
            bounds = await self._ends.target.shard_bounds(topic, shard, max(ids) + 1)
            if bounds is not None:
                self._knowledge.note_target(topic, shard, life_of(bounds))
            for queue_id, (first, _) in enumerate(bounds.queues if bounds else ()):
                firsts[MessageQueue(topic, shard, queue_id)] = first
        return {
            queue: TargetQueue(
                firsts[queue],
                self._knowledge.map_of(queue.topic, QueuePlace(queue.shard, queue.queue_id)),
                frozenset(names),
            )
            for queue, names in feeds.items()
            if queue in firsts
        }

    async def _group(
        self,
        group: str,
        queues: Mapping[MessageQueue, TargetQueue],
        there: Mapping[MessageQueue, int],
    ) -> None:
        consumed = self._consumed[group]
        if not consumed:
            return
        of_topics = {queue.topic for queue in self._knowledge.note.lanes}
        moves = new_offsets(
            {queue: known for queue, known in queues.items() if queue.topic in of_topics},
            consumed,
            there,
        )
        state = self._knowledge.groups.setdefault(group, {"members": 0, "moved": 0})
        if not moves:
            return
        found = await self._target.admin.describe_group(group)
        state["members"] = len(found.members)
        if found.members:
            return
        config = self._configs.get(group)
        if config is not None and await self._target.admin.group_settings(group) is None:
            await self._target.admin.create_group(replace(config, broker_id=0))
        try:
            consumer = self._target.pull_consumer(group)
        except UsageError as error:
            raise ClientError(f"group {group}: {error}") from error
        for queue, offset in sorted(moves.items()):
            if queue not in there and (await consumer.committed(queue) or 0) > offset:
                continue  # nobody led its shard when all were asked
            await consumer.commit(queue, offset)
            state["moved"] += 1
