"""One client's counters, and its interceptors called so that none of them loses a message."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imago_client.checks import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.messages import Message
    from imago_client.observing.interceptors import Interceptor
    from imago_client.received import ReceivedMessage

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ClientCounters:
    """What one client has done since it was made; of all its producers and consumers together."""

    sent: int = 0
    """Messages that a broker acknowledged."""
    sent_bytes: int = 0
    """Their bodies as they went; of messages that left together the properties, too."""
    send_tries_failed: int = 0
    """Requests to store messages that were refused, or not answered; most are tried again."""
    received: int = 0
    """Messages that group members read, and POP consumers took."""
    received_bytes: int = 0
    """Their records."""
    handlers_failed: int = 0
    """Calls of a push consumer's handler that raised."""
    handed_back: int = 0
    """Messages of group members that are to come again, or went to the dead letters."""


class Watch:
    """Counts, and calls the interceptors."""

    def __init__(self, interceptors: Sequence[Interceptor]) -> None:
        self.counters = ClientCounters()
        self.interceptors = tuple(interceptors)

    def before_send(self, message: Message) -> Message:
        """Return what is sent in the place of a message. UsageError: that is no message."""
        for one in self.interceptors:
            message = one.before_send(message)
            from imago_client.messages import Message

            if not isinstance(message, Message):
                raise refuse(f"before_send of {type(one).__name__}", message, "a Message")
        return message

    def sent(self, count: int, size: int) -> None:
        """Note that a broker has acknowledged messages."""
        self.counters.sent += count
        self.counters.sent_bytes += size

    def received(self, count: int, size: int) -> None:
        """Note that messages were read, of so many bytes of records."""
        self.counters.received += count
        self.counters.received_bytes += size

    def after_receive(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Show messages to the interceptors before they are handed over."""
        for one in self.interceptors:
            try:
                one.after_receive(group, messages)
            except Exception:
                log.exception("interceptor_failed group=%s", group)

    def before_handle(self, group: str, messages: Sequence[ReceivedMessage]) -> list[object]:
        """Tell the interceptors that a handler begins; return what `after_handle` wants."""
        self.after_receive(group, messages)
        begun: list[object] = []
        for one in self.interceptors:
            try:
                begun.append(one.before_handle(group, messages))
            except Exception:
                log.exception("interceptor_failed group=%s", group)
                begun.append(None)
        return begun

    def after_handle(self, begun: Sequence[object], error: BaseException | None) -> None:
        """Tell them that it has ended, the last one first."""
        for one, own in reversed(list(zip(self.interceptors, begun, strict=True))):
            try:
                one.after_handle(own, error)
            except Exception:
                log.exception("interceptor_failed")
