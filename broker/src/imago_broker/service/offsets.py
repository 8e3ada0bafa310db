"""How far the consumer groups of RocketMQ clients have come."""

from __future__ import annotations

from collections.abc import Mapping


class ConsumerOffsets:
    """Committed offsets by group, topic and queue; kept in the log's metadata.

    Commits are gathered for at most 100 ms into one metadata record; a query first writes what it
    is about to tell, so that nobody is told an offset that a crash takes back.
    """

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note a group's progress. It may go back: the consumer decides."""
        raise NotImplementedError

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the committed offset, or None when there is none."""
        raise NotImplementedError

    def of_group(self, group: str) -> Mapping[str, Mapping[int, int]]:
        """Return all of a group's offsets: topic to queue to offset."""
        raise NotImplementedError

    def of_topic(self, topic: str) -> Mapping[str, Mapping[int, int]]:
        """Return all offsets in a topic: group to queue to offset."""
        raise NotImplementedError

    def groups(self) -> list[str]:
        """Return the groups that have an offset anywhere."""
        raise NotImplementedError

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Set several queues of a topic at once, written before this returns."""
        raise NotImplementedError

    def forget_group(self, group: str) -> None:
        """Drop all offsets of a group."""
        raise NotImplementedError

    def forget_topic(self, topic: str) -> None:
        """Drop all offsets in a topic."""
        raise NotImplementedError

    def flush(self) -> None:
        """Write what is gathered."""
        raise NotImplementedError
