"""What members say to each other in the model: the frames of the replication protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from imago_broker.core.shard.values import Epochs, Log
    from imago_broker.model.registry.shard import Member
    from imago_testing.simulation.disk import Record


class Hello(NamedTuple):
    member: Member
    connection: int
    epoch_seen: int


class Refuse(NamedTuple):
    connection: int
    epoch: int
    why: str


class Welcome(NamedTuple):
    connection: int
    epoch: int
    log: Log


class Fetch(NamedTuple):
    member: Member
    connection: int
    epoch: int
    offset: int
    offset_epoch: int
    chain: int
    """The model's truth about the follower's log, for the checker alone."""


class Data(NamedTuple):
    connection: int
    epoch: int
    offset: int
    records: tuple[Record, ...]
    epochs: Epochs
    high_watermark: int
    chain: int
    """The model's truth about the leader's log before `offset`."""
    data: tuple[bytes, ...]
    """Of each record, where members have real stores."""
    sync: bool
    """Whether an acknowledgement waits for the follower's disk."""


class Ack(NamedTuple):
    member: Member
    connection: int
    epoch: int
    end: int
    durable: int


Frame = Hello | Refuse | Welcome | Fetch | Data | Ack
