"""What a start reads: queues of the log, and records as one append has put them there.

Who begins with a part of a queue would do again what was done: what cannot be read now is waited
for. Whether the topics of what was put are there still does not matter. Who looks a record up by
its queue finds none of a topic that was deleted, and would put it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.errors import CorruptLogError
from imago_wire.record_format.layout import MAGIC_V1, MAGIC_V2
from imago_wire.record_format.record_fields import read_layout
from imago_wire.record_format.references import read_reference
from imago_wire.records.record import scan_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_log.results import ReadResult
    from imago_log.store import MessageStore
    from imago_wire.records.record import RecordView

READ_AGAIN_MS = 500
"""After which a start tries again to read what it could not."""
_HEAD_SIZE = 8


class NotReadableNowError(Exception):
    """A part of a queue cannot be read now: what is wrong there is being looked at."""

    def __init__(self, topic: str, queue_id: int, offset: int) -> None:
        super().__init__(f"{topic}/{queue_id} at {offset}")


class WalkedRecord(NamedTuple):
    """A record and where it is."""

    data: bytes
    view: RecordView

    @property
    def end(self) -> int:
        """Where the next one begins, unless it did not fit the file."""
        return self.view.physical_offset + self.view.size


def queue_blocks(
    store: MessageStore,
    queue: tuple[str, int],
    at: int,
    end: int,
    *,
    messages_max: int,
    bytes_max: int,
) -> Iterator[ReadResult]:
    """Yield what a queue has from one offset to another, and maybe some more, block by block.

    NotReadableNowError: that is not known. What is lost in damage of the log is left out.
    """
    while at < end:
        try:
            block = store.read(*queue, at, messages_max=messages_max, bytes_max=bytes_max)
        except CorruptLogError as error:
            raise NotReadableNowError(*queue, at) from error
        if block.next_offset <= at:
            raise NotReadableNowError(*queue, at)
        yield block
        at = block.next_offset


def record_from(store: MessageStore, at: int) -> WalkedRecord | None:
    """Return what is at a border of the log, or at the start of the next file; None: nothing.

    Nothing is at a border in a damaged range either, whose records are unknown.
    """
    record = _whole(store, at)
    if record is not None or any(lost.start <= at < lost.end for lost in store.damaged_ranges()):
        return record
    size = store.config.segment_bytes_max
    return _whole(store, (at // size + 1) * size)


def message_from(store: MessageStore, at: int) -> tuple[WalkedRecord | None, int]:
    """Return the message at a border, behind the references of light queues in front of it, and
    where it was looked for.
    """
    record = record_from(store, at)
    while record is not None and _is_reference(record.data):
        at = record.end
        record = record_from(store, at)
    return record, at


def _is_reference(record: bytes) -> bool:
    fields = read_layout(record, 0)
    properties = record[fields.properties_at : fields.properties_at + fields.properties_size]
    return read_reference(properties) is not None


def _whole(store: MessageStore, place: int) -> WalkedRecord | None:
    if not store.log_start <= place < store.log_end:
        return None
    try:
        head = bytes(store.read_log(place, _HEAD_SIZE))
        if int.from_bytes(head[4:], "big") not in (MAGIC_V1, MAGIC_V2):
            return None
        data = bytes(store.read_log(place, int.from_bytes(head[:4], "big")))
    except CorruptLogError:
        return None
    views = scan_records(data, place).views
    return WalkedRecord(data, views[0]) if views else None
