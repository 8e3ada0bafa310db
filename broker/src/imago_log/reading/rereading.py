"""Repeats reads that met something unreadable, once its cause is known."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeVar

from imago_log.errors import UnreadableError
from imago_log.repair.inspecting import Look

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.disk.folder import DataFolder
    from imago_log.repair.inspecting import Inspector
    from imago_log.views.units.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

LOOKS_MAX = 4096
"""Damaged messages that one read finds: more than it returns."""

_Read = TypeVar("_Read")


class Rereader:
    """Asks the inspector, then reads again."""

    def __init__(self, inspector: Inspector, folder: DataFolder) -> None:
        self._inspector, self._folder = inspector, folder

    def read(
        self,
        error: UnreadableError,
        queue: ConsumeQueue | None,
        offset: int,
        again: Callable[[], _Read],
        pending: _Read | None = None,
    ) -> _Read:
        """Read again whenever the cause has become known. CorruptLogError: it has not.

        While it is being read, `pending` is the answer: the reader is to come again.
        Each round finds a new cause, so there are at most as many as damaged messages.
        """
        for _ in range(LOOKS_MAX):
            seen = self._inspector.look(error.place, queue, max(offset, error.offset))
            if seen is Look.PENDING and pending is not None:
                return pending
            if seen is Look.PENDING:
                raise error
            if seen is Look.NOTHING:
                break
            try:
                return again()
            except UnreadableError as further:
                error = further
        self._folder.forget_views()
        logger.error("views.wrong error=%s: the next start builds them again", error)
        raise error
