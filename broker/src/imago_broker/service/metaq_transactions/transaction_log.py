"""How MetaQ's transactions stand in the log, and how a leader finds there what is prepared.

A transaction is written down as a record for each of its messages in the queue of prepared ones,
all in one append. How it ends says a *mark*, a record of the queue of outcomes; the messages that
it puts follow it at once, in their order, in the same append. They have the ids that their
producer was told, by which they are known.

One that ends in a single step is all of this in one append: its messages twice, the mark between.
A log after a crash or an election is a prefix of what was appended. So what lacks its mark was
never prepared or ended, and only the log's last mark can lack messages: the next leader puts them,
behind a mark of its own. One message alone needs nothing of this.

Now and then the leader notes in the metadata what is prepared below which offsets, so that a start
reads only what came after.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from imago_broker.core.transactions.metaq_transaction import (
    MetaqOutcome,
    MetaqTransaction,
    TransactionMessage,
)
from imago_broker.model import names
from imago_broker.service.log_walk import queue_blocks, record_from
from imago_broker.service.puts.copies import read_copy
from imago_broker.service.transactions.transaction_log import NOTE, copies
from imago_wire.record_format import properties as props
from imago_wire.records.record import make_entry
from imago_wire.remoting.messages import decode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from imago_broker.service.log_walk import WalkedRecord
    from imago_broker.service.puts.copies import StoredCopy
    from imago_log.metadata.changes import Change
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry

KIND = "metaq-transaction"
"""Of what is noted in the metadata."""
PLACE = b"IMAGO_TX_PLACE"
"""Property of a prepared record: number of the transaction, of the message, how many there are."""
MESSAGE_ID = b"IMAGO_TX_ID"
KEY = b"IMAGO_TX_KEY"
"""Property of the first record: name of the transaction, and when it began."""
ONE_STEP = b"IMAGO_TX_ENDS"
"""Property of records whose mark follows them in the same append."""
ROWS = b"IMAGO_TX_ROWS"
"""Property of a record whose body is a batch: how many messages that has."""
STAGED_MARK = "STAGED:"
"""How the keys of marks begin that end what a sink has staged; its batch and id follow."""
PIECE = 100
"""Transactions in one value of the metadata."""
LOOK_BACK = 256
"""Marks that are read at least, so that a producer that repeats itself is understood."""
READ_MAX = 256
READ_BYTES_MAX = 1 << 20


class OutcomeMark(NamedTuple):
    """What one mark says."""

    outcome: MetaqOutcome
    number: int
    first: int
    """Number of the first message that follows."""
    size: int
    """How many messages the transaction has."""
    key: str
    others: tuple[int, ...] = ()
    """Of staged batches: the transactions that end with it, whose messages follow in this order."""
    said: str = ""
    """What their producer wants to be told when it asks again."""
    user: str = ""
    """Of whose share that is."""
    at_ms: int = 0
    """When it was written, of one that was read."""

    @property
    def staged(self) -> bool:
        """Whether it ends what a sink has staged."""
        return self.key.startswith(STAGED_MARK)

    @property
    def numbers(self) -> tuple[int, ...]:
        """All that end with it."""
        return self.others if self.staged else (self.number,)


@dataclass(slots=True)
class FoundTransactions:
    """What the log says."""

    open: dict[int, MetaqTransaction] = field(default_factory=dict)
    """By number: the prepared ones, and those that a person decided about."""
    prepared_end: int = 0
    outcome_end: int = 0
    ended: list[OutcomeMark] = field(default_factory=list)
    """Marks that were read, oldest first."""
    missing: tuple[OutcomeMark, list[TransactionMessage]] | None = None
    """What the last mark promises and the log does not have."""
    highest_id: int = 0
    """Of all messages that were told theirs and are prepared, or were."""


# Writing


def prepared_entries(
    store: MessageStore,
    transaction: MetaqTransaction,
    *,
    ends: bool,
) -> list[Entry]:
    """Return the entries that write an open transaction down."""
    tail = store.tail(names.METAQ_PREPARED_TOPIC, 0)
    messages = transaction.messages
    number, count = messages[0].metaq_id, len(messages)
    first = b"%b\x01%b %d\x02" % (KEY, _quoted(transaction.key), transaction.begun_ms)
    ending = ONE_STEP + b"\x011\x02" if ends else b""
    return [
        make_entry(
            tail,
            message.body,
            b"%b\x01%d %d %d\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%d\x02%b\x01%d\x02%b%b"
            % (
                PLACE, number, index, count, message.topic.encode(), message.partition,
                MESSAGE_ID, message.metaq_id, ending, _of_first(message, index, first),
            ),
            flag=message.flag,
            born_ms=message.born_ms,
            born_host=message.born_host,
        )
        for index, message in enumerate(messages)
    ]  # fmt: skip


def _of_first(message: TransactionMessage, index: int, first: bytes) -> bytes:
    rows = b"%b\x01%d\x02" % (ROWS, message.rows) if message.rows else b""
    return rows if index else first + rows


def outcome_entry(store: MessageStore, mark: OutcomeMark, born_ms: int) -> Entry:
    """Return the entry of a mark."""
    staged = b""
    if mark.staged:
        others = b"".join(b",%d" % number for number in mark.others)
        staged = b" -%b %b %b" % (others, _quoted(mark.said), _quoted(mark.user))
    return make_entry(
        store.tail(names.METAQ_OUTCOME_TOPIC, 0),
        b"%b %d %d %d %b%b"
        % (
            mark.outcome.value.encode(),
            mark.number,
            mark.first,
            mark.size,
            _quoted(mark.key),
            staged,
        ),
        born_ms=born_ms,
        born_host=store.config.store_host,
    )


def _quoted(key: str) -> bytes:
    return quote(key, safe=":").encode()


# Reading


def read_mark(body: bytes) -> OutcomeMark:
    """Return what a mark says."""
    letter, number, first, count, key, *staged = body.decode().split(" ")
    mark = OutcomeMark(MetaqOutcome(letter), int(number), int(first), int(count), unquote(key))
    if not staged:
        return mark
    others, said, user = staged
    return mark._replace(
        others=tuple(map(int, others.split(",")[1:])), said=unquote(said), user=unquote(user)
    )


def read_messages(store: MessageStore, offset: int, count: int) -> list[TransactionMessage] | None:
    """Return the messages of a prepared transaction; None: the log has them no more.

    NotReadableNowError: try again later.
    """
    found: list[TransactionMessage] = []
    for copy in _records(store, names.METAQ_PREPARED_TOPIC, offset, offset + count):
        if copy.queue_offset != offset + len(found):
            return None
        found.append(_message(copy))
    return found if len(found) == count else None


def find_transactions(
    store: MessageStore, published: Callable[[OutcomeMark], None]
) -> FoundTransactions:
    """Read the note, then what came after it; `published` is told sinks' marks, oldest first."""
    found = _noted(store)
    first, end = store.queue_range(names.METAQ_PREPARED_TOPIC, 0)
    if found.prepared_end > end:
        found = FoundTransactions()  # of a topic that was deleted since
    last_step = _read_prepared(store, found, max(first, found.prepared_end), end)
    found.prepared_end = end
    first, end = store.queue_range(names.METAQ_OUTCOME_TOPIC, 0)
    last = None
    at = max(first, min(found.outcome_end, end - LOOK_BACK))
    for copy in _records(store, names.METAQ_OUTCOME_TOPIC, at, end):
        mark = read_mark(copy.body)._replace(at_ms=copy.born_ms)
        last = copy, mark, [found.open.get(number) for number in mark.numbers]
        if mark.staged and mark.outcome is MetaqOutcome.COMMITTED:
            published(mark)
        _take_mark(found, mark._replace(said=""))
    found.outcome_end = end
    if last is not None:
        copy, mark, transactions = last
        if last_step is not None and (last_step.number,) == mark.numbers:
            transactions = [last_step]
        known = [each for each in transactions if each is not None]
        if len(known) == len(transactions) and mark.outcome.has_messages:
            found.missing = _missing(store, copy, mark, known)
    return found


def _take_mark(found: FoundTransactions, mark: OutcomeMark) -> None:
    found.ended.append(mark)
    transaction = found.open.get(mark.number)
    if mark.outcome.heuristic and transaction is not None:
        transaction.outcome = mark.outcome
    else:
        for number in mark.numbers:
            found.open.pop(number, None)


def _read_prepared(
    store: MessageStore, found: FoundTransactions, at: int, end: int
) -> MetaqTransaction | None:
    """Take what is whole of the prepared records; return the last one that ends in one step.

    What was cut off its mark, or in itself, counts for nothing.
    """
    current: MetaqTransaction | None = None
    last_step = None
    read = 0
    for copy in _records(store, names.METAQ_PREPARED_TOPIC, at, end):
        number, index, count = map(int, copy.text(PLACE).split())
        found.highest_id = max(found.highest_id, int(copy.text(MESSAGE_ID)))
        if index == 0:
            key, begun_ms = copy.text(KEY).split(" ")
            current = restored(
                unquote(key), int(begun_ms), number=number, offset=copy.queue_offset, count=count
            )
            read = 0
        if current is None or current.number != number or index != read:
            current = None  # its first part is gone with the log's oldest files
            continue
        current.topics.add(copy.text(b"REAL_TOPIC"))
        read += 1
        if read == count:
            if copy.text(ONE_STEP):
                last_step = current
            else:
                found.open[number] = current
    return last_step


def restored(key: str, begun_ms: int, *, number: int, offset: int, count: int) -> MetaqTransaction:
    """Return a transaction of the log."""
    parts = key.split(":", 4)  # a qualifier may have colons of its own
    owner = parts[4] if key.startswith("XID:") and len(parts) == 5 else parts[1]
    return MetaqTransaction(
        key, owner, key.startswith("XID:"), begun_ms, number=number, offset=offset, count=count
    )


def _missing(
    store: MessageStore,
    copy: StoredCopy,
    mark: OutcomeMark,
    transactions: Sequence[MetaqTransaction],
) -> tuple[OutcomeMark, list[TransactionMessage]] | None:
    """Return the messages that a mark promises and the log does not have behind it."""
    messages: list[TransactionMessage] = []
    for transaction in transactions:
        part = read_messages(store, transaction.offset, transaction.count)
        if part is None:
            return None
        messages += staged_rows(part) if mark.staged else part
    at = copy.physical_offset + copy.size
    ids = [
        _unique_of(message.properties) if mark.staged else message.metaq_id for message in messages
    ]
    index = mark.first
    while index < mark.size:
        if any(lost.start <= at < lost.end for lost in store.damaged_ranges()):
            return None  # what is there nobody knows: nothing is put twice
        record = record_from(store, at)
        found = None if record is None else _id_of(record, staged=mark.staged)
        if record is None or found not in ids[index:]:
            return mark._replace(first=index), messages[index:]
        # Messages whose topic was gone were left out: what follows was put all the same.
        index = ids.index(found, index) + 1
        at = record.end
    return None


def _id_of(record: WalkedRecord, *, staged: bool) -> int | bytes | None:
    """Return by what a message is known that a mark puts."""
    return _unique_of(read_copy(record.data).properties) if staged else record.view.metaq_id


def _unique_of(properties: bytes | None) -> bytes | None:
    return props.find(properties, b"UNIQ_KEY") if properties is not None else None


def staged_rows(blocks: Iterable[TransactionMessage]) -> list[TransactionMessage]:
    """Return the messages of batches, each by itself."""
    return [
        block._replace(
            body=entry.body, properties=entry.properties, flag=entry.flag, rows=0, metaq_id=-1
        )
        for block in blocks
        for entry in decode_batch(block.body)
    ]


def _message(copy: StoredCopy) -> TransactionMessage:
    return TransactionMessage(
        topic=copy.text(b"REAL_TOPIC"),
        partition=int(copy.text(b"REAL_QID")),
        flag=copy.flag,
        body=copy.body,
        metaq_id=int(copy.text(MESSAGE_ID)),
        born_ms=copy.born_ms,
        born_host=copy.born_host,
        rows=int(copy.text(ROWS) or 0),
    )


def _records(store: MessageStore, topic: str, at: int, end: int) -> Iterator[StoredCopy]:
    """Yield the records of a queue. NotReadableNowError: try again later."""
    limits = {"messages_max": min(READ_MAX, end - at), "bytes_max": READ_BYTES_MAX}
    for block in queue_blocks(store, (topic, 0), at, end, **limits):
        for copy in copies(block.body):
            if copy.queue_offset >= end:
                return
            yield copy


# The note in the metadata


def note_changes(
    prepared: Iterable[MetaqTransaction],
    decided: Iterable[MetaqTransaction],
    prepared_end: int,
    outcome_end: int,
    highest_id: int,
    generation: int,
) -> list[Change]:
    """Return the changes that note what the log has.

    The pieces of two notes have names of their own, and what names the pieces that count comes
    last: of changes that are cut in two the older note counts, whole.
    """
    noted = [_form(each, "") for each in prepared]
    noted += [_form(each, each.outcome.value) for each in decided if each.outcome is not None]
    pieces = [noted[at : at + PIECE] for at in range(0, len(noted), PIECE)]
    changes: list[Change] = [
        (KIND, f"{generation % 2}/{number}", piece) for number, piece in enumerate(pieces)
    ]
    note = {
        "prepared": prepared_end,
        "outcomes": outcome_end,
        "highest_id": highest_id,
        "generation": generation,
        "pieces": len(pieces),
    }
    return [*changes, (KIND, NOTE, note)]


def _form(transaction: MetaqTransaction, decided: str) -> dict[str, Any]:
    return {
        "key": transaction.key,
        "number": transaction.number,
        "offset": transaction.offset,
        "count": transaction.count,
        "begun": transaction.begun_ms,
        "decided": decided,
    }


def _noted(store: MessageStore) -> FoundTransactions:
    meta = store.meta(KIND)
    note: Any = meta.get(NOTE, {})
    found = FoundTransactions(
        prepared_end=int(note.get("prepared", 0)),
        outcome_end=int(note.get("outcomes", 0)),
        highest_id=int(note.get("highest_id", 0)),
    )
    for piece in range(int(note.get("pieces", 0))):
        forms: Any = meta.get(f"{int(note['generation']) % 2}/{piece}", ())
        for form in forms:
            transaction = restored(
                form["key"], form["begun"],
                number=form["number"], offset=form["offset"], count=form["count"],
            )  # fmt: skip
            if form["decided"]:
                transaction.outcome = MetaqOutcome(form["decided"])
            found.open[transaction.number] = transaction
    return found
