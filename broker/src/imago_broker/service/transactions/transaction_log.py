"""How transactions stand in the log, and how a leader finds there what is open.

A half message is a record of the queue of half messages. What becomes of it says a *mark*, a record
of the queue of marks: its body is a list of half messages' queue offsets, as RocketMQ has it, and a
property says of each how it ended. The messages of a mark that are to be put somewhere follow it in
the log at once, in its order, each naming its half message in the field for it. All of this is one
append, so of all marks only the log's last one can lack messages: where a crash or a change of
leaders cut the append. The next leader puts those, with a mark of their own before them. Thus a
mark and its messages count as one, and each message is put once.

So that nobody has to read all half messages again, the leader notes in the metadata from time to
time what is open below which offset, and from which mark on to read.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from imago_broker.core.transactions.packed_offsets import pack, unpack
from imago_broker.core.transactions.transactions import Outcome
from imago_broker.model import names
from imago_broker.service.log_walk import message_from, queue_blocks
from imago_broker.service.puts.copies import read_copy
from imago_log.errors import StoreError
from imago_wire.hot import mark_texts
from imago_wire.record_format import properties as props
from imago_wire.record_format.record_fields import read_layout
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_broker.service.puts.copies import StoredCopy
    from imago_log.metadata.changes import Change
    from imago_log.store import MessageStore
    from imago_wire.hot import Half
    from imago_wire.records.record import Entry

logger = logging.getLogger(__name__)

KIND = "transaction"
"""Of what is noted in the metadata."""
OUTCOMES = b"IMAGO_OUTCOMES"
"""Property of a mark: a letter for each of its half messages."""
PIECE = 10_000
"""Open half messages in one value of the metadata."""
LOOK_BACK = 256
"""Marks that are read at least, so that a producer that repeats itself is understood."""
READ_MAX = 256
READ_BYTES_MAX = 1 << 20

NOTE = "open"
"""Key of what names the pieces of a note."""
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}


def mark_entry(store: MessageStore, halves: list[Half], born_ms: int, born_host: bytes) -> Entry:
    """Return the entry of a mark for half messages, which know how each of them ends."""
    offsets, letters = mark_texts(halves)
    return make_entry(
        store.tail(names.TRANSACTION_MARK_TOPIC, 0),
        offsets,
        b"TAGS\x01d\x02%b\x01%b\x02" % (OUTCOMES, letters),
        born_ms=born_ms,
        born_host=born_host,
    )


def read_mark(mark: StoredCopy) -> list[tuple[int, Outcome]]:
    """Return what a mark says; a half message without a letter is one that nothing was put for."""
    offsets = [int(word) for word in mark.body.split(b",") if word.isdigit()]
    letters = mark.text(OUTCOMES).ljust(len(offsets))
    return [
        (offset, _OUTCOMES.get(letter, Outcome.ROLLED_BACK))
        for offset, letter in zip(offsets, letters, strict=False)
    ]


@dataclass(slots=True)
class Found:
    """What the log says of transactions."""

    open: dict[int, int] = field(default_factory=dict)
    """Queue offset of each open half message, and how often its producer was asked."""
    half_end: int = 0
    """All half messages below it are in this account."""
    mark_end: int = 0
    """All marks below it are."""
    ended: list[tuple[int, Outcome]] = field(default_factory=list)
    """How those of the marks that were read have ended, oldest first."""
    lost: list[int] = field(default_factory=list)
    """Half messages that no mark ends and whose records the log lost."""
    missing: list[tuple[int, Outcome]] = field(default_factory=list)
    """What the last mark says of half messages whose message is not in the log behind it."""


def find_open(store: MessageStore) -> Found:
    """Read the note, then what came after it. NotReadableNowError: try again later."""
    found = _noted(store.meta(KIND))
    first, end = store.queue_range(names.HALF_TOPIC, 0)
    if found.half_end > end:
        found = Found()  # of a topic that was deleted since
    for offset in range(found.half_end, end):
        found.open[offset] = 0
    found.half_end, oldest = end, first
    first, end = store.queue_range(names.TRANSACTION_MARK_TOPIC, 0)
    last = _read_marks(store, found, max(first, min(found.mark_end, end - LOOK_BACK)), end)
    found.mark_end = end
    found.lost = sorted(offset for offset in found.open if offset < oldest)
    for offset in found.lost:
        del found.open[offset]
    if last is not None:
        found.missing = _missing(store, last)
    return found


def _read_marks(store: MessageStore, found: Found, at: int, end: int) -> StoredCopy | None:
    last: StoredCopy | None = None
    queue = (names.TRANSACTION_MARK_TOPIC, 0)
    for block in queue_blocks(
        store, queue, at, end, messages_max=READ_MAX, bytes_max=READ_BYTES_MAX
    ):
        for copy in copies(block.body):
            last = copy
            for offset, outcome in read_mark(copy):
                found.open.pop(offset, None)
                found.ended.append((offset, outcome))
    return last


def _missing(store: MessageStore, mark: StoredCopy) -> list[tuple[int, Outcome]]:
    """Return what a mark promises and the log does not have behind it."""
    promised = [each for each in read_mark(mark) if each[1].has_message]
    places = {offset: _place_of(store, offset) for offset, _ in promised}
    at = mark.physical_offset + mark.size
    for number, (offset, _) in enumerate(promised):
        record, at = message_from(store, at)
        if record is None:
            if any(lost.start <= at < lost.end for lost in store.damaged_ranges()):
                return []  # unknown content: nothing is put twice
            return promised[number:]
        if read_layout(record.data, 0).prepared_offset != places[offset] and places[offset] >= 0:
            return promised[number:]
        at = record.end
    return []


def _place_of(store: MessageStore, offset: int) -> int:
    placed = store.placed(names.HALF_TOPIC, 0, offset, 1)
    return placed[0][1] if placed else -1


def copies(body: bytes) -> Iterable[StoredCopy]:
    """Yield the messages of a read, one after the other."""
    at = 0
    while at < len(body):
        copy = read_copy(body, at)
        yield copy
        at += copy.size


class NoHalf(Enum):
    """Why there is no half message."""

    LATER = "later"
    """It cannot be read now: readers do not see it yet, or what is wrong is being looked at."""
    LOST = "lost"
    """It is gone with the oldest file, or in a part of the log that is out of service."""


def read_half(store: MessageStore, offset: int) -> StoredCopy | NoHalf:
    """Return one half message, or why there is none."""
    try:
        found = store.read(names.HALF_TOPIC, 0, offset, messages_max=1, bytes_max=1)
    except StoreError as error:
        logger.warning("half_message_unreadable offset=%d reason=%s", offset, error)
        return NoHalf.LATER
    if found.count:
        half = read_copy(found.body)
        return half if half.queue_offset == offset else NoHalf.LOST
    return NoHalf.LOST if found.next_offset > offset else NoHalf.LATER


def group_of(half: StoredCopy) -> str:
    """Return the group of producers that a half message belongs to."""
    return half.text(b"PGROUP")


def unique_of(properties: bytes) -> str:
    """Return the id that a message's producer gave it; empty: none."""
    return (props.find(properties, b"UNIQ_KEY") or b"").decode("utf-8", "replace")


def immunity_ms(properties: bytes, timeout_ms: int) -> tuple[int, bool]:
    """Return how long nobody asks about a message, and whether it says so itself."""
    text = props.find(properties, b"CHECK_IMMUNITY_TIME_IN_SECONDS")
    if not text:
        return timeout_ms, False
    seconds = int(text) if text.isdigit() and len(text) <= 9 else -1
    return (timeout_ms if seconds < 0 else seconds * 1000), True


# The note in the metadata


def note_changes(found: Found, generation: int) -> list[Change]:
    """Return the changes that note what is open.

    The pieces of two notes have names of their own, and what names the pieces that count comes
    last: of changes that are cut in two the older note counts, whole.
    """
    offsets = sorted(offset for offset in found.open if offset < found.half_end)
    pieces = [offsets[at : at + PIECE] for at in range(0, len(offsets), PIECE)]
    changes: list[Change] = [
        (KIND, f"{generation % 2}/{number}", pack(piece, found.open))
        for number, piece in enumerate(pieces)
    ]
    note = {
        "half": found.half_end,
        "mark": found.mark_end,
        "generation": generation,
        "pieces": len(pieces),
    }
    return [*changes, (KIND, NOTE, note)]


def generation_of(meta: Mapping[str, Any]) -> int:
    """Return the number of the note that counts."""
    return int(meta.get(NOTE, {}).get("generation", 0))


def stale_pieces(meta: Mapping[str, Any], kind: str = KIND) -> list[Change]:
    """Return the changes that remove what no note needs."""
    note = meta.get(NOTE, {})
    kept = {f"{note.get('generation', 0) % 2}/{number}" for number in range(note.get("pieces", 0))}
    return [(kind, key, None) for key in meta if key != NOTE and key not in kept]


def _noted(meta: Mapping[str, Any]) -> Found:
    note = meta.get(NOTE, {})
    found = Found(half_end=int(note.get("half", 0)), mark_end=int(note.get("mark", 0)))
    for number in range(int(note.get("pieces", 0))):
        key = f"{int(note['generation']) % 2}/{number}"
        found.open.update(unpack(str(meta.get(key, ""))))
    return found
