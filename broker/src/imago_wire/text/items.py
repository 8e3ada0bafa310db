"""What a scan of MetaQ's commands returns: named tuples whose first member says which one it is.

The two commands that clients send by the million come in parts, the others as values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from imago_wire.text.commands import Command

OTHER: Final = 0
PUT: Final = 1
GET: Final = 2
BAD: Final = -1


class PutItem(NamedTuple):
    """One ``put``."""

    kind: Literal[1]
    topic: str
    partition: int
    flag: int
    checksum: int
    """-1: the client gave none."""
    transaction: str | None
    opaque: int
    body: bytes


class GetItem(NamedTuple):
    """One ``get``."""

    kind: Literal[2]
    topic: str
    group: str
    partition: int
    offset: int
    max_size: int
    opaque: int


class OtherItem(NamedTuple):
    """Any other command."""

    kind: Literal[0]
    command: Command


class BadLineItem(NamedTuple):
    """The end of what can be read: a line that is no command, or above a limit."""

    kind: Literal[-1]
    reason: str


Item: TypeAlias = PutItem | GetItem | OtherItem | BadLineItem
AskedPut: TypeAlias = tuple[int, int, str]
"""Opaque, partition and topic of a put that waits for its answer."""
