"""The epoch file: which leader wrote which part of the log, and the highest epoch ever promised.

Text in the form of RocketMQ's `epochFileCheckpoint`: the number of epochs, the crc31 of what
follows, then one `epoch-startOffset` a line. A promise above the last epoch is in one more
line, `promised <epoch>`. Replaced whole and synced.

Records do not say in which epoch they were written. Where the file is damaged or gone nothing is
guessed: no epoch of the log is known, so no other log agrees with it, and whoever leads with it
takes all of it into its own epoch.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from imago_log.disk.files import fatal, read_whole, replace_whole
from imago_log.errors import NoSpaceError
from imago_wire.crc import crc31
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_log.disk.vfs import Vfs

Epochs = tuple[tuple[int, int], ...]
"""(epoch, first log offset), both never falling."""


_PROMISED = b"promised "


def encode_epochs(epochs: Epochs, promised: int = 0) -> bytes:
    """Return the file's content."""
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs).encode()
    if promised > last_of(epochs):
        lines += b"%b%d\n" % (_PROMISED, promised)
    return b"%d\n%d\n%b" % (len(epochs), crc31(lines), lines)


def decode_epochs(data: bytes) -> tuple[Epochs, int]:
    """Return the epochs and the highest one promised. ValueError: the file is damaged."""
    count, checksum, rest = data.split(b"\n", 2)
    if int(checksum) and crc31(rest) != int(checksum):  # 0: written without a checksum
        raise WrongError(f"checksum {crc31(rest)}, the file says {int(checksum)}")
    lines = rest.splitlines()
    promised = 0
    if lines and lines[-1].startswith(_PROMISED):
        promised = int(lines.pop().removeprefix(_PROMISED))
    pairs = [line.partition(b"-") for line in lines]
    epochs = tuple((int(epoch), int(start)) for epoch, _, start in pairs)
    if len(epochs) != int(count):
        raise WrongError(f"{len(epochs)} epochs, the file says {int(count)}")
    if list(epochs) != sorted(epochs) or len({epoch for epoch, _ in epochs}) != len(epochs):
        raise WrongError("epochs are not in order")
    return epochs, max(promised, last_of(epochs))


def damaged_path(path: Path) -> Path:
    """Return where a file that could not be used is kept."""
    return path.with_name(path.name + ".damaged")


def last_of(epochs: Epochs) -> int:
    """Return the newest epoch that wrote; 0 before the first."""
    return epochs[-1][0] if epochs else 0


class EpochFile:
    """The epochs of one log, on disk whenever a method returns."""

    def __init__(self, vfs: Vfs, path: Path) -> None:
        self._vfs, self._path = vfs, path
        with fatal("read", path):
            data = read_whole(vfs, path)
        self._waits = False
        self.unsaved = False
        """Whether the file does not hold this state yet."""
        self.epochs: Epochs = ()
        self.promised = 0
        """The highest epoch ever promised or opened: nothing of a lower one is taken."""
        self.problem = "" if data is not None else "it is missing"
        """Why the file could not be used."""
        try:
            if data is not None:
                self.epochs, self.promised = decode_epochs(data)
        except ValueError as error:
            self.problem = str(error) or "it is damaged"

    @property
    def last(self) -> int:
        """The newest epoch that has a place in the log; 0 before the first."""
        return last_of(self.epochs)

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Let what is done within hold in memory alone while the file has no room: see `save`.

        For what every start does again, and for a shard without other members.
        """
        self._waits = True
        try:
            yield
        finally:
            self._waits = False

    def save(self) -> None:
        """Write what the disk had no room for. NoSpaceError: there is none yet."""
        if self.unsaved:
            self._write(self.epochs, self.promised)

    def set_aside(self) -> Path | None:
        """Keep a file that could not be used, for people to inspect; None: there is none."""
        if not self._vfs.exists(self._path):
            return None
        aside = damaged_path(self._path)
        with fatal("rename", self._path):
            self._vfs.rename(self._path, aside)
            self._vfs.sync_folder(aside.parent)
        return aside

    def lead(self, epoch: int, log_start: int, log_end: int) -> None:
        """Open a new epoch at the log's end; where no epoch is known it covers the whole log."""
        self.begin(epoch, log_end if self.epochs else log_start)

    def begin(self, epoch: int, start: int) -> None:
        """Open a new epoch. An epoch in which nothing was written gives way to it."""
        kept = tuple((each, begin) for each, begin in self.epochs if begin < start)
        assert epoch > last_of(kept), "epochs of a log grow"
        self._replace((*kept, (epoch, start)), max(epoch, self.promised))

    def promise(self, epoch: int) -> None:
        """Refuse lower epochs from now on."""
        if epoch > self.promised:
            self._replace(self.epochs, epoch)

    def end_at(self, end: int) -> None:
        """Forget the epochs that begin behind the log's end; one may begin there."""
        self._keep(tuple((epoch, begin) for epoch, begin in self.epochs if begin <= end))

    def truncate(self, end: int) -> None:
        """Forget the epochs that begin at or behind the log's new end."""
        self._keep(tuple((epoch, begin) for epoch, begin in self.epochs if begin < end))

    def forget_before(self, start: int) -> None:
        """Forget the epochs that ended at or before the log's new start."""
        ends = [begin for _, begin in self.epochs[1:]]
        self._keep(self.epochs[sum(end <= start for end in ends) :])

    def next_start(self, offset: int) -> int | None:
        """Return where the first epoch behind the one of an offset begins."""
        return next((start for _, start in self.epochs if start > offset), None)

    def _keep(self, epochs: Epochs) -> None:
        if epochs != self.epochs:
            self._replace(epochs, self.promised)

    def _replace(self, epochs: Epochs, promised: int) -> None:
        try:
            self._write(epochs, promised)
        except NoSpaceError:
            if not self._waits:
                raise
            self.unsaved = True
        self.epochs, self.promised = epochs, promised

    def _write(self, epochs: Epochs, promised: int) -> None:
        data = encode_epochs(epochs, promised)
        replace_whole(self._vfs, self._path, data, room=True)
        self.unsaved = False
