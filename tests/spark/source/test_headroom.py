"""A stream is warned before messages go that it has not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.message_queue import MessageQueue
from imago_spark.choosing.headroom import LOOK_EVERY_S, Headroom

if TYPE_CHECKING:
    from collections.abc import Iterable

ONE, OTHER = MessageQueue("orders", "shard-0", 0), MessageQueue("orders", "shard-0", 1)
ENDS = {ONE: 1000, OTHER: 1000}


class Broker:
    """Queues whose beginnings move, and the time."""

    def __init__(self) -> None:
        self.first, self.now = {ONE: 0, OTHER: 0}, 0.0
        self.asked: list[list[MessageQueue]] = []

    def earliest(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        self.asked.append(list(queues))
        return {queue: self.first[queue] for queue in self.asked[-1]}

    def goes(self, count: int) -> None:
        self.now += LOOK_EVERY_S
        self.first = {queue: at + count for queue, at in self.first.items()}


def test_as_much_again_would_take_unread_messages() -> None:
    broker = Broker()
    headroom = Headroom(broker.earliest, lambda: broker.now)
    read = {ONE: 150, OTHER: 500}
    assert headroom.warnings(read, ENDS) == []
    broker.goes(100)
    (text,) = headroom.warnings(read, ENDS)
    assert text.startswith(f"{ONE}: within 60 s 100 messages")
    assert "50 are left before offset 150" in text


def test_nothing_is_said_while_nothing_goes_or_after_it_has_gone() -> None:
    broker = Broker()
    headroom = Headroom(broker.earliest, lambda: broker.now)
    read = {ONE: 0, OTHER: 0}
    assert headroom.warnings(read, ENDS) == []
    broker.goes(0)
    assert headroom.warnings(read, ENDS) == []
    broker.goes(100)
    assert headroom.warnings(read, ENDS) == [], "reading itself says that, with its cure"


def test_it_looks_where_something_is_unread_and_not_too_often() -> None:
    broker = Broker()
    headroom = Headroom(broker.earliest, lambda: broker.now)
    headroom.warnings(ENDS, ENDS)
    assert broker.asked == []
    for _ in range(3):
        headroom.warnings({ONE: 10, OTHER: 1000}, ENDS)
    assert broker.asked == [[ONE]]
