"""A consumer's progress in one partition: position, fetch size, patience."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from imago_client.errors import ClientError
from imago_client.metaq.values import FETCH_BYTES_MAX

if TYPE_CHECKING:
    from imago_client.metaq.values import Fetched, MetaqMessage

DELAY_STEPS: Final = 10
"""So many empty answers in a row until the longest delay, as in the original client."""


class UnreadableMessageError(ClientError):
    """A partition holds at some position what is no message."""


@dataclass(slots=True)
class FetchCursor:
    """Decides where and how much to fetch next, and how long to wait before."""

    position: int
    fetch_bytes: int
    delay_s_max: float
    delay_s: float = 0.0
    last_id: int = -1
    """Of the last message that is done."""
    handling: bool = False
    """Whether a handler runs."""
    ending: bool = False
    """Whether the partition is given up: what a handler has is its last message."""

    def take(self, fetched: Fetched) -> list[MetaqMessage]:
        """Return the whole messages of an answer; the position stays until `advance`.

        A block without a whole message doubles the next fetch. UnreadableError: not even the
        largest fetch holds one.
        """
        messages = list(fetched.messages())
        if messages:
            self.delay_s = 0.0
        elif fetched.block:
            self._grow(fetched)
        else:
            self.position = fetched.next_offset
            self.wait()
        return messages

    def advance(self, message: MetaqMessage) -> None:
        """Note that everything up to and with this message is done."""
        self.position, self.last_id = message.next_offset, message.message_id

    def wait(self) -> None:
        """Lengthen the delay by a step."""
        self.delay_s = min(self.delay_s_max, self.delay_s + self.delay_s_max / DELAY_STEPS)

    def _grow(self, fetched: Fetched) -> None:
        if self.fetch_bytes >= FETCH_BYTES_MAX:
            raise UnreadableMessageError(
                f"{fetched.partition}: no whole message in {len(fetched.block)} bytes at"
                f" {fetched.offset}"
            )
        self.fetch_bytes = min(FETCH_BYTES_MAX, 2 * self.fetch_bytes)
