"""Which queue a message group has: the same for every client that reaches a broker."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def java_hash(text: str) -> int:
    """Return what Java's `String.hashCode` gives: of UTF-16 units, signed, of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value


def queue_of_group(group: str, queues: int) -> int:
    """Return the queue of a message group: Guava's consistent hash, as RocketMQ's proxy asks it."""
    state, candidate = java_hash(group) & _MASK, 0
    while True:
        state = (state * 2862933555777941757 + 1) & _MASK
        following = int((candidate + 1) / (((state >> 33) + 1) / float(1 << 31)))
        if not 0 <= following < queues:
            return candidate
        candidate = following
