"""The firing records of a log: written with the messages they name, read at a start."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from imago_broker.core.timers.timer_record import Firing, decode_firing, done_places
from imago_broker.model.names import TIMER_TOPIC
from imago_broker.model.topics.system_topics import TIMER_BUCKETS
from imago_broker.service.log_walk import message_from, queue_blocks
from imago_broker.service.puts.copies import read_copy
from imago_wire.record_format import properties as props
from imago_wire.record_format.record_fields import read_layout
from imago_wire.record_format.sequences import TIMER_MARK
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from imago_log.results import DamagedRange
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry

log = logging.getLogger(__name__)

TIMER_KIND: Final = "timer"
"""Of the metadata: by queue the offset below which all timers are done."""
FLOOR_KEY: Final = "firings"
"""Among them: the first firing record that is needed still."""
FIRING_QUEUE: Final = TIMER_BUCKETS
"""Queue of the timer topic that has the firing records: the one behind the buckets."""
RECORDS_MAX: Final = 1024
BYTES_MAX: Final = 4 << 20
_MARK: Final = re.compile(rb"([0-9]{1,5})-([0-9]{1,19})\Z")


class FiringLog:
    """What has fired, by the log alone."""

    def __init__(
        self, store: MessageStore, topic: str = TIMER_TOPIC, queue_id: int = FIRING_QUEUE
    ) -> None:
        self._store = store
        self._topic, self._queue_id = topic, queue_id
        self.floor = 0
        """The first record that was read."""
        self.broken: tuple[int, int] | None = None
        """The last record before this start, if fewer messages follow it than it names."""

    @property
    def end(self) -> int:
        """Offset of the next record."""
        return self._store.queue_range(self._topic, self._queue_id)[1]

    def entry(self, body: bytes, now_ms: int) -> Entry:
        """Return the record of timers that fire now; their messages have to follow at once."""
        return make_entry(
            self._store.tail(self._topic, self._queue_id),
            body,
            born_ms=now_ms,
            born_host=self._store.config.store_host,
        )

    def stated(self, broken: tuple[int, int] | None) -> None:
        """Note that a record which states what is broken is in the log."""
        if broken == self.broken:
            self.broken = None

    def read(self, floor: int) -> list[tuple[int, int]]:
        """Return what is done, by queue and offset, as the records from `floor` on say.

        NotReadableNowError: try again later.
        """
        store = self._store
        low, high = store.queue_range(self._topic, self._queue_id)
        at = self.floor = min(max(low, floor), high)
        self.broken = None
        records: list[tuple[int, Firing]] = []
        last_place, last_size = -1, 0
        queue = (self._topic, self._queue_id)
        for found in queue_blocks(
            store, queue, at, high, messages_max=RECORDS_MAX, bytes_max=BYTES_MAX
        ):
            start = 0
            while start < len(found.body):
                copy = read_copy(found.body, start)
                start += copy.size
                try:
                    records.append((copy.queue_offset, decode_firing(copy.body)))
                except ValueError as error:
                    log.error("firing_record_skipped offset=%d reason=%s", copy.queue_offset, error)  # noqa: TRY400  the reason is all there is to say
                    continue
                last_place, last_size = copy.physical_offset, copy.size
        if records:
            offset, last = records[-1]
            followed = self._followers(last, last_place + last_size)
            if followed < len(last.fired):
                log.info("firing_cut offset=%d fired=%d of=%d", offset, followed, len(last.fired))
                self.broken = (offset, followed)
                records.append((-1, Firing((), (), self.broken)))
        return done_places(records) + self._behind_damage()

    def _followers(self, firing: Firing, place: int) -> int:
        """Return how many of the firing's messages stand behind its record, at `place`.

        Those in a part of the log that is out of service count if any behind it is one of them.
        """
        fired, index = firing.fired, 0
        while index < len(fired):
            (record, place), behind = message_from(self._store, place), index + 1
            lost = None if record is not None else self._damage_at(place)
            if lost is not None:
                (record, _), behind = message_from(self._store, lost.end), len(fired)
            mark = None if record is None else _mark(_properties(record.data))
            if record is None or mark not in fired[index:behind]:
                break
            index, place = fired.index(mark, index) + 1, record.end
        return index

    def _was_parked(self, properties: bytes) -> bool:
        """Tell whether a message waited in the topic; a timer may carry a level all the same."""
        is_timer = props.find(properties, b"TIMER_OUT_MS") is not None
        if self._topic == TIMER_TOPIC:
            return is_timer
        return not is_timer and props.find(properties, b"DELAY") is not None

    def _damage_at(self, place: int) -> DamagedRange | None:
        damaged = self._store.damaged_ranges()
        return next((lost for lost in damaged if lost.start <= place < lost.end), None)

    def _behind_damage(self) -> list[tuple[int, int]]:
        """Return what has fired as the messages say that stand behind damage.

        The record that names them may be lost in it: each says itself where it was parked.
        """
        done: list[tuple[int, int]] = []
        for lost in self._store.damaged_ranges():
            record, _ = message_from(self._store, lost.end)
            while record is not None:
                properties = _properties(record.data)
                mark = _mark(properties)
                if mark is None:
                    break
                if self._was_parked(properties):
                    done.append(mark)
                record, _ = message_from(self._store, record.end)
        return done


def timers_waiting(store: MessageStore) -> int:
    """Return how many timers a log has that have not fired, by the log alone.

    Of a bucket that is not over recalls count, too: never too few.
    """
    noted = store.meta(TIMER_KIND)
    bases: dict[int, int] = {}
    waiting = 0
    for queue_id in range(TIMER_BUCKETS):
        low, high = store.queue_range(TIMER_TOPIC, queue_id)
        value = noted.get(str(queue_id), 0)
        bases[queue_id] = min(max(low, value if isinstance(value, int) else 0), high)
        waiting += high - bases[queue_id]
    if waiting:
        floor = noted.get(FLOOR_KEY, 0)
        done = FiringLog(store).read(floor if isinstance(floor, int) else 0)
        waiting -= sum(offset >= bases[queue_id] for queue_id, offset in set(done))
    return waiting


def _mark(properties: bytes) -> tuple[int, int] | None:
    """Return where a message was parked that has fired; None: it is none."""
    mark = _MARK.match(props.find(properties, TIMER_MARK) or b"")
    return None if mark is None else (int(mark[1]), int(mark[2]))


def _properties(record: bytes) -> bytes:
    fields = read_layout(record, 0)
    return record[fields.properties_at : fields.properties_at + fields.properties_size]
