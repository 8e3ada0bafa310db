"""What was published last of each sink, as a leader finds it, and what was published in part.

A mark and the messages that it publishes are one append, and a log after a crash or an election is
a prefix of what was appended. So a log that ends within them is that of a member which never had
the rest: nobody was told that it is there. It is cut before that member leads, and what was staged
waits as before; so no reader sees a part of a micro-batch.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from imago_broker.core.transactions.metaq_transaction import MetaqOutcome
from imago_broker.model import names
from imago_broker.service.metaq_transactions.term import DecidedBatch
from imago_broker.service.metaq_transactions.transaction_log import STAGED_MARK, read_mark
from imago_broker.service.puts.copies import read_copy
from imago_wire.records.record import PLACED_PHYSICAL_OFFSET, scan_records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.service.metaq_transactions.term import MetaqTerm
    from imago_broker.service.metaq_transactions.transaction_log import OutcomeMark
    from imago_log.store import MessageStore

_READ_BYTES: Final = 4 << 20
KIND: Final = "sink"
"""Of what is kept in the metadata: the newest micro-batch of each sink."""


def take_decided(store: MessageStore, term: MetaqTerm, marks: Iterable[OutcomeMark]) -> None:
    """Find what was published: in the metadata, and in marks that are newer."""
    for sink, value in store.meta(KIND).items():
        told = dict(value) if isinstance(value, dict) else {}
        term.decided[sink] = DecidedBatch(
            int(told.get("batch", -1)), str(told.get("said", "")), int(told.get("at", 0))
        )
    for mark in marks:
        if mark.staged and mark.outcome is MetaqOutcome.COMMITTED:
            batch, sink = mark.key.removeprefix(STAGED_MARK).split(":", 1)
            known = term.decided.get(sink)
            if known is None or known.batch <= int(batch):
                term.decided[sink] = DecidedBatch(
                    int(batch), mark.said, known.at_ms if known else 0
                )


def cut_unpublished(store: MessageStore) -> int | None:
    """Cut what the log has of a micro-batch that was published in part; return where that was.

    The store leads nobody yet.
    """
    at = _last_mark(store)
    if at is None or at < store.high_watermark:
        return None
    data = bytes(store.read_log(at, _READ_BYTES))
    copy = read_copy(data)
    mark = read_mark(copy.body)
    if not mark.staged or mark.outcome is not MetaqOutcome.COMMITTED:
        return None
    if _records_from(store, at + copy.size, mark.size) >= mark.size:
        return None
    store.truncate(at)
    return at


def _last_mark(store: MessageStore) -> int | None:
    """Return where the last mark is, whether or not readers see it."""
    end = 0
    with contextlib.suppress(KeyError):
        end = store.tail(names.METAQ_OUTCOME_TOPIC, 0).next_offset
    placed = store.placed(names.METAQ_OUTCOME_TOPIC, 0, end - 1, 1) if end else []
    return placed[0][PLACED_PHYSICAL_OFFSET] if placed else None


def _records_from(store: MessageStore, at: int, enough: int) -> int:
    """Return how many records follow a place up to the log's end, at most about `enough`.

    `enough` also where it cannot be told, as within damage.
    """
    count, size = 0, store.config.segment_bytes_max
    while at < store.log_end and count < enough:
        if any(lost.start <= at < lost.end for lost in store.damaged_ranges()):
            return enough
        views = scan_records(bytes(store.read_log(at, _READ_BYTES)), at).views
        count += len(views)
        following = (at // size + 1) * size  # a file's end is blank
        at = views[-1].physical_offset + views[-1].size if views else following
    return count
