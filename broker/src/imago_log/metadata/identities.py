"""Numbers that no other topic in the world has, also for topics of older versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_log.metadata.changes import IDENTITY_KIND, TOPIC_KIND, UNIQUE_FROM, random_incarnation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_log.metadata.changes import Change
    from imago_log.metadata.state import Metadata


class TopicIdentities:
    """An incarnation is such a number by itself, but of a topic that an older version made."""

    def __init__(
        self,
        metadata: Metadata,
        put: Callable[[Sequence[Change]], int],
        draw: Callable[[], int] | None,
    ) -> None:
        """`put` records changes, `draw` gives new numbers; None: at random."""
        self._metadata, self._put, self.draw = metadata, put, draw or random_incarnation

    def of(self, name: str) -> int | None:
        """Return a topic's number; None: it is not known, or has none yet."""
        topic = self._metadata.topics.get(name)
        if topic is None or topic.incarnation >= UNIQUE_FROM:
            return None if topic is None else topic.incarnation
        incarnation, number = self._metadata.kind(IDENTITY_KIND).get(name, (None, None))
        return number if incarnation == topic.incarnation else None

    def complete(self) -> None:
        """Give one to all that have none."""
        self._put(
            [
                (IDENTITY_KIND, name, [topic.incarnation, self.draw()])
                for name, topic in self._metadata.topics.items()
                if self.of(name) is None
            ]
        )

    def without(self, names: Sequence[str]) -> list[Change]:
        """Return the changes that forget topics."""
        known = self._metadata.kind(IDENTITY_KIND)
        gone: list[Change] = [(TOPIC_KIND, name, None) for name in names]
        return gone + [(IDENTITY_KIND, name, None) for name in names if name in known]
