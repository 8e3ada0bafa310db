"""The log as bytes, for those who copy it: ranges, slices of files, borders of records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.errors import CorruptLogError, ReplicaGapError
from imago_log.results import FileSlice
from imago_wire.hot import scan_records
from imago_wire.record import ScanStop

if TYPE_CHECKING:
    from imago_log.lifecycle.parts import Parts

CHUNK_BYTES = 8 << 20


def read_log(parts: Parts, offset: int, bytes_max: int) -> bytes | memoryview:
    """Return what the log holds from an offset on: see `MessageStore.read_log`."""
    size = _size(parts, offset, bytes_max)
    if not size:
        return b""
    return parts.recent.run(offset, size) or parts.log.read(offset, size)


def log_slice(parts: Parts, offset: int, bytes_max: int) -> FileSlice:
    """Return the same as a part of a file: see `MessageStore.log_slice`."""
    size = _size(parts, offset, bytes_max)
    return FileSlice(parts.log.file_of(offset), offset % parts.log.segment_size, size)


def _size(parts: Parts, offset: int, bytes_max: int) -> int:
    """Return how many bytes from an offset on lie in its file and in its epoch."""
    log = parts.log
    if not log.start <= offset <= log.end:
        raise ReplicaGapError(f"log offset {offset} of a log from {log.start} to {log.end}")
    end = min(offset - offset % log.segment_size + log.segment_size, log.end)
    next_epoch = parts.epochs.next_start(offset)
    if next_epoch is not None:
        end = min(end, next_epoch)
    damaged = parts.damage.first_in(offset, end)
    if damaged is not None:
        if damaged.start <= offset:
            raise CorruptLogError(damaged.path, damaged.position, damaged.reason)
        end = damaged.start
    return max(0, min(bytes_max, end - offset))


def is_border(parts: Parts, offset: int) -> bool:
    """Whether a record, a blank record or a file begins at an offset, or the log ends there.

    The records before it are walked from the next border that is known: a body may hold what looks
    like a record of its own place.
    """
    log = parts.log
    if not log.start <= offset <= log.end:
        return False
    at, chunk_bytes = _known_border(parts, offset), CHUNK_BYTES
    while at < offset:
        left = offset - at
        size = min(left, chunk_bytes)
        data = log.read(at, size)
        scan = scan_records(data, at, verify=False)
        at += scan.end
        goes_on = scan.stop is ScanStop.END or (scan.stop is ScanStop.SHORT and size < left)
        if len(data) < size or not goes_on:
            break
        chunk_bytes = CHUNK_BYTES if scan.end else chunk_bytes * 2
    return at == offset


def _known_border(parts: Parts, offset: int) -> int:
    log = parts.log
    base = offset - offset % log.segment_size
    known = [base, log.start, log.end, *(start for _, start in parts.epochs.epochs)]
    known += [damaged.end for damaged in parts.damage.ranges]
    recent = parts.recent.start_before(offset)
    if recent is not None:
        known.append(recent)
    return max(border for border in known if border <= offset)
