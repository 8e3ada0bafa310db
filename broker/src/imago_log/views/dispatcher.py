"""From the log to the views, in order: used when a start reads the log again.

While the store runs, the record builder makes the queue units itself, and the store hands the
written bytes to the key index: the same entries by a shorter way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.errors import ViewsInvalidError
from imago_log.metadata.changes import META_TOPIC, TOPIC_KIND, Topic, decode_changes
from imago_log.views.units.lost import is_possible, lose_before, lose_gap
from imago_wire.record_format.sequences import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_log.commitlog.damage import Damage
    from imago_log.metadata.state import Metadata
    from imago_log.views.key_index import KeyIndex
    from imago_log.views.queues.queues import Queues
    from imago_log.views.units.consume_queue import ConsumeQueue
    from imago_wire.records.record import RecordView

logger = logging.getLogger(__name__)


REVIVED_QUEUES_MAX = 65_536
"""No topic has more queues: a record behind damage that speaks of one is not believed."""


class Dispatcher:
    """Takes the records of the log in order; remembers the newest time and MetaQ id."""

    def __init__(
        self,
        metadata: Metadata,
        queues: Queues,
        keys: KeyIndex,
        damage: Damage,
        *,
        log_start: int,
        queues_from: int,
        only_metadata: bool = False,
    ) -> None:
        """The queue files hold everything below `queues_from` already, deletions included."""
        self.metadata, self.queues, self.keys = metadata, queues, keys
        self._damage, self._log_start = damage, log_start
        self.store_ms = self.metaq_id = self.count = 0
        self._queues_from = queues_from
        self._metadata_from = metadata.end
        self.revived: set[str] = set()
        """Topics whose creation is lost in damage, made again from what their records say."""
        # A snapshot of the metadata holds their state where it ends.
        metadata.producers.reach(metadata.end)
        self._sequenced = False
        """Whether the block at hand has messages of idempotent producers."""
        self._only_metadata = only_metadata

    def block(self, data: bytes, log_offset: int, views: list[RecordView]) -> None:
        """Take whole records: `data` starts at `log_offset` and ends where the last one ends."""
        self._sequenced = MARK in data
        for view in views:
            self._record(data, view)
        if views:
            self.metadata.producers.reach(log_offset + len(data))
            self.count += len(views)
            self.store_ms = max(self.store_ms, views[-1].store_ms)
            if not self._only_metadata and log_offset + len(data) > self.keys.end:
                self._keys(data, log_offset, views)

    def _keys(self, data: bytes, log_offset: int, views: list[RecordView]) -> None:
        start = max(self.keys.end, log_offset) - log_offset
        at = next((view.at for view in views if view.at >= start), None)
        if at is not None:
            self.keys.add(log_offset + at, data[at:])
            self.keys.digest()

    def _record(self, data: bytes, view: RecordView) -> None:
        self.metaq_id = max(self.metaq_id, view.metaq_id)
        name = view.topic.decode("utf-8", "replace")
        if name == META_TOPIC:
            self._meta(data, view)
        elif self._damage.ranges:
            self._revive(name, view)
        if self._sequenced:
            self.metadata.producers.record(data, view)
        if self._only_metadata or not view.has_unit or view.physical_offset < self._queues_from:
            return
        try:
            topic = self.metadata.topic(name)
        except KeyError:
            return  # deleted meanwhile
        if view.physical_offset >= topic.birth:  # else of an earlier topic of this name
            self._index(topic, view)

    def _index(self, topic: Topic, view: RecordView) -> None:
        queue = self.queues.get(topic, view.queue_id)
        if view.queue_offset > queue.end and not self._reach(queue, topic, view):
            logger.error("queue.record-left-out queue=%s/%d end=%d offset=%d log_offset=%d",
                         topic.name, view.queue_id, queue.end, view.queue_offset,
                         view.physical_offset)  # fmt: skip
            return
        if not _add(queue, view):
            raise ViewsInvalidError(f"{topic.name}/{view.queue_id} has positions, but no units")

    def _reach(self, queue: ConsumeQueue, topic: Topic, view: RecordView) -> bool:
        """Let a queue end where a record behind its end is; false: the record is not of it."""
        offset, place = view.queue_offset, view.physical_offset
        if not is_possible(offset, place):
            return False
        record = (offset, place, view.metaq_position)
        lose_before(queue, self._damage, topic.birth, self._log_start, record)
        from_files = self._queues_from > self._log_start
        if offset == queue.end or not (queue.end or queue.exists or from_files):
            return True
        if from_files:
            # A queue that seems to begin here has lost its files: it may have more before.
            raise ViewsInvalidError(
                f"{topic.name}/{view.queue_id} ends at {queue.end}, the log goes on at {offset}"
            )
        return lose_gap(queue, self._damage, topic.birth, record)

    def _revive(self, name: str, view: RecordView) -> None:
        """Make a topic again that has records though nothing says that it was created."""
        place, count = view.physical_offset, view.queue_id + 1
        topic = self.metadata.topics.get(name)
        if place < self.metadata.end:
            return  # what the log says of topics here is known as it is later
        if count > REVIVED_QUEUES_MAX:
            logger.error("topic.not-revived topic=%s queue=%d log_offset=%d: no topic has so many "
                         "queues", name, view.queue_id, place)  # fmt: skip
            return
        if topic is not None:
            if name not in self.revived or topic.value.get("read_queues", count) >= count:
                return
            content = topic.fixed
        else:
            lost = self._damage.last_in(self._metadata_from, place)
            if lost is None:
                return
            birth = max(lost.start, self._metadata_from)
            dual = view.metaq_position >= 0
            content = {"incarnation": place + 1, "birth": birth, "dual": dual}
        value = {"read_queues": count, "write_queues": count, "dual": content["dual"]}
        self.metadata.apply([(TOPIC_KIND, name, content | {"value": value})], place)
        self.revived.add(name)

    def claims(self, views: Iterable[RecordView]) -> None:
        """Take what damaged records at the log's end say, where it fits their queues.

        Otherwise the next messages would get offsets that were given out before.
        """
        if self._only_metadata:
            return
        for view in views:
            try:
                topic = self.metadata.topic(view.topic.decode("utf-8", "replace"))
            except KeyError:
                continue
            queue = self.queues.get(topic, view.queue_id)
            fits = not topic.dual or view.metaq_position == queue.tail.next_position
            if view.has_unit and view.queue_offset == queue.end and fits:
                _add(queue, view)

    def _meta(self, data: bytes, view: RecordView) -> None:
        end = view.physical_offset + view.size
        if end <= self.metadata.end:
            return
        body = data[view.body_at : view.body_at + view.body_size]
        for ended in self.metadata.apply(decode_changes(body), view.physical_offset):
            if not self._only_metadata and view.physical_offset >= self._queues_from:
                self.queues.drop_topic(ended)
        self.metadata.reach(end)


def _add(queue: ConsumeQueue, view: RecordView) -> bool:
    position = (view.metaq_position, view.metaq_size)
    place, size = view.physical_offset, view.size
    return queue.add(place, size, view.tag_code, view.queue_offset, position)
