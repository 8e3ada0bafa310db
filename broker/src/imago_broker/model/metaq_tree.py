"""What consumers and original masters have written into MetaQ's tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCopy:
    """Which partitions of a broker id get the offsets of which of another's."""

    source: int
    target: int
    first: int
    last: int
    target_first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRecord:
    """How far a group of MetaQ's says that it is in a partition of our shard."""

    group: str
    topic: str
    partition: int
    message_id: int
    """Of the last message that it has had."""
    position: int
    """Where it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqMaster:
    """The master of our shard's broker id, as it stands in MetaQ's tree."""

    url: str
    """`meta://host:port`."""
    checksum: str
    """Of its configuration; empty: it tells none."""
    partitions: Mapping[str, int]
    """How many each topic has that it offers to consumers."""
