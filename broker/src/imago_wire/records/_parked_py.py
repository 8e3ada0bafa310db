"""Messages that waited, into entries of the queues they are meant for: the plain reference.

They are records, or half messages as they were put, with their real topic and queue in the
properties REAL_TOPIC and REAL_QID. What is rare (a compressed body, a topic that has changed or was
not used yet, names that only the broker writes) is left for a closer look.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from imago_wire.crc import CRC31_MASK
from imago_wire.errors import ProtocolError
from imago_wire.record_format import properties as props
from imago_wire.record_format.entries import EntryRun
from imago_wire.record_format.layout import (
    SYS_BORN_V6,
    SYS_COMMIT,
    SYS_STORE_V6,
    UNIT,
    WAITING_PLACE,
)
from imago_wire.record_format.record_fields import read_layout, read_reserved
from imago_wire.record_format.sequences import TIMER_MARK
from imago_wire.records._record_py import make_entry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_wire.record_format.entries import Entry, QueueTail

    Tails = Mapping[str, Sequence[QueueTail | None]]

_HOSTS: Final = SYS_BORN_V6 | SYS_STORE_V6
_RARE: Final = (b"__IMAGO_", b"__METAQ_", b"__UNIT_TAG", b"__CRC32#", b"__RMQ.TR", b"IMAGO_SHAPE")
_OF_THE_HALF: Final = frozenset(
    {
        b"TRAN_MSG", b"REAL_TOPIC", b"REAL_QID", b"TRANSACTION_CHECK_TIMES",
        b"TRAN_PREPARED_QUEUE_OFFSET",
    }
)  # fmt: skip
_WAITS: Final = (b"DELAY", b"TIMER_")
_QUEUE: Final = re.compile(rb"[0-9]{1,9}\Z")


def restore_run(
    data: bytes, at: int, count_max: int, due_ms: int, tails_of: Tails, queue_id: int
) -> EntryRun | None:
    """Return the messages that the parked records from `at` on become, as far as they are due.

    Due are those whose unit holds no later time than `due_ms`. `tails_of` are the queues of topics
    by name, `queue_id` that in which they are parked: each gets a mark that says so. Ends at the
    first record that is not due, or needs a closer look; None: at once.
    """
    entries: list[Entry] = []
    places = bytearray()
    while at < len(data) and len(entries) < count_max:
        made = _restored(data, at, due_ms, tails_of, queue_id)
        if made is None:
            break
        entry, offset, size = made
        entries.append(entry)
        places += WAITING_PLACE.pack(queue_id, offset)
        at += size
    return EntryRun(entries, bytes(places), at) if entries else None


def _restored(
    data: bytes, at: int, due_ms: int, tails_of: Tails, queue_id: int
) -> tuple[Entry, int, int] | None:
    try:
        fields = read_layout(data, at)
        end = at + fields.size
        reserved = read_reserved(data, fields.properties_at, end)
    except ProtocolError:
        return None
    if fields.sys_flag & ~_HOSTS or reserved.unit_tag is None or reserved.unit_tag > due_ms:
        return None
    if not 0 <= fields.body_crc <= CRC31_MASK or fields.queue_offset < 0:
        return None
    properties = data[fields.properties_at : reserved.client_end]
    tail = _tail(properties, tails_of)
    if tail is None or not properties.endswith(b"\x02"):
        return None
    mark = b"%b\x01%d-%d\x02" % (TIMER_MARK, queue_id, fields.queue_offset)
    born_host_at = fields.store_host_at - 8 - fields.born_host_size
    try:
        entry = make_entry(
            tail,
            data[fields.body_at : fields.body_at + fields.body_size],
            properties + mark,
            flag=fields.flag,
            born_ms=fields.born_ms,
            born_host=data[born_host_at : fields.store_host_at - 8],
            reconsume_times=fields.reconsume_times,
        )
    except ProtocolError:
        return None
    return (*entry[:-1], fields.body_crc), fields.queue_offset, fields.size


def due_units(units: bytes, due_ms: int) -> int:
    """Return how many units at the start hold no later time than `due_ms`."""
    count = 0
    for _, _, tag in UNIT.iter_unpack(units):
        if tag > due_ms:
            break
        count += 1
    return count


def restore_half(half: Entry, place: int, tails_of: Tails) -> Entry | None:
    """Return the entry of the message that a half message at log offset `place` stands for.

    None: it needs a closer look.
    """
    _, body, properties, flag, sys_flag, born_ms, born_host, reconsume_times, *_ = half
    tail = _tail(properties, tails_of)
    if sys_flag or tail is None or not properties.endswith(b"\x02"):
        return None
    parts = properties.split(b"\x02")[:-1]
    if any(part.startswith(_WAITS) or not part for part in parts):
        return None
    kept = [part for part in parts if part.partition(b"\x01")[0] not in _OF_THE_HALF]
    return make_entry(
        tail,
        body,
        b"".join([part + b"\x02" for part in kept]),
        flag=flag,
        sys_flag=SYS_COMMIT,
        born_ms=born_ms,
        born_host=born_host,
        reconsume_times=reconsume_times,
        prepared_offset=place,
    )


def _tail(properties: bytes, tails_of: Tails) -> QueueTail | None:
    """Return the queue that a message is meant for; None: it needs a closer look."""
    if any(part.startswith(_RARE) for part in properties.split(b"\x02")):
        return None
    topic, queue = props.find(properties, b"REAL_TOPIC"), props.find(properties, b"REAL_QID")
    if topic is None or queue is None or not _QUEUE.match(queue):
        return None
    try:
        tails = tails_of.get(topic.decode(), ())
    except UnicodeDecodeError:
        return None
    return tails[int(queue)] if int(queue) < len(tails) else None
