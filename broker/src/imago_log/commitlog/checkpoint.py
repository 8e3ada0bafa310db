"""The checkpoint: up to which log offset everything else is known to be good.

Two slots of 512 bytes in one file, written in turn, each with a sequence number and a checksum:
a torn write leaves the other slot. See docs/formats/log.md.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from struct import Struct
from typing import TYPE_CHECKING

from imago_log.disk.files import fatal, write_all
from imago_wire.crc import crc31

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.disk.vfs import Vfs

MAGIC = 0x494D4743  # "IMGC"
VERSION = 2
SLOT_SIZE = 512
FILE_SIZE = 2 * SLOT_SIZE
_HEAD = Struct(">IH")
_SLOTS = {1: Struct(">IHxxQ10q"), 2: Struct(">IHxxQ11q")}
"""By version; the first one had no high watermark."""
_SLOT = _SLOTS[VERSION]
_CHECKSUM = Struct(">I")
_LATER_CHECKSUM_AT = SLOT_SIZE - _CHECKSUM.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All offsets are physical log offsets, all valid at the moment of writing or earlier."""

    log_start: int = 0
    """Files wholly below it are leftovers of a deletion."""
    log_end: int = 0
    """Written (page cache); after a clean stop the exact end."""
    durable_end: int = 0
    """Synced: damage below it is never the trace of a power loss."""
    views_synced: int = 0
    """Queue views: files hold everything below, on the device."""
    metadata_end: int = 0
    """The metadata snapshot holds every change below, on the device; at least `views_synced`."""
    keys_end: int = 0
    """Key index: entries of everything below are counted in `keys_count`, on the device."""
    keys_count: int = 0
    store_ms: int = 0
    """Newest store timestamp: later ones are not smaller."""
    metaq_id: int = 0
    """Highest MetaQ id given out: later ones are greater."""
    epoch: int = 0
    """Highest epoch promised: later ones are greater."""
    high_watermark: int = 0
    """Readers may read below it, at least."""


def encode_slot(sequence: int, checkpoint: Checkpoint) -> bytes:
    """Return one slot."""
    head = _SLOT.pack(MAGIC, VERSION, sequence, *astuple(checkpoint))
    return (head + _CHECKSUM.pack(crc31(head))).ljust(SLOT_SIZE, b"\0")


def decode_slot(data: bytes) -> tuple[int, Checkpoint] | None:
    """Return the sequence number and the value, or None for anything but a whole slot."""
    if len(data) < _SLOT.size + _CHECKSUM.size:
        return None
    magic, version = _HEAD.unpack_from(data)
    slot = _SLOTS.get(version)
    if magic != MAGIC or slot is None:
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, slot.size)
    if checksum != crc31(data[: slot.size]):
        return None
    _, _, sequence, *values = slot.unpack_from(data)
    return sequence, Checkpoint(**dict(zip(Checkpoint.__slots__, values, strict=False)))


def later_version(data: bytes) -> int:
    """Return the version of a whole slot that a later version wrote; 0: it is none.

    Later ones end with a checksum of all before it, whatever they hold.
    """
    if len(data) < SLOT_SIZE:
        return 0
    magic, version = _HEAD.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _LATER_CHECKSUM_AT)
    later = magic == MAGIC and version > VERSION
    return version if later and checksum == crc31(data[:_LATER_CHECKSUM_AT]) else 0


class CheckpointFile:
    """Reads the newest whole slot, writes the other one."""

    def __init__(self, vfs: Vfs, path: Path) -> None:
        self._vfs, self._path = vfs, path
        self.value: Checkpoint | None
        with fatal("open", path):
            self._fd = vfs.open(path, create=True)
            data = vfs.pread(self._fd, FILE_SIZE, 0)
        slots = [decode_slot(data[at : at + SLOT_SIZE]) for at in (0, SLOT_SIZE)]
        whole = sorted((slot for slot in slots if slot is not None), key=lambda slot: slot[0])
        self._sequence, self.value = whole[-1] if whole else (0, None)
        self._has_room = len(whole) == len(slots)

    def write(self, checkpoint: Checkpoint) -> None:
        """Make a checkpoint durable. LogIOError when it cannot be."""
        if not self._has_room:
            with fatal("allocate", self._path):  # of both slots: the disk may be full later
                self._vfs.allocate(self._fd, FILE_SIZE)
            self._has_room = True
        self._sequence += 1
        at = SLOT_SIZE * (self._sequence % 2)
        write_all(self._vfs, self._fd, encode_slot(self._sequence, checkpoint), at, self._path)
        with fatal("sync", self._path):
            self._vfs.sync(self._fd)
        self.value = checkpoint

    def close(self) -> None:
        self._vfs.close(self._fd)
