"""What is called with the messages that a client sends and receives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_client.messages import Message
    from imago_client.received import ReceivedMessage


class Interceptor:
    """Override what you need, and name it in `ClientConfig.interceptors`.

    Its methods are called in the thread of the client and must not wait. What `before_send` raises
    is raised by the send, and nothing was sent; what the others raise is logged, and the messages
    are handed over all the same.
    """

    def before_send(self, message: Message) -> Message:
        """Return what is sent in the place of a message: itself, or a changed copy."""
        return message

    def after_receive(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """See messages of a group right before a handler, or who asked for them, gets them."""

    def before_handle(
        self,
        group: str,  # noqa: ARG002 - for those who override it
        messages: Sequence[ReceivedMessage],  # noqa: ARG002
    ) -> object:
        """See that a push consumer calls its handler; what it returns `after_handle` gets.

        It runs in the task of the handler, which sees the context variables that it sets.
        """
        return None

    def after_handle(self, begun: object, error: BaseException | None) -> None:
        """See that this handler has ended, and what it raised."""
