"""Which changes of metadata are believed behind a place where the chain of records is broken.

Behind a damaged head whole records are looked for in bytes that may be the body of a message, which
a client has chosen. What is found there reads as messages, but changes of metadata, which would be
carried out, need a witness that no client can write: the unit of their queue's file, as the last
process left it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_log.disk.files import fatal, offset_name, offsets_of, read_whole
from imago_log.metadata.state import META_TOPIC
from imago_wire.layout import UNIT

if TYPE_CHECKING:
    from imago_log.disk.folder import DataFolder
    from imago_log.disk.vfs import Vfs
    from imago_wire.record import RecordView

_META = META_TOPIC.encode()
logger = logging.getLogger(__name__)


class MetadataProof:
    """What the files of the metadata's queue say."""

    def __init__(self) -> None:
        self._files: dict[int, bytes] = {}
        """Content by the position of the first byte."""
        self._doubtful = set[tuple[int, int]]()

    def load(self, vfs: Vfs, folder: DataFolder) -> None:
        """Read them, before a start cuts or removes them."""
        queue = folder.queues / META_TOPIC / "0"
        with fatal("read", queue):
            for position in offsets_of(vfs.names(queue)):
                self._files[position] = read_whole(vfs, queue / offset_name(position)) or b""

    def doubt(self, start: int, end: int) -> None:
        """The chain was taken up in the middle of a file: nothing vouches for it up to its end."""
        self._doubtful.add((start, end))

    def holds(self, view: RecordView) -> bool:
        """Whether a record is to be taken: all but changes of metadata that nothing proves.

        Without any file of their queue, as where only the log is left, nothing could.
        """
        if view.topic != _META or not self._files:
            return True
        place = view.physical_offset
        if not any(start <= place < end for start, end in self._doubtful) or self._names(view):
            return True
        logger.error(
            "metadata.unproven log_offset=%d reason=%s", view.physical_offset,
            "behind damage, and no unit of IMAGO_META names it: it is not carried out",
        )  # fmt: skip
        return False

    def _names(self, view: RecordView) -> bool:
        at = view.queue_offset * UNIT.size
        first = max((position for position in self._files if position <= at), default=None)
        if first is None or at < 0:
            return False
        unit = self._files[first][at - first : at - first + UNIT.size]
        if len(unit) < UNIT.size:
            return False
        place, size, _ = UNIT.unpack(unit)
        return (place, size) == (view.physical_offset, view.size)
