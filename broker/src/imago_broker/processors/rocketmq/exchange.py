"""One request and its one answer, whatever the connection that carries them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.service.channel import Reply

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_broker.processors.rocketmq.rows import Hook, Lane
    from imago_broker.service.channel import Channel
    from imago_wire.remoting.command import RemotingCommand

__all__ = ["OK", "Exchange", "Reply", "RequestError"]

OK = Reply()


class RequestError(Exception):
    """The request is refused with a code and a text of RocketMQ; the connection stays."""

    def __init__(self, code: int, remark: str, *, ext: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.reply = Reply(code, remark, ext)


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way. Answered at most once: later answers are dropped."""

    channel: Channel
    command: RemotingCommand
    lane: Lane | None = field(default=None, init=False)
    hooks: Sequence[Hook] = field(default=(), init=False)
    answered: bool = field(default=False, init=False)

    @property
    def ext(self) -> Mapping[str, str]:
        """The request's header fields; empty when it has none."""
        return self.command.ext

    def enter(self, lane: Lane, hooks: Sequence[Hook]) -> None:
        """Count the request as unfinished in its lane until it is answered."""
        lane.running += 1
        self.lane, self.hooks = lane, hooks

    def answer(self, reply: Reply) -> None:
        """Send the answer, except to a one-way request; then the request is finished."""
        if self.answered:
            return
        self.finish()
        for hook in self.hooks:
            hook.after(self, reply)
        if not self.command.is_oneway:
            self.channel.reply(self.command, reply)

    def finish(self) -> None:
        """End the request without an answer: its connection is gone."""
        self.answered = True
        if self.lane is not None:
            self.lane.running -= 1
            self.lane = None
