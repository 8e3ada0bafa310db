"""Where the fast path of sends parks what does not simply go to its queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model import names
from imago_broker.service.delays.timers.timer_bucket import BUCKET_MS, BUCKETS
from imago_wire.remoting.scanning.waiting import ParkingSpace

if TYPE_CHECKING:
    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.service.delays.levels.levels import DelayService
    from imago_broker.service.puts.sequencing import SequencedPuts
    from imago_broker.service.topics.topic_handles import TopicHandle, TopicHandles
    from imago_broker.service.transactions.service import TransactionService
    from imago_wire.records.record import QueueTail


EXPECTED_MAX = 10_000
"""Producers in queues whose next numbers are kept over a turn."""


class SendParking:
    """What delay levels, timers, transactions and idempotent producers need of this broker.

    What `look` finds holds for a round of sends: clear `space` before the next one.
    """

    def __init__(
        self,
        *,
        handles: TopicHandles,
        delay: DelayService,
        transactions: TransactionService,
        sequenced: SequencedPuts,
        settings: LiveSettings[RocketmqSection],
        broker_name: str,
    ) -> None:
        self.space: ParkingSpace | None = None
        self.owner = ""
        self.expected = sequenced.expected
        self.expect = sequenced.expect
        self._handles, self._delay, self._transactions = handles, delay, transactions
        self._settings, self._broker_name = settings, broker_name
        self._sequenced = sequenced
        self._version = -1
        """Of what is known of producers, when `expected` was last held against it."""
        self._last: ParkingSpace | None = None
        """The space before this one."""
        self._levels: TopicHandle | None = None
        self._buckets: TopicHandle | None = None

    def look(self) -> ParkingSpace:
        """Find what is there now; a queue that nobody has used yet is left for later."""
        self._keep_expected()
        delay, handles = self._delay, self._handles
        self._levels = levels = handles.of(names.SCHEDULE_TOPIC)
        self._buckets = buckets = handles.of(names.TIMER_TOPIC)
        halves = handles.of(names.HALF_TOPIC)
        self.space = self._last = space = ParkingSpace(
            now_ms=delay.now_ms(),
            delays_ms=() if levels is None else delay.delays_ms,
            level_tails=() if levels is None else levels.tails,
            timer_delay_ms_max=0 if buckets is None else self._settings.current.timer_delay_ms_max,
            bucket_ms=BUCKET_MS,
            bucket_count=BUCKETS,
            bucket_tails=() if buckets is None else buckets.tails,
            half_tail=None if halves is None else handles.tail(halves, 0),
            half_room=self._transactions.room,
            broker_name=self._broker_name,
        )
        return space

    def _keep_expected(self) -> None:
        """Keep what is expected of producers where since then the log got what was taken alone."""
        taken = 0 if self._last is None else len(self._last.numbered)
        version = self._sequenced.version
        if version != self._version + taken or len(self.expected) > EXPECTED_MAX:
            self.expected.clear()
        self._version = version

    def level_tail(self, level: int) -> QueueTail:
        """Return the queue of a delay level, made now."""
        assert self._levels is not None, "no level is asked for without it"
        return self._handles.tail(self._levels, level - 1)

    def bucket_tail(self, bucket: int) -> QueueTail:
        """Return a queue in which timers wait, made now."""
        assert self._buckets is not None, "no timer is taken without it"
        return self._handles.tail(self._buckets, bucket)
