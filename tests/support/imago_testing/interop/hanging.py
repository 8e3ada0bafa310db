"""The original MetaQ consumer, started again where it hangs by its own doing.

It closes and opens its connections whenever the tree of brokers changes. Where the former
connection goes late, the client closes the new one as one too many, says so in its log, and waits
for it until the tree changes once more: at most one of 300 changes, without any broker's doing.
Who runs such a consumer starts it again, and so does this; a consumer whose client has said nothing
of that kind has no excuse.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from imago_testing.interop.streams import taken_from, taking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_testing.interop.metaq import MetaqClient, MetaqConsumer
    from imago_testing.interop.streams import Taken

ONE_TOO_MANY = "超过设定值"
"""What the client logs as it closes a connection as one too many."""


class HangingConsumer:
    """A consumer of one topic in a client process that nobody else uses."""

    def __init__(self, client: MetaqClient, topic: str, group: str) -> None:
        self._client, self._topic, self._group = client, topic, group
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._excused = 0
        """How often its client had closed a connection so when it was started last."""
        self._left: list[Taken] = []
        """What it was given before it was started again and nobody has taken."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take(self) -> Sequence[Taken]:
        """Return what it was given since the last call; waits a little where there is nothing."""
        with self._lock:
            left, self._left = self._left, []
            return [*left, *taking(self._consumer)()]

    def restarted(self) -> bool:
        """Start it again if it may hang by its own doing; False: nothing says that it does."""
        with self._lock:
            if self._closed_too_many() <= self._excused:
                return False
            former: MetaqConsumer = self._consumer
            self._stack.close()
            self._left += [taken_from(each) for each in former.rest]
            self._start()
            return True

    def _start(self) -> None:
        self._excused = self._closed_too_many()
        factory = self._stack.enter_context(self._client.factory())
        consumer = factory.consumer([self._topic], self._group)
        self._consumer = self._stack.enter_context(consumer)

    def _closed_too_many(self) -> int:
        return self._client.driver.log_path.read_text(errors="replace").count(ONE_TOO_MANY)
