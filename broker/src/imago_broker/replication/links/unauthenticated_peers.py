"""Connections whose callers have not said who they are: in the order in which they came."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.replication.links.link import Link


class Silent:
    """Some places, of which one address has no more than its part."""

    def __init__(self, count_max: int, per_address_max: int) -> None:
        self._count_max = count_max
        self._per_address_max = per_address_max
        self._since: dict[Link, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def add(self, link: Link, now: float) -> None:
        """Take a place from now on."""
        self._since[link] = now

    def waits(self, link: Link) -> None:
        """Have a caller keep its place, who waits for its turn to show that it is a member."""
        if link in self._since:
            self._since[link] = inf

    def goes_on(self, link: Link, now: float) -> None:
        """Count from now on how long a caller has said nothing."""
        if link in self._since:
            self._since[link] = now

    def discard(self, link: Link) -> None:
        """Free the place of a connection that has ended, or whose caller is known."""
        self._since.pop(link, None)

    def full_for(self, seconds: float, now: float) -> float:
        """Return how long to wait until somebody has had a place for so long; 0: one is free."""
        if not self._is_full:
            return 0.0
        oldest = min(self._since.values())
        return seconds if oldest == inf else oldest + seconds - now

    def in_the_way(self, address: str) -> list[Link]:
        """Return who has to go for one more of this address: the first of it, or of all."""
        same = [link for link in self._since if link.peer == address]
        if len(same) >= self._per_address_max:
            return same[:1]
        return [min(self._since, key=self._since.__getitem__)] if self._is_full else []

    @property
    def _is_full(self) -> bool:
        return len(self._since) >= self._count_max
