"""What the hot functions return."""

from __future__ import annotations

from typing import NamedTuple

PlainSend = tuple[str, str, bytes, bytes, bytes, int]
"""Topic, message group, id, properties as the log has them, body, time of birth."""


PlainAcks = tuple[str, str, dict[tuple[int, int], list[int]], bytes]
"""Group, topic, offsets by queue and stamp, and the answer once all that is written."""


class SharedDelivery(NamedTuple):
    """What the messages of one receive have in common."""

    starts: dict[int, int]
    """By queue: the first offset that is in it."""
    words: str
    """Of receipts: between the start offset and the queue."""
    resource: bytes
    """The topic, as messages name it."""
    invisible: bytes
    """For how long they are out, as messages say it."""
    attempts_max: int
    """Whatever was tried more often needs a closer look."""
    begin: bytes = b""
    """What comes before the messages."""
    end: bytes = b""
    """What comes behind them."""
