"""The connections that a process has room for, counted over all its listeners.

Three rules keep one caller from shutting the others out. Nobody has more than
`per_address_max` places, where that is set. An address that has many already takes none of
the last eighth of a port's places, nor of the process's. And some further places are kept: for
the machine itself and the members of the cluster, and on a port for its own callers.

Members are held to neither of the first two, nor to a port's number: after a handover a broker
passes the connections of all its clients on to the next master. The machine itself is not held
to the second.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

NO_LIMIT: Final = 1 << 60
SHARE: Final = 8
"""One of so many parts is left for addresses that have few connections."""
FEW: Final = 64
"""Connections of an address that still leave it the right to that part."""
KNOWN_KEPT: Final = 128
"""Places for the machine itself and for members, above all others; a share of those at most."""
_NETWORK_BITS: Final = 64
"""Of an IPv6 address: the rest is the caller's own to choose."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a connection has, to be given back with `Places.leave`."""

    source: str
    kept: KeptPlaces | None = None
    """Where it is none of everybody's."""


class KeptPlaces:
    """Places for callers who must get in when all others are taken; one address has half."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._taken: Counter[str] = Counter()

    def take(self, source: str) -> bool:
        """Take a place, or say that none is free for this caller."""
        if self._taken.total() >= self.count_max or 2 * self._taken[source] >= self.count_max:
            return False
        self._taken[source] += 1
        return True

    def leave(self, source: str) -> None:
        """Give a place back."""
        _less(self._taken, source)


@dataclass(frozen=True, slots=True)
class Port:
    """One listener as it stands when somebody calls."""

    taken: int
    count_max: int = NO_LIMIT
    kept: KeptPlaces | None = None
    """Places of its own."""


def _nobody(_: str) -> bool:
    return False


class Places:
    """One place for each connection; every one takes a file descriptor of the process."""

    def __init__(
        self,
        count_max: int = NO_LIMIT,
        *,
        per_address_max: int = 0,
        known_kept: int = KNOWN_KEPT,
        is_member: Callable[[str], bool] = _nobody,
    ) -> None:
        """`per_address_max`: 0 for none. `is_member`: whether a broker of the cluster calls."""
        self.count_max = count_max
        self.taken = 0
        """Places of everybody's that are not free."""
        self.per_address_max = per_address_max or NO_LIMIT
        self.is_member = is_member
        self._by_source: Counter[str] = Counter()
        self._known_kept = known_kept
        self._known = KeptPlaces(known_kept)

    def take(self, address: str, port: Port) -> Place | str:
        """Return a caller's place, or why there is none."""
        source = source_of(address)
        held = self._by_source[source]
        refusal = self._refusal(address, held, port)
        if not refusal:
            self.taken += 1
            self._by_source[source] = held + 1
            return Place(source)
        if port.kept is not None and port.kept.take(source):
            return Place(source, port.kept)
        self._known.count_max = min(self._known_kept, self.count_max // SHARE)
        if self._may_have_kept(address, port) and self._known.take(source):
            return Place(source, self._known)
        return refusal

    def leave(self, place: Place) -> None:
        """Give a place back."""
        if place.kept is not None:
            place.kept.leave(place.source)
            return
        self.taken -= 1
        _less(self._by_source, place.source)

    def take_own(self) -> bool:
        """Take a place for a connection that this process opens itself, if one is free."""
        if self.taken >= self.count_max:
            return False
        self.taken += 1
        return True

    def leave_own(self) -> None:
        """Give such a place back."""
        self.taken -= 1

    def held(self, address: str) -> int:
        """Return how many of everybody's places an address has."""
        return self._by_source.get(source_of(address), 0)

    def _refusal(self, address: str, held: int, port: Port) -> str:
        free, free_here = self.count_max - self.taken, port.count_max - port.taken
        if free <= 0 or free_here <= 0:
            return "all places are taken"
        if held >= self.per_address_max and not self.is_member(address):
            return f"limits.connections_per_address_max={self.per_address_max}"
        crowded = free <= self.count_max // SHARE or free_here <= port.count_max // SHARE
        if crowded and held >= FEW and not _is_loopback(address) and not self.is_member(address):
            return "the last places are for others"
        return ""

    def _may_have_kept(self, address: str, port: Port) -> bool:
        """Members go beyond a port's own limit too: they pass on the clients of another."""
        if self.is_member(address):
            return True
        return _is_loopback(address) and port.taken < port.count_max


@lru_cache(maxsize=4096)
def source_of(address: str) -> str:
    """Return what counts as one caller: an IPv4 address, or the network of an IPv6 one."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    if parsed.is_loopback:
        return address
    return str(ipaddress.IPv6Network((parsed, _NETWORK_BITS), strict=False))


@lru_cache(maxsize=4096)
def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
