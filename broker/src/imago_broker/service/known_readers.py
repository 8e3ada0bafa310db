"""Groups that read topics of this shard, though they have told no progress here.

Seen are those that were connected while this shard was drained: they count when their consumers
have stopped, and when another member leads. Told are those that another shard knew when it was
recorded as drained: its log goes with it. Both are in the log's metadata until the group or the
topic is deleted; who was seen counts no longer when the drain is taken back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_log.store import MessageStore

KIND: Final = "reader"
SEEN: Final = "seen"
TOLD: Final = "told"
GROUPS_MAX = 1000
"""Groups that are kept of a topic."""


class KnownReaders:
    """Kept by topic in the log's metadata, so of whoever leads."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def of_topic(self, topic: str) -> set[str]:
        """Return the groups that are known to read a topic."""
        return set().union(*self._of(topic).values())

    def by_topic(self) -> dict[str, set[str]]:
        """Return by topic all groups that are known."""
        return {topic: self.of_topic(topic) for topic in self._store.meta(KIND)}

    def groups(self) -> set[str]:
        """Return all groups that are known to read anything."""
        return set().union(*self.by_topic().values())

    def add(self, how: str, readers: Mapping[str, Iterable[str]]) -> None:
        """Keep who reads what, of topics that are here. RequestError: they are too many."""
        topics, too_many = self._store.topics(), ""
        rows: dict[str, dict[str, set[str]]] = {}
        for topic in readers.keys() & topics.keys():
            row, groups = self._of(topic), set(readers[topic])
            if groups <= row[how]:
                continue
            row[how] |= groups
            if len(row[SEEN] | row[TOLD]) > GROUPS_MAX:
                too_many = topic
            else:
                rows[topic] = row
        self._put(rows)
        if too_many:
            raise RequestError(f"more than {GROUPS_MAX} groups read topic {too_many}")

    def forget_seen(self) -> None:
        """Forget who was seen: the shard is not drained any more."""
        rows = {topic: self._of(topic) for topic in self._store.meta(KIND)}
        self._put({topic: {**row, SEEN: set()} for topic, row in rows.items() if row[SEEN]})

    def forget_topic(self, topic: str) -> None:
        """Forget who reads a topic that is deleted."""
        if topic in self._store.meta(KIND):
            self._put({topic: {SEEN: set(), TOLD: set()}})

    def forget_group(self, group: str) -> None:
        """Forget a group that is deleted."""
        rows = {topic: self._of(topic) for topic in self._store.meta(KIND)}
        self._put(
            {
                topic: {how: groups - {group} for how, groups in row.items()}
                for topic, row in rows.items()
                if group in row[SEEN] | row[TOLD]
            }
        )

    def _of(self, topic: str) -> dict[str, set[str]]:
        row = self._store.meta(KIND).get(topic)
        told = row if isinstance(row, dict) else {}
        lists = {how: told.get(how) for how in (SEEN, TOLD)}
        return {how: set(map(str, v)) if isinstance(v, list) else set() for how, v in lists.items()}

    def _put(self, rows: Mapping[str, Mapping[str, Iterable[str]]]) -> None:
        for topic, row in rows.items() if self._store.leading else ():
            kept = {how: sorted(groups) for how, groups in row.items() if groups}
            self._store.put_meta([(KIND, topic, kept or None)])
