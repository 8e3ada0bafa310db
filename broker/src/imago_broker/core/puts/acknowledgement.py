"""What a positive answer to a put has waited for."""

from __future__ import annotations

from enum import Enum


class Acknowledgement(Enum):
    """How safe a message is when its producer is answered; the value is the word users write."""

    LEADER = "leader"
    """Written by the master: survives the death of the process, not of the machine."""
    LEADER_FSYNC = "leader-fsync"
    """On the master's disk: survives its loss of power."""
    REPLICATED = "replicated"
    """Written by every in-sync member: survives the loss of a machine."""
    REPLICATED_FSYNC = "replicated-fsync"
    """On the disk of every in-sync member: survives a loss of power of all."""

    __hash__ = object.__hash__
    """By identity, in C: each read of a put looks its level up."""

    @property
    def needs_sync(self) -> bool:
        """Whether the master's own disk has to be waited for."""
        return self in (Acknowledgement.LEADER_FSYNC, Acknowledgement.REPLICATED_FSYNC)

    @property
    def needs_replicas(self) -> bool:
        """Whether other members have to be waited for."""
        return self in (Acknowledgement.REPLICATED, Acknowledgement.REPLICATED_FSYNC)
