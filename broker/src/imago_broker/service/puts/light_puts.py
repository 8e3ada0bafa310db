"""Messages for light queues on their way into the log: references in front of each, offsets in it.

Offsets are those at the end of the turn, so this is done then, and such puts are appended apart
from others: what those get is known before.
"""

from __future__ import annotations

import logging
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, cast

from imago_broker.service.puts.light_queues import LightEntry
from imago_broker.service.puts.put_jobs import JOB_ENTRIES
from imago_wire.hot import EntryRun
from imago_wire.record_format import properties as props
from imago_wire.record_format.entries import ENTRY_BORN_HOST, ENTRY_PROPERTIES, ENTRY_TAIL
from imago_wire.record_format.layout import CLIENT_PROPERTIES_BYTES_MAX
from imago_wire.record_format.references import (
    LIGHT_QUEUE_ID,
    OFFSETS,
    Reference,
    is_light,
    offsets_property,
    reference_property,
)
from imago_wire.records.record import make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_broker.service.puts.acknowledgements import Done
    from imago_broker.service.puts.put_jobs import PutJob
    from imago_broker.service.puts.put_status import PutStatus
    from imago_log.store import MessageStore
    from imago_wire.records.record import Entry, Placed, QueueTail

logger = logging.getLogger(__name__)

_BORN_MS = 5


class Expanded(NamedTuple):
    """Puts with all records that they are."""

    jobs: list[PutJob]
    references: int
    """How many of the entries are none of the puts' own."""


def sections(jobs: Sequence[PutJob]) -> Iterator[tuple[bool, list[PutJob]]]:
    """Yield the puts in their order, those together that are for light queues, or are not."""
    for light, section in groupby(jobs, lambda job: count_light(job[JOB_ENTRIES]) > 0):
        yield light, list(section)


def count_light(entries: Sequence[Entry]) -> int:
    """Return how many entries are for light queues, too."""
    return sum(1 for entry in entries if isinstance(entry, LightEntry))


def expand(
    jobs: Sequence[PutJob], store: MessageStore, level_of: Callable[[bytes], Acknowledgement]
) -> Expanded:
    """Return puts with the references and the offsets that they have if they are appended next."""
    ahead: dict[QueueTail, int] = {}
    expanded: list[PutJob] = []
    references = 0
    for entries, level, done, token, kind in jobs:
        made: list[Entry] = []
        own: list[int] = []
        for entry in entries:
            made += _records(entry, store, ahead)
            own.append(len(made) - 1)
        references += len(made) - len(entries)
        wanted = level or level_of(entries[0][ENTRY_TAIL].topic)  # who puts runs names a level
        expanded.append((made, wanted, _own_places, (done, own, token), kind))
    return Expanded(expanded, references)


def _own_places(
    token: tuple[Done, list[int], object], status: PutStatus, placed: Sequence[Placed]
) -> None:
    """Tell who has put messages where these are, and nothing of the references."""
    done, own, inner = token
    done(inner, status, [placed[at] for at in own] if placed else ())


def _records(
    entry: Entry | EntryRun, store: MessageStore, ahead: dict[QueueTail, int]
) -> list[Entry]:
    """Return what is appended for one entry, and count it in the queues.

    Those of a run are not counted: references may name a lower offset.
    """
    if isinstance(entry, EntryRun):
        return cast("list[Entry]", [entry])
    tail = entry[ENTRY_TAIL]
    if not isinstance(entry, LightEntry):
        ahead[tail] = ahead.get(tail, 0) + 1
        return [entry]
    offset = tail.next_offset + ahead.get(tail, 0)
    tails = _tails(entry.names, store)
    offsets = {name: each.next_offset + ahead.get(each, 0) for name, each in tails.items()}
    message = _message(entry, [offsets.get(name) for name in entry.names])
    records: list[Entry] = []
    if message is None:
        logger.error("light_queues_left_out topic=%r reason=properties are too long", tail.topic)
        message = cast("Entry", tuple(entry))
    else:
        reference = Reference(tail.topic.decode(), tail.queue_id, offset)
        records += [_reference(entry, each, reference) for each in tails.values()]
    records.append(message)
    for record in records:
        ahead[record[ENTRY_TAIL]] = ahead.get(record[ENTRY_TAIL], 0) + 1
    return records


def _tails(named: Sequence[str], store: MessageStore) -> dict[str, QueueTail]:
    """Return the ends of the light queues among the names, each once."""
    tails: dict[str, QueueTail] = {}
    for name in named:
        if is_light(name) and name in store.topics():
            tails[name] = store.tail(name, LIGHT_QUEUE_ID)
    return tails


def _message(entry: LightEntry, offsets: list[int | None]) -> Entry | None:
    """Return the message's entry with its offsets; None: they do not fit into its properties."""
    kept = props.without(entry[ENTRY_PROPERTIES], (OFFSETS,))
    if kept and not kept.endswith(props.VALUE_END):
        kept += props.VALUE_END
    properties = kept + offsets_property(offsets)
    if len(properties) > CLIENT_PROPERTIES_BYTES_MAX:
        return None
    behind = ENTRY_PROPERTIES + 1
    return cast("Entry", (*entry[:ENTRY_PROPERTIES], properties, *entry[behind:]))


def _reference(entry: Entry, tail: QueueTail, reference: Reference) -> Entry:
    """Return the record that stands for a message in a light queue, under the same tag."""
    tags = props.find(entry[ENTRY_PROPERTIES], b"TAGS")
    kept = b"" if tags is None else b"TAGS\x01%b\x02" % tags
    return make_entry(
        tail,
        b"",
        kept + reference_property(reference),
        born_ms=cast("int", entry[_BORN_MS]),
        born_host=entry[ENTRY_BORN_HOST],
    )
