"""What is in a bucket of backups, format version 1: names, manifests, chunks. Pure.

Documented in docs/formats/backup.md.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import orjson

from imago_backup.errors import BackupDamagedError, BackupError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 1
CHUNK_BYTES = 8 << 20
"""Of the log in one object, which a broker has in memory once while it sends it."""
NAME_CHARS_MAX = 63
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
BACKUPS, CHUNKS = "backups", "chunks"
STARTED, WHOLE = "started", "manifest"
FILES = frozenset({"config/rocketmq-settings", "config/server-ini-topics"})
"""What a data folder holds that its log does not tell: a restore writes these, and no others."""
SWEEP, SWEEP_LOCK = "sweep", "sweep/lock"
_UPGRADE = "use a version of imago that is as new as the one that wrote it"
_OTHER = "take another backup"

MetaqOffsets = dict[str, dict[str, dict[str, int]]]
"""MetaQ positions of groups: topic to group to partition."""


def check_name(name: str) -> str:
    """Return a backup's name. BackupError: it cannot be one."""
    if not _NAME.fullmatch(name):
        raise BackupError(
            f"{name!r:.80} is no name of a backup",
            f"1 to {NAME_CHARS_MAX} of a-z, 0-9, . and -, with a letter or digit at both ends",
        )
    return name


def started_of(name: str) -> str:
    """Return the object that says that a backup was begun, and of which shards."""
    return f"{BACKUPS}/{name}/{STARTED}"


def shard_of(name: str, shard: str) -> str:
    """Return the object that is a shard's manifest."""
    return f"{BACKUPS}/{name}/{shard}"


def whole_of(name: str) -> str:
    """Return the object that makes a backup one: it is written last."""
    return f"{BACKUPS}/{name}/{WHOLE}"


class Chunk(NamedTuple):
    """A piece of the log within one of its files, and the object that holds it."""

    offset: int
    """Log offset of its first byte."""
    length: int
    """How much of the log it is."""
    stored: int
    """Bytes of the object: zeros at the end of the piece are left out."""
    digest: str
    """SHA-256 of the object, hexadecimal."""

    @property
    def end(self) -> int:
        """Log offset behind its last byte."""
        return self.offset + self.length

    def object_name(self, shard: str) -> str:
        """Return the name by which all backups that hold this piece know it."""
        return f"{CHUNKS}/{shard}/{self.offset:020d}-{self.digest}"


def chunk_of(offset: int, data: bytes) -> tuple[Chunk, bytes]:
    """Return what stands for a piece of the log, and the object's content."""
    content = data.rstrip(b"\0")
    digest = hashlib.sha256(content).hexdigest()
    return Chunk(offset, len(data), len(content), digest), content


def next_length(offset: int, end: int, segment_bytes: int) -> int:
    """Return how long the piece is that begins at an offset: none lies in two of the log's files.

    Pieces begin at the same offsets in all backups, so that they share them.
    """
    within = offset % segment_bytes
    return min(CHUNK_BYTES - within % CHUNK_BYTES, segment_bytes - within, end - offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A backup that was begun."""

    format: int = FORMAT
    name: str
    cluster: str
    shards: list[str]
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardManifest:
    """A shard in a backup. What chunks hold and this does not, the log itself says."""

    format: int = FORMAT
    backup: str
    cluster: str
    cluster_id: str
    shard: str
    segment_bytes: int
    """Size of the log's files, which whoever serves a restored folder has to keep."""
    log_start: int
    end: int
    """The cut: everything below was readable, nothing behind it is in here."""
    first_ms: int
    """Store time of the oldest record; 0: there is none."""
    last_ms: int
    """No record is newer."""
    cut_ms: int
    epoch_seen: int
    epochs: list[list[int]]
    damaged: list[list[Any]] = field(default_factory=list)
    """Parts of the log that were out of service: from, to, why."""
    chunks: list[Chunk]
    metaq_offsets: MetaqOffsets = field(default_factory=dict)
    """Of MetaQ's groups, which keep them in ZooKeeper alone. Never ahead of the cut."""
    files: dict[str, str] = field(default_factory=dict)
    """Small files of the member's folder that its log does not tell, by path."""
    older_in: str = ""
    """The bucket of tiered storage that alone has what is older than this log; empty: none has."""

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return sum(chunk.stored for chunk in self.chunks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSummary:
    """What the backup's manifest says of a shard."""

    digest: str
    """SHA-256 of the shard's manifest."""
    log_start: int
    end: int
    first_ms: int
    last_ms: int
    cut_ms: int
    size: int
    damaged: int
    older_in: str = ""

    @property
    def lacks(self) -> str:
        """What its log has no more and the backup neither; empty: it has all that there is."""
        if not self.older_in:
            return ""
        return f"lacks the messages that only {self.older_in} has, older than its log"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupManifest:
    """A backup. While there is none the backup is not complete."""

    format: int = FORMAT
    name: str
    cluster: str
    cluster_id: str
    version: str
    started_ms: int
    finished_ms: int
    shards: dict[str, ShardSummary]

    @property
    def size(self) -> int:
        """Bytes of all chunks, those that it shares with other backups, too."""
        return sum(shard.size for shard in self.shards.values())

    @property
    def restorable_from_ms(self) -> int:
        """The earliest point in time that is in the logs of all shards."""
        return max((shard.first_ms for shard in self.shards.values()), default=0)

    def to_json(self) -> dict[str, Any]:
        """Return it as the admin interface and `imago backup list --json` show it."""
        return {
            "backup": self.name,
            "cluster": self.cluster,
            "clusterId": self.cluster_id,
            "version": self.version,
            "startedAt": self.started_ms,
            "finishedAt": self.finished_ms,
            "restorableFrom": self.restorable_from_ms,
            "size": self.size,
            "shards": {
                name: {
                    "logStart": shard.log_start,
                    "logEnd": shard.end,
                    "firstAt": shard.first_ms,
                    "lastAt": shard.last_ms,
                    "cutAt": shard.cut_ms,
                    "size": shard.size,
                    "damaged": shard.damaged,
                    "lacks": shard.lacks,
                }
                for name, shard in self.shards.items()
            },
        }


def summary_of(manifest: ShardManifest, data: bytes) -> ShardSummary:
    """Return what the backup's manifest says of a shard's, which has these bytes."""
    return ShardSummary(
        digest=hashlib.sha256(data).hexdigest(),
        log_start=manifest.log_start,
        end=manifest.end,
        first_ms=manifest.first_ms,
        last_ms=manifest.last_ms,
        cut_ms=manifest.cut_ms,
        size=manifest.size,
        damaged=len(manifest.damaged),
        older_in=manifest.older_in,
    )


Record = TypeVar("Record", Started, ShardManifest, BackupManifest)


def encode(record: Started | ShardManifest | BackupManifest) -> bytes:
    """Return an object's content: SHA-256 of the rest, a line feed, JSON, a line feed."""
    data = orjson.dumps(record, default=tuple) + b"\n"
    return hashlib.sha256(data).hexdigest().encode() + b"\n" + data


def decode(kind: type[Record], name: str, data: bytes) -> Record:
    """Read one back. BackupDamagedError names the object and says what is wrong with it."""
    checksum, _, rest = data.partition(b"\n")
    if hashlib.sha256(rest).hexdigest().encode() != checksum:
        raise BackupDamagedError(f"{name}: its checksum does not match its content", _OTHER)
    try:
        said = orjson.loads(rest)
        if said["format"] != FORMAT:
            raise BackupDamagedError(f"{name}: format {said['format']}, not {FORMAT}", _UPGRADE)
        return kind(**_typed(kind, said))
    except (ValueError, TypeError, KeyError) as error:
        raise BackupDamagedError(f"{name}: {error}", _UPGRADE) from error


def _typed(kind: type[Record], said: Mapping[str, Any]) -> dict[str, Any]:
    if kind is ShardManifest:
        return {**said, "chunks": [Chunk(*each) for each in said["chunks"]]}
    if kind is BackupManifest:
        shards = {name: ShardSummary(**each) for name, each in said["shards"].items()}
        return {**said, "shards": shards}
    return dict(said)
