"""Bytes at many places of a buffer, at once, and as text."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from imago_spark.errors import SourceError

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
Longs: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Borders: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
"""Where the elements of an Arrow array of bytes begin, and where the last one ends."""


class CorruptBatchError(SourceError):
    """A broker sent bytes that are not whole records."""


def rows_at(data: Bytes, starts: Longs, width: int) -> Bytes:
    """Return `width` bytes from each start, one row each. CorruptBatchError: beyond the end."""
    if not len(starts):
        return np.empty((0, width), dtype=np.uint8)
    if int(starts.max()) + width > len(data) or int(starts.min()) < 0:
        raise CorruptBatchError("a record is shorter than its fields say")
    windows = np.lib.stride_tricks.as_strided(
        data, shape=(len(data) - width + 1, width), strides=(1, 1), writeable=False
    )
    rows: Bytes = windows[starts]
    return rows


def as_text(column: pa.Array) -> pa.Array:
    """Return bytes as strings; invalid UTF-8 becomes U+FFFD, as in Java."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [
            None if one is None else one.decode("utf-8", "replace") for one in column.to_pylist()
        ]
        return pa.array(texts, type=pa.string())
