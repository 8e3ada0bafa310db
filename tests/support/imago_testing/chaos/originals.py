"""What became of the messages of original clients. Pure: what was sent and found in, faults out.

Promises: an acknowledged message is there; nothing is there that nobody sent; a producer's
messages keep their order in each queue; a message is there more than once only where its own
client sent it more than once; both protocols show the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_testing.interop.streams import origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What one producer was told, and what its client may do to it."""

    name: str
    acknowledged: frozenset[bytes]
    tried: frozenset[bytes]
    ordered: bool = True
    """Whether its client sends in the order in which it is asked to."""
    retries: bool = False
    """Whether its client sends again by itself: at another time, or to another queue."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One stored message."""

    body: bytes
    born_ms: int
    """When its client sent it, by the client's clock."""


Queues = dict[str, list[Copy]]
"""Queue to what is in it, in order; a queue's name is MetaQ's: <broker id>-<partition>."""


def faults(
    promises: Sequence[Promise], found: Queues, metaq: Mapping[str, Sequence[bytes]]
) -> list[str]:
    """Return every broken promise. `metaq`: the bodies as the other protocol shows them."""
    copies: dict[bytes, list[tuple[str, int]]] = {}
    for name, queue in found.items():
        for copy in queue:
            copies.setdefault(copy.body, []).append((name, copy.born_ms))
    return [
        *_lost(promises, copies),
        *_phantoms(promises, copies),
        *_duplicates(promises, copies),
        *_disorder(promises, found),
        *_disagreed(found, metaq),
    ]


def _lost(promises: Sequence[Promise], copies: Mapping[bytes, object]) -> Iterator[str]:
    for promise in promises:
        for body in sorted(promise.acknowledged - copies.keys()):
            yield f"LOST {origin(body)}"


def _phantoms(promises: Sequence[Promise], copies: Mapping[bytes, object]) -> Iterator[str]:
    known = frozenset[bytes]().union(*(promise.tried for promise in promises))
    for body in sorted(copies.keys() - known):
        yield f"PHANTOM {body[:40]!r}"


def _duplicates(
    promises: Sequence[Promise], copies: Mapping[bytes, Sequence[tuple[str, int]]]
) -> Iterator[str]:
    """A client whose time is over may send to two shards in one millisecond: queues count too."""
    retrying = {promise.name for promise in promises if promise.retries}
    for body, stored in copies.items():
        sends = len(set(stored)) if origin(body)[0] in retrying else 1
        if len(stored) > sends:
            yield f"DUPLICATED {origin(body)}: {len(stored)} copies of {sends} sends"


def _disorder(promises: Sequence[Promise], found: Queues) -> Iterator[str]:
    ordered = {promise.name for promise in promises if promise.ordered}
    for name, queue in found.items():
        last: dict[str, int] = {}
        for copy in queue:
            stream, number = origin(copy.body)
            if stream in ordered and number < last.get(stream, -1):
                yield f"REORDERED {stream} {number} behind {last[stream]} in {name}"
            last[stream] = number


def _disagreed(found: Queues, metaq: Mapping[str, Sequence[bytes]]) -> Iterator[str]:
    if found.keys() != metaq.keys():
        yield f"DISAGREED queues {sorted(found)}, partitions {sorted(metaq)}"
    for name in found.keys() & metaq.keys():
        if [copy.body for copy in found[name]] != list(metaq[name]):
            yield f"DISAGREED {name}: {len(found[name])} and {len(metaq[name])} messages"


def missed(promises: Sequence[Promise], got: Sequence[bytes]) -> list[str]:
    """Return what a consumer of all messages has not seen of those that were acknowledged."""
    seen = set(got)
    return [
        f"MISSED {origin(body)}" for each in promises for body in sorted(each.acknowledged - seen)
    ]


def shown(broken: Sequence[str]) -> str:
    """Return the broken promises, counted by kind, and the first of them."""
    kinds = Counter(each.partition(" ")[0] for each in broken)
    return "\n".join([str(dict(kinds)), *broken[:SHOWN_MAX]])
