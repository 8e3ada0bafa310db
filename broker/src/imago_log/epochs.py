"""The epoch file: which start as master wrote which part of the log.

Text in the form of RocketMQ's `epochFileCheckpoint`: the number of lines, the crc31 of what
follows, then one `epoch-startOffset` a line. Replaced whole and synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.errors import CorruptLogError
from imago_log.files import fatal, read_whole, replace_whole
from imago_wire.crc import crc31

if TYPE_CHECKING:
    from pathlib import Path

    from imago_log.vfs import Vfs

Epochs = tuple[tuple[int, int], ...]
"""(epoch, first physical offset), both never falling."""


def encode_epochs(epochs: Epochs) -> bytes:
    """Return the file's content."""
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs).encode()
    return b"%d\n%d\n%b" % (len(epochs), crc31(lines), lines)


def decode_epochs(data: bytes) -> Epochs:
    """Return what the file says. ValueError: it is damaged."""
    count, checksum, lines = data.split(b"\n", 2)
    if int(checksum) and crc31(lines) != int(checksum):  # 0: written without a checksum
        raise ValueError(f"checksum {crc31(lines)}, the file says {int(checksum)}")
    pairs = [line.partition(b"-") for line in lines.splitlines()]
    epochs = tuple((int(epoch), int(start)) for epoch, _, start in pairs)
    if len(epochs) != int(count):
        raise ValueError(f"{len(epochs)} epochs, the file says {int(count)}")
    if list(epochs) != sorted(epochs) or len({epoch for epoch, _ in epochs}) != len(epochs):
        raise ValueError("epochs are not in order")
    return epochs


class EpochFile:
    """The epochs of one log, on disk whenever a method returns."""

    def __init__(self, vfs: Vfs, path: Path) -> None:
        self._vfs, self._path = vfs, path
        with fatal("read", path):
            data = read_whole(vfs, path)
        try:
            self.epochs: Epochs = decode_epochs(data) if data is not None else ()
        except ValueError as error:
            raise CorruptLogError(path, 0, str(error)) from error

    @property
    def last(self) -> int:
        """The newest epoch; 0 before the first."""
        return self.epochs[-1][0] if self.epochs else 0

    def begin(self, epoch: int, start: int) -> None:
        """Open a new epoch. An epoch in which nothing was written gives way to it."""
        assert epoch > self.last, "the caller draws a new epoch"
        kept = tuple(pair for pair in self.epochs if pair[1] < start)
        self._replace((*kept, (epoch, start)))

    def truncate(self, end: int) -> None:
        """Forget the epochs that begin at or after `end`, but keep the newest number."""
        kept = tuple(pair for pair in self.epochs if pair[1] < end)
        if len(kept) < len(self.epochs):
            self._replace((*kept, (self.last, end)))

    def forget_before(self, start: int) -> None:
        """Forget the epochs that ended at or before the log's new start."""
        ends = [pair[1] for pair in self.epochs[1:]]
        dead = sum(end <= start for end in ends)
        if dead:
            self._replace(self.epochs[dead:])

    def _replace(self, epochs: Epochs) -> None:
        replace_whole(self._vfs, self._path, encode_epochs(epochs))
        self.epochs = epochs
