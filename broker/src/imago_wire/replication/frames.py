"""The protocol between the members of a shard, as values and bytes: docs/formats/replication.md.

A follower connects to the leader's replication port. HELLO and WELCOME (or REFUSE) say who both
are and which epochs wrote which part of their logs; FETCH says from where the follower continues;
then DATA frames flow one way and ACK frames the other. Either side may ask the other for bytes
that are damaged at home (REPAIR_ASK, REPAIR). Every frame names the epoch in which it was sent,
and the bytes of a DATA frame were all written in one epoch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

MAGIC: Final = b"IMGR"
VERSION: Final = 1
HEADER: Final = struct.Struct(">4sBBHqII")
"""Magic, version, frame type, flags, epoch of the sender, payload size, CRC-32 of what precedes."""

PAYLOAD_BYTES_MAX: Final = 4 << 20
HANDSHAKE_BYTES_MAX: Final = 64 << 10
SMALL_BYTES_MAX: Final = 1024
"""Payload of frames that hold some numbers or a sentence."""
EPOCHS_MAX: Final = 2048
TEXT_BYTES_MAX: Final = 512
FEATURE_LEVEL: Final = 1
"""Type of the extension of HELLO with the highest feature level that the follower understands:
u16, 1 where there is none."""

Epochs = tuple[tuple[int, int], ...]
"""(epoch, log offset of its first byte), both rising."""
Buffer = bytes | bytearray | memoryview
"""Anything that log bytes may come in."""

U16: Final = struct.Struct(">H")
PAIR: Final = struct.Struct(">qq")
HELLO_NUMBERS: Final = struct.Struct(">Hqqq")
WELCOME_NUMBERS: Final = struct.Struct(">qqqq")
DATA_NUMBERS: Final = struct.Struct(">qqqqq")
REPAIR_ASK_NUMBERS: Final = struct.Struct(">qI")
REPAIR_NUMBERS: Final = struct.Struct(">q")
HEADER_UNCHECKED: Final = HEADER.size - 4

DATA_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - DATA_NUMBERS.size
"""Most log bytes of one DATA frame."""
REPAIR_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - REPAIR_NUMBERS.size
"""Most log bytes that one REPAIR answers with."""


class FrameType(IntEnum):
    """Kind of a frame; its number is in the header."""

    HELLO = 1
    WELCOME = 2
    REFUSE = 3
    FETCH = 4
    DATA = 5
    ACK = 6
    REPAIR_ASK = 7
    REPAIR = 8
    METADATA = 9


class RefusalCode(IntEnum):
    """Why the other side is not served."""

    CLUSTER = 1
    """It belongs to another cluster."""
    SHARD = 2
    """It belongs to another shard."""
    MEMBER = 3
    """It is not registered as a member of the shard, or it is ourselves."""
    NOT_LEADER = 4
    """This side does not lead, or no longer: look into the registry."""
    STALE_EPOCH = 5
    """The frame's epoch is not the one in force."""
    DIVERGED = 6
    """Its log does not continue ours where it wants to go on: compare the epochs again."""
    PROTOCOL = 7
    """It sent what may not be sent here."""
    BUSY = 8
    """Too many connections."""
    DAMAGED = 9
    """What came as log bytes behind the follower's end are no records: check them."""


class Flags(IntFlag):
    """The flags of a header; each has a meaning in one type of frame, others are ignored."""

    NONE = 0
    SYNC = 1
    """DATA: answers wait for the disk of every member; sync what you have and say so."""
    METADATA = 2
    """FETCH: the part of the log that said what topics there are is gone; send METADATA first."""
    LAST = 4
    """METADATA: the snapshot ends with this frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """A follower says who it is and what it holds. `epoch`: the highest it ever promised."""

    epoch: int
    cluster_id: str
    shard: int
    uuid: str
    incarnation: int
    epochs: Epochs
    log_start: int
    log_end: int
    extensions: tuple[tuple[int, bytes], ...] = ()
    """(type, value): room for what later versions have to say; unknown types are ignored."""

    @property
    def feature_level(self) -> int:
        """The highest that the follower understands."""
        said = dict(self.extensions).get(FEATURE_LEVEL, b"")
        return max(1, int.from_bytes(said)) if len(said) == U16.size else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    """The leader of `epoch` says the same of itself."""

    epoch: int
    uuid: str
    incarnation: int
    epochs: Epochs
    log_start: int
    log_end: int
    high_watermark: int
    extensions: tuple[tuple[int, bytes], ...] = ()


class Refuse(NamedTuple):
    """The sender closes the connection behind this."""

    epoch: int
    code: int
    text: str


class Fetch(NamedTuple):
    """The follower has promised `epoch` and cut its log: it goes on at `offset`."""

    epoch: int
    offset: int
    last_epoch: int
    """Epoch of the byte before `offset`; 0: there is none."""
    flags: int = 0

    @property
    def wants_metadata(self) -> bool:
        """Whether METADATA has to come before DATA."""
        return bool(self.flags & Flags.METADATA)


class Data(NamedTuple):
    """Log bytes from `offset` on, all of `data_epoch`; without bytes a sign of life."""

    epoch: int
    flags: int
    offset: int
    data_epoch: int
    epoch_start: int
    """Log offset at which `data_epoch` began."""
    high_watermark: int
    leader_end: int
    data: memoryview

    @property
    def wants_sync(self) -> bool:
        """Whether answers wait for our disk."""
        return bool(self.flags & Flags.SYNC)


class Ack(NamedTuple):
    """The follower's log ends at `end`, and is on its disk up to `durable_end`."""

    epoch: int
    end: int
    durable_end: int


class RepairAsk(NamedTuple):
    """The sender's log is damaged here: send these bytes."""

    epoch: int
    offset: int
    size: int


class Repair(NamedTuple):
    """Log bytes from `offset` on; none: this side cannot help."""

    epoch: int
    offset: int
    data: memoryview


class Metadata(NamedTuple):
    """A part of a snapshot of topics, groups, offsets …; the parts come in order."""

    epoch: int
    flags: int
    data: memoryview

    @property
    def last(self) -> bool:
        """Whether the snapshot is whole with this part."""
        return bool(self.flags & Flags.LAST)


Frame = Hello | Welcome | Refuse | Fetch | Data | Ack | RepairAsk | Repair | Metadata

SIZE_MAX: Final = {
    FrameType.HELLO: HANDSHAKE_BYTES_MAX,
    FrameType.WELCOME: HANDSHAKE_BYTES_MAX,
    FrameType.REFUSE: SMALL_BYTES_MAX,
    FrameType.FETCH: SMALL_BYTES_MAX,
    FrameType.DATA: PAYLOAD_BYTES_MAX,
    FrameType.ACK: SMALL_BYTES_MAX,
    FrameType.REPAIR_ASK: SMALL_BYTES_MAX,
    FrameType.REPAIR: PAYLOAD_BYTES_MAX,
    FrameType.METADATA: PAYLOAD_BYTES_MAX,
}
