"""Whether a shard takes new topics."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from imago_broker.errors import ShardDrainedError
from imago_broker.model import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _never() -> bool:
    return False


class TopicIntake:
    """All topics, or those of groups and of tools alone (cordoned), or none (closed)."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called where the shard is cordoned, or no longer."""
        self._shut = 0
        """How many are about to record that the shard is drained."""
        self._on_change = on_change
        self._cordoned = False
        self._drained: Callable[[], bool] = _never
        self.leaving = False
        """Whether all topics leave: no message goes straight to a light queue, which cannot."""

    @property
    def cordoned(self) -> bool:
        """Whether this shard takes no new topics; a group's own topics are none."""
        return self._cordoned

    @cordoned.setter
    def cordoned(self, cordoned: bool) -> None:
        if cordoned != self._cordoned:
            self._cordoned = cordoned
            self._on_change()

    def close_when(self, drained: Callable[[], bool]) -> None:
        """Take no topic while this says that the shard is recorded as drained."""
        self._drained = drained

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Take no topic for as long as the block lasts."""
        self._shut += 1
        try:
            yield
        finally:
            self._shut -= 1

    @property
    def closed(self) -> bool:
        """Whether no topic is made here: what was recorded of the shard would not be true."""
        return self._shut > 0 or self._drained()

    def require_open(self, name: str) -> None:
        """ShardDrainedError where this topic, which is none of the broker's own, is not taken."""
        if self.closed and name not in names.BROKERS_ALONE:
            raise ShardDrainedError(
                f"topic {name}: this shard is drained and takes no topics; another shard does, or"
                " this one when the drain is taken back"
            )
