"""What was published last of each sink, as a leader finds it, and what was published in part.

A mark and the messages that it publishes are one append, and a log after a crash or an election is
a prefix of what was appended. So a log that ends within them is that of a member which never had
the rest: nobody was told that it is there. It is cut before that member leads, and what was staged
waits as before; so no reader sees a part of a micro-batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from imago_broker.core.transactions.metaq_transaction import MetaqOutcome
from imago_broker.model import names
from imago_broker.service.metaq_transactions.decided import KIND, DecidedBatch
from imago_broker.service.metaq_transactions.transaction_log import STAGED_MARK, read_mark
from imago_broker.service.puts.copies import read_copy
from imago_log.errors import StoreError
from imago_wire.record_format.entries import PLACED_SIZE
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET, scan_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.service.metaq_transactions.decided import DecidedBatches
    from imago_broker.service.metaq_transactions.transaction_log import OutcomeMark
    from imago_log.metadata.changes import Change
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 4 << 20


class PublishedMarks:
    """What a new leader learns of what was published: from the metadata, and newer marks."""

    def __init__(self, store: MessageStore, decided: DecidedBatches) -> None:
        self._store, self._decided = store, decided
        self._changes: dict[str, Change] = {}
        decided.restore(store.meta(KIND))

    def take(self, mark: OutcomeMark) -> None:
        """Take what one mark tells, unless that is known."""
        number, sink = mark.key.removeprefix(STAGED_MARK).split(":", 1)
        batch, known = int(number), self._decided.get(sink)
        if known is None or known.batch < batch:
            found = DecidedBatch(batch, mark.said, mark.at_ms, mark.user)
            for change in self._decided.note(sink, found):
                self._changes[change[1]] = change

    def note(self) -> None:
        """Keep in the metadata what marks alone told: they are not looked for forever."""
        put_meta(self._store, list(self._changes.values()))


def put_meta(store: MessageStore, changes: Sequence[Change]) -> None:
    """Note what sinks have published last; else their marks tell it for a while."""
    try:
        if changes:
            store.put_meta(changes)
    except StoreError as error:
        logger.warning("sinks_not_noted reason=%s", error)


class PartlyPublished:
    """Looks whether the log ends within a publication; cheap to be asked each turn."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._seen = 0
        """Marks that were looked at."""
        self._at: int | None = None
        """Where the last one is, if it publishes something and that is not all there yet."""
        self._next, self._lacks = 0, 0
        """Where to look on, and how many records are to come."""

    def at(self) -> int | None:
        """Return where the mark is of what the log has in part; None: there is no such."""
        end = _marks(self._store)
        if end != self._seen:
            self._seen = end
            self._look_at(end - 1)
        if self._at is not None:
            self._next, self._lacks = _walked(self._store, self._next, self._lacks)
            if self._lacks <= 0:
                self._at = None
        return self._at

    def visible(self, high_watermark: int) -> int:
        """Return up to where a follower may show what it has, as its leader's mark allows it.

        Its leader's never stands within a publication. Its own log may end there.
        """
        log_end = self._store.log_end
        if high_watermark <= log_end:
            return high_watermark
        at = self.at()
        return log_end if at is None else at

    def _look_at(self, number: int) -> None:
        self._at = None
        placed = self._store.placed(names.METAQ_OUTCOME_TOPIC, 0, number, 1)
        if not placed:
            return
        at, size = placed[0][PLACED_PHYSICAL_OFFSET], placed[0][PLACED_SIZE]
        mark = read_mark(read_copy(bytes(self._store.read_log(at, size))).body)
        if mark.staged and mark.outcome is MetaqOutcome.COMMITTED:
            self._at, self._next, self._lacks = at, at + size, mark.size - mark.first


def cut_unpublished(store: MessageStore) -> int | None:
    """Cut what the log has of a micro-batch that was published in part; return where that was.

    The store leads nobody yet. What readers may have seen, or who published it was told, is never
    cut: where the high watermark is within such a part, which no leader of ours does, that is said,
    and the rest is put behind it as for other marks.
    """
    at = PartlyPublished(store).at()
    if at is None:
        return None
    if at < store.high_watermark:
        logger.error(
            "micro_batch_seen_in_part at=%d high_watermark=%d: it is not cut, but completed",
            at,
            store.high_watermark,
        )
        return None
    store.truncate(at)
    return at


def _marks(store: MessageStore) -> int:
    """Return how many marks there have been, whether or not readers see them."""
    try:
        return store.tail(names.METAQ_OUTCOME_TOPIC, 0).next_offset
    except KeyError:
        return 0


def _walked(store: MessageStore, at: int, lacks: int) -> tuple[int, int]:
    """Walk over the records from a place on that still lack; return where, and how many lack then.

    0 also where it cannot be told, as within damage.
    """
    size = store.config.segment_bytes_max
    while at < store.log_end and lacks > 0:
        if any(lost.start <= at < lost.end for lost in store.damaged_ranges()):
            return at, 0
        views = scan_records(bytes(store.read_log(at, _READ_BYTES)), at).views
        lacks -= len(views)
        following = (at // size + 1) * size  # a file's end is blank
        at = views[-1].physical_offset + views[-1].size if views else following
    return at, lacks
