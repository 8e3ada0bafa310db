"""Bookkeeping of requests that wait for something to happen, or for their time to be up.

Tickets are found by what they wait for and by when they end. Ends are kept in slots of 100 ms, so
that adding and removing cost the same whatever the number of tickets, and a ticket that was served
leaves nothing behind; a ticket is therefore told its end up to one slot late, never early.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")

SLOT_MS = 100


class Ticket(Generic[K, T]):
    """One waiting request. `token` is the caller's own."""

    __slots__ = ("deadline_ms", "key", "token")

    def __init__(self, key: K, deadline_ms: int, token: T) -> None:
        self.key = key
        self.deadline_ms = deadline_ms
        self.token = token

    @property
    def slot(self) -> int:
        """Number of the slot at whose begin the deadline has passed."""
        return -(-self.deadline_ms // SLOT_MS)


class WaitingRoom(Generic[K, T]):
    """All tickets, at most `size_max`. Times are milliseconds of one monotonic clock."""

    def __init__(self, *, size_max: int) -> None:
        self.size_max = size_max
        self._size = 0
        self._by_key: dict[K, dict[Ticket[K, T], None]] = {}
        self._by_slot: dict[int, dict[Ticket[K, T], None]] = {}
        self._slots: list[int] = []  # a heap; may name slots that are empty by now

    def __len__(self) -> int:
        return self._size

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, key: K, deadline_ms: int, token: T) -> Ticket[K, T] | None:
        """Let a request wait; None when the room is full."""
        if self._size >= self.size_max:
            return None
        ticket = Ticket(key, deadline_ms, token)
        self._by_key.setdefault(key, {})[ticket] = None
        slot = ticket.slot
        if slot not in self._by_slot:
            self._by_slot[slot] = {}
            heapq.heappush(self._slots, slot)
        self._by_slot[slot][ticket] = None
        self._size += 1
        return ticket

    def remove(self, ticket: Ticket[K, T]) -> bool:
        """Take a ticket out; False when it was out already."""
        of_key = self._by_key.get(ticket.key)
        if of_key is None or ticket not in of_key:
            return False
        del of_key[ticket]
        if not of_key:
            del self._by_key[ticket.key]
        # Empty slots stay until their time: the heap still names them.
        self._by_slot[ticket.slot].pop(ticket, None)
        self._size -= 1
        return True

    def is_wanted(self, key: K) -> bool:
        """Whether somebody waits for a key."""
        return key in self._by_key

    def waiting_for(self, key: K) -> list[Ticket[K, T]]:
        """Return the tickets of a key, the longest waiting first."""
        of_key = self._by_key.get(key)
        return list(of_key) if of_key else []

    def everyone(self) -> list[Ticket[K, T]]:
        """Return all tickets."""
        return [ticket for of_key in self._by_key.values() for ticket in of_key]

    def next_wake_ms(self) -> int | None:
        """Return when `due` has to be asked next, or None when nobody waits."""
        while self._slots and not self._by_slot[self._slots[0]]:
            del self._by_slot[heapq.heappop(self._slots)]
        return self._slots[0] * SLOT_MS if self._slots else None

    def due(self, now_ms: int) -> list[Ticket[K, T]]:
        """Take out and return the tickets whose time is up."""
        ended: list[Ticket[K, T]] = []
        while self._slots and self._slots[0] * SLOT_MS <= now_ms:
            slot = heapq.heappop(self._slots)
            ended += self._by_slot[slot]
            for ticket in list(self._by_slot[slot]):
                self.remove(ticket)
            del self._by_slot[slot]
        return ended
