"""Compressed bodies of a batch, inflated within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_wire.compression import inflate
from imago_wire.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator


def inflated_runs(
    compressed: list[int], values: list[bytes | None], sys_flags: Any, bytes_max: int
) -> Iterator[tuple[int, list[bytes | None]]]:
    """Yield runs of rows, as first row and values, that fit this budget.

    A body that exceeds the budget alone, or contradicts its flags, has no value: its row stays.
    """
    start, room = 0, bytes_max
    for index in compressed:
        body = values[index]
        assert body is not None, "each body is inflated once"
        flags = int(sys_flags[index])
        value = _inflate(body, flags, room)
        if value is None and room < bytes_max:
            if index > start:
                yield start, values[start:index]
                values[start:index] = [None] * (index - start)
            start, room = index, bytes_max
            value = _inflate(body, flags, room)
        values[index] = value
        room -= len(value or b"")
    yield start, values[start:]


def _inflate(body: bytes, sys_flag: int, room: int) -> bytes | None:
    try:
        return inflate(body, sys_flag, room)
    except ProtocolError:
        return None
