"""Which topic of its name an offset is of."""

from __future__ import annotations

from typing import Any, NamedTuple


class Incarnation(NamedTuple):
    """Which topic of its name it is, on one shard."""

    topic_id: int | None
    """What no other topic in the world has; None: an older broker did not say it."""
    number: int
    """What tells it from the others of its name on the shard. Older versions compared this."""

    def is_same(self, other: Incarnation) -> bool:
        """Whether both are one topic, as far as both brokers said."""
        if self.topic_id is not None and other.topic_id is not None:
            return self.topic_id == other.topic_id
        return self.number == other.number

    def to_json(self) -> int | list[int]:
        """Return its form in a checkpoint."""
        if self.topic_id is None or self.topic_id == self.number:
            return self.number
        return [self.topic_id, self.number]

    @classmethod
    def from_json(cls, value: Any) -> Incarnation:
        """Read `to_json`'s form. TypeError, ValueError: it is something else."""
        topic_id, number = value if isinstance(value, list) else (None, value)
        for one in (topic_id, number):
            if one is not None and (not isinstance(one, int) or isinstance(one, bool)):
                raise TypeError(value)
        return cls(topic_id, number)


Incarnations = dict[tuple[str, str], Incarnation]
"""By topic and shard."""
