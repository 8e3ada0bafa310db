"""What an ordered producer does with a message: its partition is fixed, whether it is there or not.

Messages of one partition stay in their order: while some wait in the local store, new ones go
behind them. Where only few wait, a sender waits a little for them to leave first.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final

from imago_client.core.metaq.nodes import PartitionId
from imago_client.errors import UsageError

FEW: Final = 20
"""So many stored messages are waited for."""
WAIT_S: Final = 0.1
WAITS_MAX: Final = 3

OrderSelector = Callable[[str, Sequence[PartitionId], bytes], PartitionId]


class OrderedStep(Enum):
    """What to do next with a message."""

    SEND = "send"
    STORE = "store"
    WAIT = "wait"


def next_step(*, available: bool, stored: int, waits: int) -> OrderedStep:
    """Decide, of a partition that is there or not, behind so many stored messages."""
    if available and not stored:
        return OrderedStep.SEND
    if available and stored <= FEW and waits < WAITS_MAX:
        return OrderedStep.WAIT
    return OrderedStep.STORE


class OrderedPartitions:
    """The partitions that topics are to have: broker ids, and how many each has."""

    def __init__(self, counts: Mapping[str, Mapping[int, int]]) -> None:
        self._partitions: dict[str, tuple[PartitionId, ...]] = {}
        for topic, of_brokers in counts.items():
            if not of_brokers or any(count < 1 for count in of_brokers.values()):
                raise UsageError(f"topic {topic!r}: name brokers, each with one partition or more")
            self._partitions[topic] = tuple(
                PartitionId(topic, broker, number)
                for broker, count in sorted(of_brokers.items())
                for number in range(count)
            )

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> OrderedPartitions:
        """Read the original's form, a topic to `0:4;1:4`."""
        try:
            return cls(
                {
                    topic: {
                        int(broker): int(count)
                        for part in text.split(";")
                        for broker, count in [part.split(":")]
                    }
                    for topic, text in texts.items()
                }
            )
        except ValueError:
            raise UsageError(f"partitions {dict(texts)}: expected broker:count[;…]") from None

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self._partitions)

    def of(self, topic: str) -> tuple[PartitionId, ...]:
        """Return all of a topic's, whether they are there or not."""
        found = self._partitions.get(topic)
        if found is None:
            raise UsageError(f"topic {topic!r}: its partitions are not among those configured")
        return found


def by_key(key: bytes, partitions: Sequence[PartitionId]) -> PartitionId:
    """Return the partition of a key, the same one at every time."""
    return partitions[zlib.crc32(key) % len(partitions)]
