"""How a put can end."""

from __future__ import annotations

from enum import Enum


class PutStatus(Enum):
    """How a put ended; `APPENDED` are those that mean that the messages are in the log."""

    OK = "ok"
    FLUSH_TIMEOUT = "flush-timeout"
    """Appended; the disk did not confirm in time."""
    SLAVE_TIMEOUT = "slave-timeout"
    """Appended; the other members did not confirm in time."""
    DISK_FULL = "disk-full"
    SLAVE_UNAVAILABLE = "slave-unavailable"
    """Appended; too few members are left in sync to wait for."""
    PAIR_AWAY = "pair-away"
    """Not appended: the slave that has to have each message is not connected."""
    NOT_WRITABLE = "not-writable"
    """This broker is not the master, or is it no longer: what it had appended may be lost."""
    TOO_FEW_IN_SYNC = "too-few-in-sync"
    """Not appended: the level asks for more members than are in sync."""
    TOO_LARGE = "too-large"
    """A record would not fit into a file of the log."""
    BUSY = "busy"
    """Too many bytes wait to be acknowledged, or the store refused: the producer may try again."""
    STOPPING = "stopping"


APPENDED = frozenset(
    {
        PutStatus.OK,
        PutStatus.FLUSH_TIMEOUT,
        PutStatus.SLAVE_TIMEOUT,
        PutStatus.SLAVE_UNAVAILABLE,
    }
)
"""The messages are in the log of a leader."""
