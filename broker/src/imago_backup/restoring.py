"""A data folder made of a shard's backup, which one member of a new shard starts with.

The log's files are written one after the other, each beside its place and then renamed. A mark in
the folder says that a restore is under way: no broker starts on it, and the same restore goes on
where a kill has left it. All else in a data folder is made from the log by the first start.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from imago_backup import shelf
from imago_backup.errors import BackupDamagedError, RestoreRefusedError
from imago_backup.format import FILES, chunk_of
from imago_backup.reading import RecordWalk
from imago_log.commitlog.checkpoint import Checkpoint, encode_slot
from imago_log.commitlog.epochs import encode_epochs
from imago_log.disk.files import offset_name
from imago_log.disk.folder import RESTORED_OFFSETS, RESTORING
from imago_log.disk.vfs import FILE_MODE, FOLDER_MODE
from imago_objects import ObjectMissingError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_backup.format import BackupManifest, Chunk, ShardManifest
    from imago_backup.shelf import Bucket

NOT_DATA = frozenset({"lost+found", f"{RESTORING}.new"})
"""What an empty volume may hold, and what a restore that was killed at once leaves."""
_ANOTHER = "take another backup: `imago backup list` shows them, `imago backup verify` reads them"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """What is to be in a folder."""

    backup: BackupManifest
    shard: str
    folder: Path
    until_ms: int | None = None
    """Nothing that was stored later; None: everything up to the cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What is in it now."""

    shard: str
    folder: Path
    end: int
    segment_bytes: int
    newest_ms: int
    """Store time of the newest record, where a point in time was asked for."""


class ShardRestore:
    """One shard into one folder."""

    def __init__(
        self,
        bucket: Bucket,
        order: RestoreOrder,
        progress: Callable[[str, int, int], None] = lambda *_: None,
    ) -> None:
        """`progress` is told shard, bytes done and all bytes."""
        self._bucket, self._order, self._progress = bucket, order, progress
        self._folder = order.folder
        self._log = order.folder / "commitlog"

    async def run(self) -> Restored:
        """Do it, or go on with it. RestoreRefusedError, BackupDamagedError, ObjectsError, OSError.

        The folder is whole when this returns; until then no broker starts on it.
        """
        order = self._order
        manifest = await shelf.shard_manifest_of(self._bucket, order.backup, order.shard)
        if order.until_ms is not None and order.until_ms < manifest.first_ms:
            raise RestoreRefusedError(
                f"{order.shard} has no record that old in the backup {order.backup.name}",
                "choose a later time, or an older backup",
            )
        self._begin(manifest)
        end, newest_ms = await self._write_log(manifest)
        self._write_rest(manifest, end)
        (self._folder / RESTORING).unlink()
        _sync_folder(self._folder)
        return Restored(
            shard=order.shard,
            folder=self._folder,
            end=end,
            segment_bytes=manifest.segment_bytes,
            newest_ms=newest_ms or manifest.last_ms,
        )

    def _begin(self, manifest: ShardManifest) -> None:
        folder, order = self._folder, self._order
        mark = _mark(order)
        there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if RESTORING in there:
            if (folder / RESTORING).read_bytes() != mark:
                raise RestoreRefusedError(
                    f"another restore into {folder} was begun",
                    "repeat that one, or empty the folder",
                )
            return
        if held := [name for name in there if name not in NOT_DATA]:
            raise RestoreRefusedError(
                f"{folder} is not empty: {', '.join(held[:5])}",
                "name an empty folder: nothing is ever written over data",
            )
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        files = -(-(manifest.end - manifest.log_start) // manifest.segment_bytes) + 1
        needed, free = files * manifest.segment_bytes, shutil.disk_usage(folder).free
        if free < needed:
            raise RestoreRefusedError(
                f"{folder} has room for {free} bytes, the log takes {needed}",
                "name a folder on a larger disk",
            )
        _write(folder / RESTORING, mark)

    async def _write_log(self, manifest: ShardManifest) -> tuple[int, int]:
        """Write the log's files; return where it ends, and the newest record's store time."""
        self._log.mkdir(mode=FOLDER_MODE, exist_ok=True)
        size, until_ms = manifest.segment_bytes, self._order.until_ms
        by_file: dict[int, list[Chunk]] = {}
        for chunk in manifest.chunks:
            by_file.setdefault(chunk.offset - chunk.offset % size, []).append(chunk)
        whole = self._whole_files(size)
        done, newest_ms = 0, 0
        for base, chunks in by_file.items():
            if base not in whole:
                start = max(base, manifest.log_start)
                walk = RecordWalk(start, size, known=manifest.damaged, until_ms=until_ms)
                await self._write_file(base, chunks, walk, done, manifest.size)
                newest_ms = walk.newest_ms or newest_ms
                if walk.cut is not None:
                    return walk.cut, newest_ms
            done += sum(chunk.stored for chunk in chunks)
            self._progress(manifest.shard, done, manifest.size)
        return manifest.end, newest_ms

    def _whole_files(self, size: int) -> set[int]:
        """Return the files that an earlier try has written; of them the last one may be cut."""
        there = sorted(
            path for path in self._log.iterdir() if path.suffix == "" and path.stat().st_size
        )
        if there and self._order.until_ms is not None:
            there.pop().unlink()
        return {int(path.name) for path in there if path.stat().st_size == size}

    async def _write_file(
        self, base: int, chunks: list[Chunk], walk: RecordWalk, done: int, total: int
    ) -> None:
        path, size, shard = self._log / offset_name(base), walk.segment_bytes, self._order.shard
        fresh = path.with_name(path.name + ".new")
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            os.posix_fallocate(fd, 0, size)  # a broker writes on in it, and needs the room
            for chunk in chunks:
                data = await self._content(chunk)
                if self._order.until_ms is not None:
                    self._check(walk, chunk, data)
                if walk.cut is not None:
                    data = data[: max(0, walk.cut - chunk.offset)]
                _write_at(fd, data, chunk.offset - base)
                done += chunk.stored
                self._progress(shard, done, total)
                if walk.cut is not None:
                    # A record that begins in the chunk before may be the first that is too new.
                    os.ftruncate(fd, walk.cut - base)
                    os.posix_fallocate(fd, 0, size)
                    break
            os.fsync(fd)
        finally:
            os.close(fd)
        if walk.cut == base:
            fresh.unlink()
            return
        fresh.rename(path)
        _sync_folder(self._log)

    async def _content(self, chunk: Chunk) -> bytes:
        name = chunk.object_name(self._order.shard)
        try:
            data = (await self._bucket.get(name)).ljust(chunk.length, b"\0")
        except ObjectMissingError as error:
            raise BackupDamagedError(f"{name} is missing", _ANOTHER) from error
        if len(data) != chunk.length or chunk_of(chunk.offset, data)[0].digest != chunk.digest:
            raise BackupDamagedError(f"{name}: its checksum does not match", _ANOTHER)
        return data

    def _check(self, walk: RecordWalk, chunk: Chunk, data: bytes) -> None:
        """Walk over the records: a point in time can be found only where they are whole."""
        broken = walk.take(chunk.offset, data)
        if broken and walk.cut is None:
            at = broken[0].offset
            raise BackupDamagedError(
                f"the record at log offset {at} is not whole: {broken[0].reason}",
                "restore without a point in time: the part is taken out of service",
            )

    def _write_rest(self, manifest: ShardManifest, end: int) -> None:
        """Write what a start needs to know of the log, and what the log does not tell."""
        config = self._folder / "config"
        config.mkdir(mode=FOLDER_MODE, exist_ok=True)
        for name in FILES & manifest.files.keys():
            _write(self._folder / name, manifest.files[name].encode())
        if manifest.metaq_offsets:
            _write(self._folder / RESTORED_OFFSETS, orjson.dumps(manifest.metaq_offsets))
        epochs = tuple((epoch, start) for epoch, start in manifest.epochs if start <= end)
        _write(self._folder / "epochFileCheckpoint", encode_epochs(epochs, manifest.epoch_seen))
        checkpoint = Checkpoint(
            log_start=manifest.log_start,
            log_end=end,
            durable_end=end,
            views_synced=manifest.log_start,
            metadata_end=manifest.log_start,
            keys_end=manifest.log_start,
            epoch=manifest.epoch_seen,
            high_watermark=end,
        )
        _write(self._folder / "checkpoint", encode_slot(0, checkpoint))


def _mark(order: RestoreOrder) -> bytes:
    said = {"backup": order.backup.name, "shard": order.shard, "untilMs": order.until_ms}
    return orjson.dumps(said | {"started": order.backup.started_ms}) + b"\n"


def _write_at(fd: int, data: bytes, position: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, position)
        rest, position = rest[written:], position + written


def _write(path: Path, data: bytes) -> None:
    """Write a small file, durably: whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        _write_at(fd, data, 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    fresh.rename(path)
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
