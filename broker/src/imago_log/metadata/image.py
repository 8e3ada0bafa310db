"""The metadata as they were at one log offset, while they change on: what a snapshot is made of.

Taking an image copies tables, not their values: the values are never changed in place, only
put in each other's place. So a broker with many topics does not stand still while its snapshot is
written: any thread makes the bytes, a piece at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson

from imago_wire.crc import crc31

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from imago_log.metadata.changes import Change, Topic
    from imago_log.metadata.known_producers import ProducerImage

SNAPSHOT_FORMAT = 1
PIECE = 256
"""Values between two rests: their JSON takes a fraction of a millisecond."""

JSON = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataImage:
    """The state at the log offset `end`. Nobody changes what it refers to."""

    end: int
    restated: int
    topics: Mapping[str, Topic]
    """By name; their values, the one thing of a topic that changes, are in `public`."""
    public: Mapping[str, Mapping[str, JSON]]
    values: Mapping[str, Mapping[str, JSON]]
    """By kind and key."""
    producers: list[ProducerImage]

    def changes(self) -> Iterator[Change]:
        """Yield the changes that make this state out of nothing."""
        for name, topic in self.topics.items():
            yield topic.change(self.public[name])
        for kind, values in self.values.items():
            for key, value in values.items():
                yield kind, key, value

    def encode(self, rest: Callable[[], None] | None = None) -> bytes:
        """Return the snapshot's file: a line with a checksum, then JSON. `rest` between pieces."""
        parts = [
            b'{"format":%d,"end":%d,"restated":%d,"changes":['
            % (SNAPSHOT_FORMAT, self.end, self.restated)
        ]
        _add(parts, self.changes(), rest)
        if self.producers:
            parts.append(b'],"producers":[')
            _add(parts, (producer.to_json() for producer in self.producers), rest)
        parts.append(b"]}")
        data = b"".join(parts)
        return b"%010d\n%b\n" % (crc31(data), data)


def _add(parts: list[bytes], values: Iterable[JSON], rest: Callable[[], None] | None) -> None:
    """Add the elements of a JSON list."""
    left = iter(values)
    piece = list(islice(left, PIECE))
    while piece:
        parts.append(orjson.dumps(piece)[1:-1])
        piece = list(islice(left, PIECE))
        if piece:
            parts.append(b",")
            if rest is not None:
                rest()
