"""The last lines of the audit log, kept for whoever asks over HTTP."""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import Any, Final

from aiohttp import web

LINES_MAX = 500
CHARS_MAX = 2000
"""Of one line."""
LOGGER: Final = "imago.audit"


class AuditTail(logging.Handler):
    """Keeps what this process's audit log said last; a restart forgets it, the log does not."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[dict[str, Any]] = deque(maxlen=LINES_MAX)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()[:CHARS_MAX]
        self._lines.append({"at": round(record.created * 1000), "text": text})

    def newest(self, count: int) -> list[dict[str, Any]]:
        """Return so many lines at most, the newest first."""
        return list(islice(reversed(self._lines), count))


TAIL: Final = web.AppKey("audit_tail", AuditTail)


def keep_lines(app: web.Application) -> None:
    """Have the application keep them from its start to its end."""
    tail, logger = AuditTail(), logging.getLogger(LOGGER)
    app[TAIL] = tail

    async def begin(_: web.Application) -> None:
        logger.addHandler(tail)

    async def end(_: web.Application) -> None:
        logger.removeHandler(tail)

    app.on_startup.append(begin)
    app.on_cleanup.append(end)
