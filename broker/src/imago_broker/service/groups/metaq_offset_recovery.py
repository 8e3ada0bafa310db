"""Where groups go on in a log that is not the one in which they were: by the ids of messages.

The slave of a samsa master may have other positions than the master had. A group's record in
ZooKeeper names the last message that it has had: where that message is here, it goes on behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_log.results import MetaqStatus
from imago_wire.record_format.layout import METAQ_HEADER, METAQ_HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from imago_log.store import MessageStore

LOOKED_AT_ONCE: Final = 1000
"""Messages between two rests."""


def positions_behind(
    store: MessageStore, topic: str, partition: int, ids: Collection[int]
) -> Iterator[dict[int, int]]:
    """Look for messages from the newest to the oldest; yield what is known, at each rest.

    The position behind each message that is here. Of a positive id that is not, behind the last
    message with a smaller one: positive ids grow. Negative ones tell nothing but themselves.
    """
    found: dict[int, int] = {}
    smaller: dict[int, int] = {}
    low, high = store.queue_range(topic, partition)
    while low < high and len(found) < len(ids):
        first = max(low, high - LOOKED_AT_ONCE)
        start = store.position_of(topic, partition, first)
        end = store.position_of(topic, partition, high)
        for message_id, behind in reversed(_messages(store, topic, partition, start, end)):
            if message_id in ids:
                found.setdefault(message_id, behind)
            for wanted in ids:
                if 0 < message_id < wanted:
                    smaller.setdefault(wanted, behind)
        high = first
        yield smaller | found
    yield smaller | found


def _messages(
    store: MessageStore, topic: str, partition: int, start: int, end: int
) -> list[tuple[int, int]]:
    """Return the ids of the messages in a range of positions, and the position behind each."""
    messages: list[tuple[int, int]] = []
    while start < end:
        read = store.read_positions(topic, partition, start, end - start)
        if read.status is MetaqStatus.LOST and read.position > start:
            start = read.position
            continue
        if read.status is not MetaqStatus.FOUND:
            break
        data = read.data if isinstance(read.data, bytes) else read.data.read()
        at, start = 0, read.position
        while at + METAQ_HEADER_SIZE <= len(data):
            length, _, message_id, _ = METAQ_HEADER.unpack_from(data, at)
            at += METAQ_HEADER_SIZE + length
            if at <= len(data):
                messages.append((message_id, start + at))
        start += max(at, 1)
    return messages
