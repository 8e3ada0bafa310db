"""Which member of a group reads which partitions: the two rules of the original client.

All members of a group must follow the same one; members and partitions are sorted as strings.
"""

from __future__ import annotations

import bisect
import hashlib
import struct
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

POINTS_OF_DIGEST: Final = 4
DIGESTS_OF_MEMBER: Final = 40


class ShareStrategy(Enum):
    """The original's names."""

    DEFAULT = "default"
    """Blocks of neighbours, the first members one more where it does not divide."""
    CONSIST = "consist"
    """A ring of hashes: who joins or leaves moves few partitions."""


def share(
    strategy: ShareStrategy, member: str, members: Sequence[str], partitions: Sequence[str]
) -> list[str]:
    """Return the names of the partitions of `member`; nothing where the group does not list it."""
    return _RULES[strategy](member, sorted(set(members)), sorted(set(partitions)))


def _in_blocks(member: str, members: list[str], partitions: list[str]) -> list[str]:
    if member not in members:
        return []
    index = members.index(member)
    size, left_over = divmod(len(partitions), len(members))
    start = size * index + min(index, left_over)
    return partitions[start : start + size + (index < left_over)]


def _on_a_ring(member: str, members: list[str], partitions: list[str]) -> list[str]:
    if member not in members:
        return []
    ring = {
        point: each
        for each in members
        for number in range(DIGESTS_OF_MEMBER)
        for point in _points(f"{each}-{number}")
    }
    points = sorted(ring)

    def owner(partition: str) -> str:
        at = bisect.bisect_left(points, _points(partition)[0])
        return ring[points[at % len(points)]]

    return [each for each in partitions if owner(each) == member]


def _points(name: str) -> tuple[int, ...]:
    digest = hashlib.md5(name.encode(), usedforsecurity=False).digest()
    return struct.unpack(f"<{POINTS_OF_DIGEST}I", digest)


_RULES: dict[ShareStrategy, Callable[[str, list[str], list[str]], list[str]]] = {
    ShareStrategy.DEFAULT: _in_blocks,
    ShareStrategy.CONSIST: _on_a_ring,
}
