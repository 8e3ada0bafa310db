"""Addresses in records as text columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from imago_spark.columns.gather import rows_at
from imago_wire.records.stored import host_text, offset_message_id

if TYPE_CHECKING:
    from imago_spark.columns.gather import Bytes, Longs

_V4_SIZE: Final = 8
_V6_SIZE: Final = 20


def host_column(data: Bytes, at: Longs, is_v6: Longs) -> pa.Array:
    """Return `address:port` of these hosts as a column. Few differ, so each text is built once."""
    if is_v6.any():
        return pa.array([host_text(host) for host in _hosts(data, at, is_v6)], type=pa.string())
    numbers = rows_at(data, at, _V4_SIZE).view(">u8").ravel()
    if (numbers == numbers[0]).all():
        return pa.repeat(host_text(numbers[:1].tobytes()), len(numbers))
    different, place = np.unique(numbers, return_inverse=True)
    texts = [host_text(different[index : index + 1].tobytes()) for index in range(len(different))]
    return pa.array(texts, type=pa.string()).take(pa.array(place.ravel()))


def stored_ids(data: Bytes, at: Longs, is_v6: Longs, physical: Longs) -> pa.Array:
    """Return the broker's message ids: store host and log offset in hexadecimal."""
    hosts = _hosts(data, at, is_v6)
    ids = [
        offset_message_id(host, offset)
        for host, offset in zip(hosts, physical.tolist(), strict=True)
    ]
    return pa.array(ids, type=pa.string())


def _hosts(data: Bytes, at: Longs, is_v6: Longs) -> list[bytes]:
    sizes = np.where(is_v6 != 0, _V6_SIZE, _V4_SIZE)
    return [
        data[start : start + size].tobytes()
        for start, size in zip(at.tolist(), sizes.tolist(), strict=True)
    ]
