"""Queues that one replay holds: a second one at the same time would send all once more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self, TypeVar

from imago_cli.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from imago_client import MessageQueue
    from imago_client.blocking.rocketmq.pull_consumer import PullConsumer

T = TypeVar("T")
RENEW_S: Final = 20.0
"""Brokers forget a lock that nobody renews for a minute."""


class Hold:
    """The locks of a reader on queues, until the end of the block."""

    def __init__(self, reader: PullConsumer) -> None:
        self._reader = reader
        self._queues: set[MessageQueue] = set()
        self._renewed = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._queues:
            self._reader.unlock(self._queues)

    def take(self, queues: Sequence[MessageQueue]) -> None:
        """Hold these queues. CommandError: another has one of them."""
        held = self._reader.lock(queues)
        self._queues |= held
        if lost := sorted(set(queues) - held):
            raise CommandError(
                f"another replay works on {lost[0]}, or its shard does not answer",
                cure="let it end, or wait for a minute where it was killed; then try again",
            )
        self._renewed = time.monotonic()

    def kept(self, items: Iterable[T], rate: float | None) -> Iterator[T]:
        """Yield items, so many a second at most, as long as all is held."""
        began = time.monotonic()
        for number, item in enumerate(items):
            due = began if rate is None else began + number / rate
            while (left := due - time.monotonic()) > 0:
                time.sleep(min(left, RENEW_S))
                self._renew()
            self._renew()
            yield item

    def _renew(self) -> None:
        if time.monotonic() - self._renewed >= RENEW_S:
            self.take(sorted(self._queues))
