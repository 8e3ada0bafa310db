"""Which files of one shard's log are in the bucket: values, and their form in JSON."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import orjson

from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = 1
SEGMENTS_MAX = 1 << 20
"""Of one shard: as many as a log may have files."""


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


@dataclass(frozen=True, slots=True)
class TierSegment:
    """One file of the log in the bucket, and its index."""

    base: int
    """Log offset of its first byte."""
    size: int
    index_size: int
    directory_size: int
    """Of the index, so many bytes say what is in it."""
    newest_ms: int
    """Store time of its newest record, or a little later."""
    crc: int
    """CRC-32 of the file."""
    name: str
    """Of the object without `.log` or `.index`: no other upload has it."""

    @property
    def end(self) -> int:
        """Log offset behind its last byte."""
        return self.base + self.size

    @property
    def log(self) -> str:
        return f"{self.name}.log"

    @property
    def index(self) -> str:
        return f"{self.name}.index"


@dataclass(frozen=True, slots=True)
class TierManifest:
    """All of them, the oldest first. `generation` counts its versions, `epoch` says whose it is."""

    cluster: str
    epoch: int
    generation: int
    segments: tuple[TierSegment, ...] = ()

    @property
    def end(self) -> int:
        """Log offset behind the newest file; 0: there is none."""
        return self.segments[-1].end if self.segments else 0

    @property
    def size(self) -> int:
        """Bytes in the bucket."""
        return sum(each.size + each.index_size for each in self.segments)

    def at(self, place: int) -> TierSegment | None:
        """Return the file that holds a log offset."""
        index = bisect_right(self.segments, place, key=lambda each: each.base) - 1
        if index < 0 or place >= self.segments[index].end:
            return None
        return self.segments[index]

    def next(self, epoch: int, segments: Sequence[TierSegment]) -> TierManifest:
        """Return the version that follows this one."""
        return replace(self, epoch=epoch, generation=self.generation + 1, segments=tuple(segments))

    def encode(self) -> bytes:
        """Return it as it stands in the bucket."""
        return orjson.dumps(
            {
                "version": VERSION,
                "cluster": self.cluster,
                "epoch": self.epoch,
                "generation": self.generation,
                "segments": [asdict(each) for each in self.segments],
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> TierManifest:
        """Return what stands there. WrongError: it is none, or of a later version."""
        try:
            said = orjson.loads(data)
            if said["version"] != VERSION:
                raise WrongError(
                    f"the tier's manifest has version {said['version']}, this broker knows"
                    f" {VERSION}: update the broker"
                )
            segments = tuple(TierSegment(**each) for each in said["segments"])
            found = cls(said["cluster"], said["epoch"], said["generation"], segments)
            numbers: list[object] = [found.epoch, found.generation]
            for each in segments:
                numbers += [each.base, each.size, each.index_size, each.directory_size]
        except (KeyError, TypeError, ValueError) as error:
            raise WrongError(f"the tier's manifest is damaged: {error}") from error
        bases = [each.base for each in segments]
        if (
            not all(map(_is_count, numbers))
            or len(segments) > SEGMENTS_MAX
            or any(one.end > following.base for one, following in pairwise(segments))
        ):
            raise WrongError(f"the tier's manifest is damaged: segments at {bases[:8]}")
        return found
