"""What of the log is somewhere else, as readers see it: nothing, unless somebody brings it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_log.reading.by_properties import Wanted
    from imago_log.results import MetaqRead, ReadResult

Key = tuple[str, int]
"""Topic and queue id."""


class RemoteMissError(Exception):
    """What is asked for is not here; it is being fetched: come again."""

    def __init__(self, wanted_by: Callable[[Key], None]) -> None:
        super().__init__("old messages are being fetched: try again")
        self.wanted_by = wanted_by
        """Have the readers of a queue look again once it is here."""


class RemoteAwayError(Exception):
    """What is asked for cannot be had now, as where it is does not answer."""


class Remote(Protocol):
    """What of a store's queues comes before what its log has."""

    def low(self, key: Key, incarnation: int, low: int) -> int: ...
    def low_position(self, key: Key, incarnation: int, low: int) -> int: ...
    def read(
        self,
        key: Key,
        incarnation: int,
        bounds: tuple[int, int],
        offset: int,
        limits: tuple[int, int],
        tags: frozenset[int] | None,
        wanted: Wanted | None,
    ) -> ReadResult: ...
    def read_positions(
        self, key: Key, incarnation: int, visible: tuple[int, int], position: int, bytes_max: int
    ) -> MetaqRead: ...
    def offset_by_time(
        self, key: Key, incarnation: int, ms: int, here: int, *, upper: bool
    ) -> int: ...
    def record_at(self, place: int) -> bytes | None: ...
