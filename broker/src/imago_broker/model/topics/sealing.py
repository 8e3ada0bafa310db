"""A topic whose queues on this shard take nothing more, so that they can be read out.

Queues stay on the shard that made them: a topic leaves a shard by being opened elsewhere and
sealed here. A sealed topic has no write queues and no write permission, which routes and MetaQ's
tree show at once; producers that have not looked since are served until `until_ms`. What it was
before is kept in an attribute, so that it is in the log with the topic and can be undone:

```
sealed = "<write queues>,<permission>,<until, ms since 1970>,<cause>"
```
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.model.topics.topics import PERM_WRITE, SEALED, TopicConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

DRAIN = "drain"
"""Cause: the whole shard is drained; the seal goes when that is taken back."""
MOVE = "move"
"""Cause: this topic was moved; the seal stays until the topic is opened here again."""


class Seal(NamedTuple):
    """What a topic was before, and until when it still takes messages."""

    write_queues: int
    perm: int
    until_ms: int
    cause: str

    @property
    def text(self) -> str:
        return ",".join(map(str, self))


def seal_of(config: TopicConfig) -> Seal | None:
    """Return the seal of a topic, or None while it takes messages."""
    text = config.attributes.get(SEALED)
    if text is None:
        return None
    numbers, _, cause = text.rpartition(",")
    words = numbers.split(",")
    if len(words) != 3 or not all(word.isascii() and word.isdecimal() for word in words):
        # Nobody can say what it was: as a new topic is.
        return Seal(config.read_queues, config.perm | PERM_WRITE, 0, MOVE)
    write, perm, until_ms = map(int, words)
    return Seal(write, perm, until_ms, cause)


def takes_messages(config: TopicConfig) -> bool:
    """Whether producers find queues to write to."""
    return config.write_queues > 0 and bool(config.perm & PERM_WRITE)


def sealed(config: TopicConfig, *, until_ms: int, cause: str) -> TopicConfig:
    """Return the topic sealed; one that is sealed already stays as it is."""
    if seal_of(config) is not None:
        return config
    return _closed(config, Seal(config.write_queues, config.perm, until_ms, cause))


def unsealed(config: TopicConfig) -> TopicConfig:
    """Return the topic as it was before it was sealed."""
    seal = seal_of(config)
    if seal is None:
        return config
    return replace(
        config,
        write_queues=seal.write_queues,
        perm=seal.perm,
        attributes=without_seal(config.attributes),
    )


def kept(old: TopicConfig | None, wanted: TopicConfig) -> TopicConfig:
    """Return a change of a topic's settings that leaves it sealed, or not, as it is.

    Write queues and permission that are asked for meanwhile come into force with its opening.
    """
    seal = seal_of(old) if old is not None else None
    if old is None or seal is None:
        if SEALED not in wanted.attributes:
            return wanted
        return replace(wanted, attributes=without_seal(wanted.attributes))
    write = wanted.write_queues or seal.write_queues
    perm = seal.perm if wanted.perm == old.perm else wanted.perm
    base = replace(wanted, read_queues=max(old.read_queues, wanted.read_queues))
    return _closed(base, seal._replace(write_queues=write, perm=perm))


def without_seal(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes that a topic has on every shard."""
    return {name: value for name, value in attributes.items() if name != SEALED}


def _closed(config: TopicConfig, seal: Seal) -> TopicConfig:
    return replace(
        config,
        # Old readers count by read queues alone: a queue that was written must stay among them.
        read_queues=max(config.read_queues, config.write_queues, seal.write_queues),
        write_queues=0,
        perm=config.perm & ~PERM_WRITE,
        attributes={**config.attributes, SEALED: seal.text},
    )
