"""One member of a balanced MetaQ group, driven by the caller's own calls to `poll`."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final, Self

from imago_client.checks import metaq_topics
from imago_client.core.metaq.membership import TreeMember
from imago_client.core.metaq.nodes import BrokerAddresses, PartitionId, StoredOffset
from imago_client.errors import ClientError
from imago_client.metaq.groups.group_config import new_consumer_id
from imago_client.metaq.reading.cursor import FetchCursor
from imago_client.metaq.reading.delivery import SeenIds, is_wanted
from imago_client.metaq.reading.fetching import note_failed_filter
from imago_client.metaq.values import Partition
from imago_wire.errors import ProtocolError
from imago_wire.text.commands import OFFSET_END

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from imago_client.blocking.metaq import MetaqClient
    from imago_client.metaq.groups.group_config import MetaqGroupConsumerConfig
    from imago_client.metaq.groups.group_offsets import OffsetStorage
    from imago_client.metaq.groups.zookeeper import MetaqTree
    from imago_client.metaq.reading.delivery import MessageFilter
    from imago_client.metaq.values import MetaqMessage

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.01


@dataclass(slots=True)
class _Reading:
    """A partition that is read."""

    cursor: FetchCursor
    saved: StoredOffset | None
    due: float = 0.0
    handed: MetaqMessage | None = None
    """The last message of those that the caller has."""


class MetaqGroupConsumer:
    """Balances, reads and commits whenever the caller polls; made by `MetaqSessionFactory`.

    Calling `poll` again says that the messages of the last call are done; `rollback` has them come
    again instead. Poll often: what others wait for is given up in `poll` alone.
    """

    def __init__(
        self,
        client: MetaqClient,
        tree: MetaqTree,
        config: MetaqGroupConsumerConfig,
        topics: Sequence[str],
        offsets: OffsetStorage,
        wanted: MessageFilter | None = None,
        *,
        rng: Random | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        topics = metaq_topics(topics)
        self.config = config
        self._client, self._tree, self._offsets = client, tree, offsets
        self._wanted, self._clock_s = wanted, clock_s
        self._rng = rng or Random()  # noqa: S311 - chooses a slave
        self._member = TreeMember(
            tree.paths,
            config.group,
            config.consumer_id or new_consumer_id(),
            topics,
            config.strategy,
        )
        self._seen = SeenIds()
        self._readings: dict[PartitionId, _Reading] = {}
        self._owned: set[PartitionId] = set()
        self._cluster: dict[int, BrokerAddresses] = {}
        self._first: frozenset[PartitionId] | None = None
        self._sessions = tree.sessions
        self._changes: int | None = None
        self._balance_at = 0.0
        self._commit_at = clock_s() + config.commit_s
        self._turn = 0

    @property
    def positions(self) -> dict[PartitionId, int]:
        """Up to where each partition of its share is consumed."""
        return {each: reading.cursor.position for each, reading in self._readings.items()}

    def poll(self, timeout_s: float = 1.0) -> list[MetaqMessage]:
        """Return messages of one partition of this member's, none if none came in time."""
        self._finish_handed()
        deadline = self._clock_s() + timeout_s
        while True:
            self._keep_up()
            found = self._fetch_next()
            left_s = deadline - self._clock_s()
            if found or left_s <= 0:
                return found
            time.sleep(min(PAUSE_S, left_s))

    def commit(self) -> None:
        """Say that the messages of the last poll are done, and save that now."""
        self._finish_handed()
        self._save(self._readings)

    def rollback(self) -> None:
        """Have the messages of the last poll come again, as their handling has failed."""
        for reading in self._readings.values():
            reading.handed = None

    def close(self) -> None:
        """Leave the group. What the last poll returned counts as done only if committed."""
        try:
            self._save(self._readings)
            self._tree.run(self._member.leave())
        except (ClientError, OSError) as error:
            log.warning("leave_failed group=%s error=%s", self.config.group, error)
        self._readings.clear()
        self._owned.clear()

    def __enter__(self) -> Self:
        self._keep_up()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _finish_handed(self) -> None:
        for reading in self._readings.values():
            if reading.handed is not None:
                reading.cursor.advance(reading.handed)
                reading.handed = None

    # Sharing

    def _keep_up(self) -> None:
        now = self._clock_s()
        if self._changes != self._tree.changes or now >= self._balance_at:
            try:
                complete = self._balance()
            except (ClientError, OSError) as error:
                log.warning("rebalance_failed group=%s error=%s", self.config.group, error)
                complete = False
            pause_s = self._client.config.rebalance_pause_s
            self._balance_at = float("inf") if complete else self._clock_s() + pause_s
        if now >= self._commit_at:
            self._commit_at = now + self.config.commit_s
            try:
                self._save(self._readings)
            except (ClientError, OSError) as error:
                log.warning("save_failed group=%s error=%s", self.config.group, error)

    def _balance(self) -> bool:
        """Make what is read what is to be read; False: others still have some of it."""
        self._changes = self._tree.changes
        if self._sessions != self._tree.sessions:  # others may read what it had
            self._sessions = self._tree.sessions
            self._owned.clear()
            self._readings.clear()
        run = self._tree.run
        run(self._member.join())
        view = run(self._member.look())
        self._cluster = dict(view.cluster)
        if self._first is None:
            self._first = view.offered
        self._give_up(self._owned - view.wanted)
        self._owned |= run(self._member.claim(view.wanted - self._owned))
        for partition in sorted(self._owned - self._readings.keys()):
            self._begin(partition, self._offsets.load(self.config.group, partition))
        return self._owned == view.wanted

    def _give_up(self, partitions: Iterable[PartitionId]) -> None:
        gone = list(partitions)
        if not gone:
            return
        try:
            self._save(gone)
        except (ClientError, OSError) as error:
            log.warning("save_failed group=%s error=%s", self.config.group, error)
        for partition in gone:
            self._readings.pop(partition, None)
        self._tree.run(self._member.release(gone))
        self._owned.difference_update(gone)

    # Reading

    def _begin(self, partition: PartitionId, stored: StoredOffset | None) -> None:
        config = self.config
        at_start = partition in (self._first or ())
        position = stored.position if stored else 0
        if at_start and (config.always_from_end or (config.from_end and stored is None)):
            position = OFFSET_END
        cursor = FetchCursor(position, config.fetch_bytes, config.delay_s_max)
        cursor.last_id = stored.message_id if stored else -1
        self._readings[partition] = _Reading(cursor, stored)

    def _fetch_next(self) -> list[MetaqMessage]:
        """Return what the next partition has whose turn it is."""
        readings = sorted(self._readings.items())
        for index in range(len(readings)):
            partition, reading = readings[(self._turn + index) % len(readings)]
            if self._clock_s() < reading.due:
                continue
            found = self._fetch(partition, reading)
            reading.due = self._clock_s() + reading.cursor.delay_s
            if found:
                self._turn += index + 1
                return found
        return []

    def _fetch(self, partition: PartitionId, reading: _Reading) -> list[MetaqMessage]:
        cursor = reading.cursor
        broker = self._cluster.get(partition.broker_id, BrokerAddresses(None))
        if not (broker.master or broker.slaves):
            cursor.wait()
            return []
        address = broker.master or self._rng.choice(broker.slaves)
        found = Partition(partition.topic, address, partition.number, partition.broker_id)
        try:
            fetched = self._client.get(
                found, cursor.position, group=self.config.group, size_max=cursor.fetch_bytes
            )
            messages = cursor.take(fetched)
        except (ClientError, ProtocolError) as error:
            log.warning("fetch_failed group=%s error=%s", self.config.group, error)
            cursor.wait()
            self._balance_at = min(self._balance_at, self._clock_s() + cursor.delay_s)
            return []
        kept = []
        for message in messages:
            wanted, group = self._wanted, self.config.group
            if is_wanted(message, group, self._seen, wanted, note_failed_filter):
                kept.append(message)
        if messages and not kept:
            cursor.advance(messages[-1])
        elif messages:
            reading.handed = messages[-1]
        return kept

    def _save(self, partitions: Iterable[PartitionId]) -> None:
        changed = {}
        for partition in partitions:
            reading = self._readings.get(partition)
            if reading is None or reading.cursor.position == OFFSET_END:
                continue
            offset = StoredOffset(reading.cursor.position, reading.cursor.last_id)
            if offset != reading.saved:
                changed[partition] = offset
        if changed:
            self._offsets.save(self.config.group, changed)
            for partition, offset in changed.items():
                self._readings[partition].saved = offset
