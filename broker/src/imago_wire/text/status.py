"""Status codes of ``result``."""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """The codes that a MetaQ broker sends."""

    SUCCESS = 200
    MOVED = 301
    BAD_REQUEST = 400
    FORBIDDEN = 403
    NOT_FOUND = 404
    INTERNAL_SERVER_ERROR = 500
    SERVICE_UNAVAILABLE = 503
