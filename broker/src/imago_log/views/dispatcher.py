"""From the log to the views, in order: used when a start reads the log again.

While the store runs, the record builder makes the queue units itself, and the store hands the
written bytes to the key index: the same entries by a faster path.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.metadata.changes import META_TOPIC, TOPIC_KIND, decode_changes
from imago_wire.record_format.sequences import MARK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_log.commitlog.damage import Damage
    from imago_log.metadata.state import Metadata
    from imago_log.views.view import View
    from imago_wire.records.record import RecordView

logger = logging.getLogger(__name__)


REVIVED_QUEUES_MAX = 65_536
"""No topic has more queues: a record behind damage that speaks of one is not believed."""


class Dispatcher:
    """Takes the records of the log in order; remembers the newest time and MetaQ id.

    Of each block first the metadata learn what they say, then the views take it: a record of a
    topic that a later one of the block has deleted finds none, and its queue is gone anyway.
    """

    def __init__(
        self, metadata: Metadata, damage: Damage, views: Sequence[View], *, views_from: int
    ) -> None:
        """The views' files tell already which topics were deleted below `views_from`."""
        self.metadata, self._damage = metadata, damage
        self._views, self._views_from = views, views_from
        self.store_ms = self.metaq_id = self.count = 0
        self._metadata_from = metadata.end
        self.revived: set[str] = set()
        """Topics whose creation is lost in damage, made again from what their records say."""
        # A snapshot of the metadata holds their state where it ends.
        metadata.producers.reach(metadata.end)
        self._sequenced = False
        """Whether the block at hand has messages of idempotent producers."""

    def block(self, data: bytes, log_offset: int, records: list[RecordView]) -> None:
        """Take whole records: `data` starts at `log_offset` and ends where the last one ends."""
        self._sequenced = MARK in data
        for record in records:
            self._record(data, record)
        if records:
            self.metadata.producers.reach(log_offset + len(data))
            self.count += len(records)
            self.store_ms = max(self.store_ms, records[-1].store_ms)
            for view in self._views:
                view.add(data, log_offset, records)

    def _record(self, data: bytes, view: RecordView) -> None:
        self.metaq_id = max(self.metaq_id, view.metaq_id)
        name = view.topic.decode("utf-8", "replace")
        if name == META_TOPIC:
            self._meta(data, view)
        elif self._damage.ranges:
            self._revive(name, view)
        if self._sequenced:
            self.metadata.producers.record(data, view)

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

    def _meta(self, data: bytes, view: RecordView) -> None:
        end = view.physical_offset + view.size
        if end <= self.metadata.end:
            return
        body = data[view.body_at : view.body_at + view.body_size]
        for ended in self.metadata.apply(decode_changes(body), view.physical_offset):
            if view.physical_offset >= self._views_from:
                for made in self._views:
                    made.drop_topic(ended)
        self.metadata.reach(end)
