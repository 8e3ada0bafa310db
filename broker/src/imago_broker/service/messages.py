"""Putting messages, whatever the protocol: one append for all that arrived in a loop turn.

The life of a put: `put` or `put_one` during a turn → at the turn's end one `store.append` for all
connections → at level LEADER its `done` at once, at other levels when their progress has passed
the append's end → the `on_completed` listeners, so that each session writes its answers once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from imago_broker.core.acknowledgement import Acknowledgement

if TYPE_CHECKING:
    from imago_log import MessageStore
    from imago_wire.record import Entry, Placed, QueueTail

Done = Callable[[Any, "PutStatus", Sequence["Placed"]], None]
"""(token, status, where each entry was placed; empty unless it was appended)."""


class PutStatus(Enum):
    """How a put ended. Only OK and the two TIMEOUTs mean that the messages are in the log."""

    OK = "ok"
    FLUSH_TIMEOUT = "flush-timeout"
    """Appended; the disk did not confirm in time."""
    SLAVE_TIMEOUT = "slave-timeout"
    """Appended; the other members did not confirm in time."""
    DISK_FULL = "disk-full"
    NOT_WRITABLE = "not-writable"
    """This broker is not the master, or too few members are in sync for the level."""
    BUSY = "busy"
    """Too many bytes wait to be appended or acknowledged."""
    STOPPING = "stopping"


class MessageService:
    """The one writer of messages. All methods belong to the event loop's thread."""

    store: MessageStore

    def put_one(
        self, entry: Entry, level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put one message; `done(token, status, placed)` is called exactly once, later.

        Puts of one level complete in the order they were made. None stands for the level of the
        topic, or the cluster's.
        """
        raise NotImplementedError

    def put(
        self, entries: Sequence[Entry], level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put several messages that are placed one behind the other and answered together."""
        raise NotImplementedError

    def on_arrival(self, listener: Callable[[Iterable[QueueTail]], None]) -> None:
        """Tell the listener, once a turn after the append, the queues that grew."""
        raise NotImplementedError

    def on_completed(self, listener: Callable[[], None]) -> None:
        """Call the listener after each round of `done` calls: the time to write answers."""
        raise NotImplementedError

    def flush_turn(self) -> None:
        """Append now what this turn has gathered, for whoever is about to change a topic."""
        raise NotImplementedError
