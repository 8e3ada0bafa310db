"""The commits of a table: what one says, and its JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from imago_client.message_queue import MessageQueue
from imago_spark.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_spark.incarnations import Incarnations

FORMAT: Final = 1
UPKEPT: Final = 2
"""The format of commits that take files away, which earlier versions would miss."""
REJECTED: Final = "rejected=true"
"""Staged folder of what goes to a table's rejects."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of one commit, relative to `staging` and to the table."""

    staged: str
    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Landed:
    """Rows of one queue in a batch: from `start` up to, not including, `end`."""

    queue: MessageQueue
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One commit, and the state of the table after it."""

    number: int
    epoch: int
    run: str
    query: str = ""
    """Checkpoint by whose batches the table grew last, and the last of them."""
    batch: int = -1
    rows: int = 0
    """Of the whole table."""
    damaged: int = 0
    """Of those, rows whose body does not match the checksum stored with it."""
    ends: Mapping[MessageQueue, int]
    """Up to where the table has each queue."""
    incarnations: Incarnations = field(default_factory=dict)
    """Which topics these are, where that is known."""
    cluster: str | None = None
    """And of which cluster."""
    files: tuple[DataFile, ...] = ()
    """Added by it."""
    landed: tuple[Landed, ...] = ()
    mark: Mapping[str, Any] = field(default_factory=dict)
    """What the application remembers with its table, as JSON."""
    removed: tuple[str, ...] = ()
    """Files that it takes away: their rows are in those that it adds, or expired."""
    expired: tuple[Landed, ...] = ()
    """Rows that were kept long enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """Files to take away, and those that have their rows from then on; the rest has expired."""

    removed: tuple[str, ...]
    files: tuple[DataFile, ...] = ()
    """Staged, with their folder in place of their path."""
    expired: tuple[Landed, ...] = ()
    rows: int = 0
    """That expire."""
    damaged: int = 0
    """Of those."""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """A staged batch, ready to commit."""

    query: str
    batch: int
    files: tuple[DataFile, ...]
    landed: tuple[Landed, ...]
    damaged: int = 0
    incarnations: Incarnations = field(default_factory=dict)
    """Which topics its rows are of, where that is known."""
    cluster: str | None = None
    mark: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def rejected(self) -> int:
        """Of those, rows that are set aside."""
        return sum(file.rows for file in self.files if REJECTED in file.staged.split("/"))


def encode(commit: Commit) -> dict[str, Any]:
    """Return a commit as JSON."""
    made: dict[str, Any] = {
        "format": UPKEPT if commit.removed else FORMAT,
        "number": commit.number,
        "epoch": commit.epoch,
        "run": commit.run,
        "query": commit.query,
        "batch": commit.batch,
        "rows": commit.rows,
        "damaged": commit.damaged,
        "ends": Progress(
            offsets=dict(commit.ends), incarnations=commit.incarnations, cluster=commit.cluster
        ).to_json(),
        "files": [[file.staged, file.path, file.rows, file.bytes] for file in commit.files],
        "landed": _encode_landed(commit.landed),
    }
    if commit.removed:
        made |= {"removed": list(commit.removed), "expired": _encode_landed(commit.expired)}
    return made | ({"mark": dict(commit.mark)} if commit.mark else {})


def _encode_landed(landed: Iterable[Landed]) -> list[list[Any]]:
    return [
        [one.queue.topic, one.queue.shard, one.queue.queue_id, one.start, one.end] for one in landed
    ]


def _decode_landed(value: Iterable[list[Any]]) -> tuple[Landed, ...]:
    return tuple(
        Landed(MessageQueue(topic, shard, queue), start, end)
        for topic, shard, queue, start, end in value
    )


def decode(value: dict[str, Any]) -> Commit:
    """Read one. KeyError, TypeError, ValueError: it is none."""
    if value["format"] not in (FORMAT, UPKEPT):
        raise ValueError(f"format {value['format']!r}, this version knows {FORMAT} and {UPKEPT}")
    ends = Progress.from_json(value["ends"], "the table")
    return Commit(
        number=value["number"],
        epoch=value["epoch"],
        run=value["run"],
        query=value["query"],
        batch=value["batch"],
        rows=value["rows"],
        damaged=value["damaged"],
        ends=ends.offsets,
        incarnations=ends.incarnations,
        cluster=ends.cluster,
        files=tuple(DataFile(*file) for file in value["files"]),
        landed=_decode_landed(value["landed"]),
        mark=value.get("mark", {}),
        removed=tuple(value.get("removed", ())),
        expired=_decode_landed(value.get("expired", ())),
    )
