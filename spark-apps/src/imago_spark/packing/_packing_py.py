"""Rows of an Arrow batch to entries of requests: the reference of `_packing_c`.

Most rows are plain: texts of ASCII, a body of a usual size, nothing that waits. `_packing_c` sees
that they are and adds them to their slots at once. Here all of them are left to the slow path,
`Outbox._with_care`, which says what is wrong, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from imago_spark.packing.waiting import WaitingRows

DONE: Final = -1
"""No row is left."""
CARE: Final = -2
"""The row is not plain; it is of the topic that was named."""
OTHER_TOPIC: Final = -3
"""Or of none."""

BY_KEY, ROUND_ROBIN, BY_COLUMN = range(3)


class RowPacker:
    """The rows of one Arrow batch."""

    def __init__(self, columns: Mapping[str, pa.Array], count: int) -> None:
        del columns
        self._count = count

    def pack(
        self,
        at: int,
        topic: bytes | None,
        slots: Sequence[WaitingRows],
        places: Mapping[tuple[str, int], int],
        way: int,
        partition: int,
        keyless: int,
        send_bytes: int,
        rows_max: int,
    ) -> tuple[int, int, int, int]:
        """Add rows from `at` on to their slots, as long as they are plain and there is room.

        `topic`: the one that the slots are of, where rows name theirs. Return the first row that
        was not added, why (or which slot has no room for it), how many rows without a key there
        have been, and the bytes of the bodies.
        """
        del topic, slots, places, way, partition, send_bytes, rows_max
        return at, CARE if at < self._count else DONE, keyless, 0
