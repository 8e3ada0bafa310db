"""What another member may have of our log to put its own right."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from imago_log.errors import StoreError

if TYPE_CHECKING:
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

ENDS_KEPT = 16
"""Answers whose next piece may be asked for: more than there are members that ask at once."""


class Lender:
    """Answers questions for log bytes that are damaged elsewhere.

    A question begins at a border of our own log, as we walk it, or where one of our answers ended:
    what follows a place inside of a record may be a body that looks like records.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._ends = deque[int](maxlen=ENDS_KEPT)

    def lend(self, offset: int, size: int) -> bytes | memoryview:
        """Return log bytes as far as they are whole here and committed, or none."""
        store = self._store
        end = min(offset + size, store.high_watermark)
        for each in store.damaged_ranges():
            if each.start < end and offset < each.end:
                end = each.start
        if end <= offset:
            return b""
        if offset not in self._ends and not store.may_lend_from(offset):
            logger.warning("repair_refused offset=%d reason=no record begins there here", offset)
            return b""
        try:
            data = store.read_log(offset, end - offset)
        except StoreError as error:
            logger.info("repair_impossible offset=%d size=%d reason=%s", offset, size, error)
            return b""
        self._ends.append(offset + len(data))
        return data
