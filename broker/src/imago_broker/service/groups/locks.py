"""Which client may consume a queue in order: the locks of orderly consumers.

A lock belongs to one client of one group, is renewed by asking again, and ends after a minute.
Who owns a queue is kept in the log's metadata, so that the next master honours it; renewals are
not: a master that finds a lock in its log gives it the full minute.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from imago_broker.model import names
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

KIND = "lock"
CHANGES_MAX = 2000
"""Changes in one metadata record; more are written as several."""
LOCK_LIFE_MS = 60_000
LOCKS_MAX = 100_000
"""Forty megabytes: clients may ask for locks of groups and queues that nobody knows."""

QueueKey = tuple[str, str, int]
"""Broker name, topic, queue."""


class QueueLocks:
    """Locks by group and queue. Times are milliseconds of one monotonic clock."""

    def __init__(self, *, life_ms: int = LOCK_LIFE_MS, locks_max: int = LOCKS_MAX) -> None:
        self._life_ms = life_ms
        self._locks_max = locks_max
        self._count = 0
        self._held: dict[str, dict[QueueKey, tuple[str, int]]] = {}
        self._unsaved: dict[tuple[str, QueueKey], str | None] = {}
        """New owners that the log does not have yet; None: nobody."""

    def lock(
        self, group: str, client_id: str, queues: Iterable[QueueKey], *, now_ms: int
    ) -> list[QueueKey]:
        """Take or renew the locks that are free or the client's own; return those it holds.

        Beyond the limit a lock is refused as if another client held it.
        """
        held = self._held.setdefault(group, {})
        taken = []
        for queue in queues:
            owner, at_ms = held.get(queue, ("", 0))
            if queue not in held:
                if self._count >= self._locks_max:
                    continue
                self._count += 1
            elif owner != client_id and now_ms - at_ms <= self._life_ms:
                continue
            held[queue] = (client_id, now_ms)
            taken.append(queue)
            if owner != client_id:
                self._unsaved[group, queue] = client_id
        self._drop_if_empty(group)
        return taken

    def unlock(self, group: str, client_id: str, queues: Iterable[QueueKey]) -> None:
        """Give up those locks that the client holds."""
        held = self._held.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client_id:
                self._end(group, queue)
        self._drop_if_empty(group)

    def any_held(self, group: str, *, now_ms: int) -> bool:
        """Whether any client of the group holds a lock that has not ended."""
        held = self._held.get(group, {})
        return any(now_ms - at_ms <= self._life_ms for _, at_ms in held.values())

    def sweep(self, *, now_ms: int) -> None:
        """Forget locks that have ended."""
        for group, held in list(self._held.items()):
            for queue in [q for q, (_, at) in held.items() if now_ms - at > self._life_ms]:
                self._end(group, queue)
            self._drop_if_empty(group)

    def save(self, store: MessageStore) -> None:
        """Write the owners that have changed. What cannot be written is tried again next time."""
        if not self._unsaved:
            return
        changes = [(KIND, _key(*lock), owner) for lock, owner in self._unsaved.items()]
        for at in range(0, len(changes), CHANGES_MAX):
            store.put_meta(changes[at : at + CHANGES_MAX])
        self._unsaved.clear()

    def load(self, saved: Mapping[str, Any], *, now_ms: int) -> None:
        """Take the owners that a log has, each as if it had just asked; forget all others."""
        self.clear()
        for key, owner in saved.items():
            try:
                group, *queue = json.loads(key)
                broker_name, topic, queue_id = queue
                _check(str(group), str(owner))
                name = (str(broker_name), str(topic), int(queue_id))
                self._held.setdefault(str(group), {})[name] = (str(owner), now_ms)
            except (TypeError, ValueError):
                # One entry that nobody understands must not keep a broker from leading.
                logger.warning("lock_unreadable key=%.300r owner=%.300r", key, owner)
            else:
                self._count += 1

    def clear(self) -> None:
        """Forget everything: another broker keeps the locks."""
        self._held.clear()
        self._unsaved.clear()
        self._count = 0

    def _end(self, group: str, queue: QueueKey) -> None:
        del self._held[group][queue]
        self._count -= 1
        self._unsaved[group, queue] = None

    def _drop_if_empty(self, group: str) -> None:
        if not self._held.get(group, True):
            del self._held[group]


def _check(group: str, owner: str) -> None:
    """ValueError: older versions kept names that no client has; their end could not be written."""
    if problem := names.group_problem(group) or names.word_problem("client id", owner):
        raise WrongError(problem)


def _key(group: str, queue: QueueKey) -> str:
    # Not joined by a separator: these names are whatever clients say.
    return json.dumps([group, *queue])
