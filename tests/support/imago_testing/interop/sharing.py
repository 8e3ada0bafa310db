"""A group's members that share partitions, whatever client each is: what was sent, who got what."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from kazoo.client import KazooClient

from imago_testing.interop.metaq import Got, Put
from imago_testing.processes.servers import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Consumer(Protocol):
    """One member."""

    def take(self, count: int) -> list[Got]:
        """Return what has come since the last call."""


def puts(first: int, last: int) -> list[Put]:
    return [Put(f"{index}".encode()) for index in range(first, last)]


def numbers(messages: list[Got]) -> list[int]:
    return sorted(int(each.body) for each in messages)


@contextlib.contextmanager
def zookeeper(address: str) -> Iterator[KazooClient]:
    client = KazooClient(address)
    client.start(timeout=50)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def committed(tree: KazooClient, group: str, topic: str) -> dict[str, int]:
    """Partition to committed position: a record is <message id>-<position>, the id may be < 0."""
    folder = f"/meta/consumers/{group}/offsets/{topic}"
    if tree.exists(folder) is None:
        return {}
    records = {name: tree.get(f"{folder}/{name}")[0] for name in tree.get_children(folder)}
    return {name: int(record.decode().rpartition("-")[2]) for name, record in records.items()}


class Numbered:
    """Puts numbered messages, and remembers all that came back."""

    def __init__(self, send: Callable[[str, list[Put]], object], topic: str) -> None:
        self._send, self._topic = send, topic
        self.count = 0
        self.found: list[Got] = []

    def send(self, count: int) -> None:
        self._send(self._topic, puts(self.count, self.count + count))
        self.count += count

    def has_all(self, more: list[Got]) -> bool:
        self.found += more
        return set(numbers(self.found)) == set(range(self.count))


def wait_for_owners(
    sent: Numbered, consumers: Sequence[Consumer], partitions: set[str], *, even: bool = True
) -> None:
    """Send, round by round, until in one round every partition reached exactly one consumer."""

    def settled() -> bool:
        sent.send(2 * len(partitions))
        owned = []
        for consumer in consumers:
            messages = consumer.take(0)
            sent.found += messages
            owned.append({str(each.partition) for each in messages})
        sizes = [len(each) for each in owned]
        shared = set().union(*owned) == partitions and sum(sizes) == len(partitions)
        return shared and (not even or max(sizes) - min(sizes) <= 1)

    what = f"{len(consumers)} consumers share {sorted(partitions)}"
    wait_until(settled, what=what, poll=0.2)
