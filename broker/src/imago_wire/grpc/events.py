"""What happens on a connection, for those who serve its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class CallOpened(NamedTuple):
    """A call has begun."""

    stream: int
    headers: Mapping[str, str]


class CallCame(NamedTuple):
    """A call has begun, its only message came whole, and the peer waits for its answer."""

    stream: int
    headers: Mapping[str, str]
    message: bytes


class Came(NamedTuple):
    """A message of a call came whole."""

    stream: int
    message: bytes


class Ended(NamedTuple):
    """The peer sends nothing more in a call, and waits for its answer."""

    stream: int


class Gone(NamedTuple):
    """A call is over before its answer was taken: nothing of it is to be sent any more."""

    stream: int


Event = CallOpened | CallCame | Came | Ended | Gone
