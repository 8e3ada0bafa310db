"""Where a copied message came from, as its copy says it.

A copy has a property `IMAGO_ORIGIN` with the places that the message was copied from, the last one
first: ``cluster/topic/incarnation/shard/queue/offset``, joined with commas. It was sent by an
idempotent producer whose id is made from that first place's queue. Brokers store a producer's id
only of messages that it did send, so the echo of a copy's properties is no copy: it is copied like
any message, also to where the copy came from.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from imago_wire.record_format.sequences import Sequence, sent_id, tag_of, user_tag

PROPERTY: Final = "IMAGO_ORIGIN"
HOPS_MAX: Final = 8
"""Clusters that a copy remembers; a chain or ring of mirrors may be as long."""
_PARTS: Final = 6


class SourceQueue(NamedTuple):
    """A queue of one life of a topic in one cluster."""

    cluster: str
    topic: str
    incarnation: int
    """Another number when the topic was deleted and made again."""
    shard: str
    queue_id: int

    @property
    def place(self) -> str:
        return f"{self.shard}/{self.queue_id}"


class Origin(NamedTuple):
    """A message's place in a cluster that it was copied from."""

    queue: SourceQueue
    offset: int

    def __str__(self) -> str:
        cluster, topic, incarnation, shard, queue_id = self.queue
        return f"{cluster}/{topic}/{incarnation}/{shard}/{queue_id}/{self.offset}"


@lru_cache(maxsize=1 << 16)
def producer_of(queue: SourceQueue) -> str:
    """Return the id under which copies of a queue's messages are sent, whoever sends them."""
    text = "\x00".join(map(str, queue)).encode()
    return blake2b(text, digest_size=8, person=b"imago-mirror").hexdigest()


def read_hops(value: bytes) -> tuple[Origin, ...]:
    """Return the places of a property's value, the last one first; empty: it is not of ours."""
    try:
        return tuple(_read(part) for part in value.decode().split(",")[:HOPS_MAX])
    except ValueError:
        return ()


def _read(text: str) -> Origin:
    parts = text.split("/")
    if len(parts) != _PARTS:
        raise ValueError(text)
    cluster, topic, incarnation, shard, queue_id, offset = parts
    queue = SourceQueue(cluster, topic, int(incarnation), shard, int(queue_id))
    return Origin(queue, int(offset))


def hops_of(value: bytes | None, sent: Sequence | None) -> tuple[Origin, ...]:
    """Return where a stored message came from; empty: it is no copy, whatever it says of itself."""
    if value is None or sent is None:
        return ()
    hops = read_hops(value)
    return hops if hops and producer_of(hops[0].queue) == sent_id(sent.producer) else ()


def is_proven(sent: Sequence | None, user: str | None) -> bool:
    """Whether a copy was sent by a mirror's user, or where nobody checks who sends.

    Anybody may number messages as a mirror does: with access control under a tag of their own.
    """
    tag = "" if sent is None else tag_of(sent.producer)
    return not tag or (user is not None and tag == user_tag(user))
