"""Records that follow each other in the log: what one append has put, as a start finds it.

Whether their topics are there still does not matter: what was put was put. Who looks a record up
by its queue finds none of a topic that was deleted, and would put it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from imago_log.errors import CorruptLogError
from imago_wire.layout import MAGIC_V1, MAGIC_V2
from imago_wire.record import scan_records

if TYPE_CHECKING:
    from imago_log.store import MessageStore
    from imago_wire.record import RecordView

_HEAD_SIZE = 8


class WalkedRecord(NamedTuple):
    """A record and where it is."""

    data: bytes
    view: RecordView

    @property
    def end(self) -> int:
        """Where the next one begins, unless it did not fit the file."""
        return self.view.physical_offset + self.view.size


def record_from(store: MessageStore, at: int) -> WalkedRecord | None:
    """Return what is at a border of the log, or at the start of the next file; None: nothing."""
    size = store.config.segment_bytes_max
    return _whole(store, at) or _whole(store, (at // size + 1) * size)


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
