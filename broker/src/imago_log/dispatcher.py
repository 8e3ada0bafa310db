"""From the log to the views, in order: used when a start reads the log again.

While the store runs, the record builder makes the queue units itself, and the store hands the
written bytes to the key index: the same entries by a shorter way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.metadata import META_TOPIC, Metadata, decode_changes
from imago_log.queues import Queues, ViewsInvalidError

if TYPE_CHECKING:
    from imago_log.key_index import KeyIndex
    from imago_wire.record import RecordView


class Dispatcher:
    """Takes the records of the log in order; remembers the newest time and MetaQ id."""

    def __init__(
        self,
        metadata: Metadata,
        queues: Queues,
        keys: KeyIndex,
        *,
        queues_from: int,
        only_metadata: bool = False,
    ) -> None:
        """The queue files hold everything below `queues_from` already, deletions included."""
        self.metadata, self.queues, self.keys = metadata, queues, keys
        self.store_ms = self.metaq_id = self.count = 0
        self._queues_from = queues_from
        self._only_metadata = only_metadata

    def block(self, data: bytes, log_offset: int, views: list[RecordView]) -> None:
        """Take whole records: `data` starts at `log_offset` and ends where the last one ends."""
        for view in views:
            self._record(data, view)
        if views:
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
        if self._only_metadata or not view.has_unit or view.physical_offset < self._queues_from:
            return
        try:
            topic = self.metadata.topic(name)
        except KeyError:
            return  # deleted meanwhile
        if view.physical_offset < topic.birth:
            return  # of an earlier topic of this name
        queue = self.queues.get(topic, view.queue_id)
        position = (view.metaq_position, view.metaq_size)
        place, size = view.physical_offset, view.size
        if not queue.add(place, size, view.tag_code, view.queue_offset, position):
            raise ViewsInvalidError(
                f"{name}/{view.queue_id} ends at {queue.end}, the log goes on at "
                f"{view.queue_offset}"
            )

    def _meta(self, data: bytes, view: RecordView) -> None:
        end = view.physical_offset + view.size
        if end <= self.metadata.end:
            return
        body = data[view.body_at : view.body_at + view.body_size]
        for ended in self.metadata.apply(decode_changes(body), view.physical_offset):
            if not self._only_metadata and view.physical_offset >= self._queues_from:
                self.queues.drop_topic(ended)
        self.metadata.end = end
