"""One request and its one answer, whatever the connection that carries them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from imago_broker.service.groups.channel import Reply
from imago_wire.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_broker.model.access.access import Need
    from imago_broker.service.access.throttling import Accounts
    from imago_broker.service.groups.channel import Channel

__all__ = ["OK", "Exchange", "Hook", "Lane", "Reply", "RequestError"]

OK = Reply()
_NO_FIELDS: dict[str, str] = {}
"""Of all requests that wait: a command is not changed after it was made."""


class RequestError(Exception):
    """The request is refused with a code and a text of RocketMQ; the connection stays."""

    def __init__(self, code: int, remark: str, *, ext: Mapping[str, str] | None = None) -> None:
        super().__init__(remark)
        self.reply = Reply(code, remark, ext)


class Lane:
    """A class of requests with its own limit, so that slow ones cannot crowd out others.

    `running` counts the requests whose answer is outstanding. RocketMQ gives each class a thread
    pool with a bounded queue; one event loop needs the bound only.
    """

    __slots__ = ("name", "running", "running_max")

    def __init__(self, name: str, running_max: int) -> None:
        self.name = name
        self.running = 0
        self.running_max = running_max

    @property
    def full(self) -> bool:
        return self.running >= self.running_max


class Hook(Protocol):
    """Sees every request before its handler and every answer after it (access control, audit)."""

    def before(self, exchange: Exchange) -> None:
        """Raise `RequestError` to refuse the request."""

    def require(self, exchange: Exchange, needs: Sequence[Need]) -> None:
        """Raise `RequestError` unless a request that came past `before` may have this too."""

    def after(self, exchange: Exchange, reply: Reply) -> None:
        """See the answer; it is already decided."""


@dataclass(slots=True, eq=False)
class Exchange:
    """A request on its way. Answered at most once: later answers are dropped."""

    channel: Channel
    command: RemotingCommand
    lane: Lane | None = field(default=None, init=False)
    hooks: Sequence[Hook] = field(default=(), init=False)
    answered: bool = field(default=False, init=False)
    user: str | None = field(default=None, init=False)
    """Whose request it is, once that was checked; None: nobody is known to have sent it."""
    sender: str = field(default="", init=False)
    """Whose idempotent producers it may go on with; empty: access control is off."""
    trusted: bool = field(default=False, init=False)
    """Whether access control lets it do all: its address is on the white list."""
    denied: bool = field(default=False, init=False)
    """Whether access control has refused it."""
    accounts: Accounts = field(default=(), init=False)
    """What its answer is charged to."""

    @property
    def ext(self) -> Mapping[str, str]:
        """The request's header fields; empty when it has none."""
        return self.command.ext

    @property
    def may_all(self) -> bool:
        """Whether nobody asks what it may: it is trusted, or nothing stands before its handler."""
        return self.trusted or not self.hooks

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

    def require(self, needs: Callable[[], Sequence[Need]]) -> None:
        """Raise `RequestError` unless its user has a right that is known now alone.

        Of messages that a request means by their place: when it came they may not have been seen
        yet, or others than now.
        """
        for hook in self.hooks:
            hook.require(self, needs())

    def keep_little(self) -> None:
        """Keep of the request only what its answer needs: it may wait for long, as many do."""
        asked = self.command
        self.command = RemotingCommand(
            code=asked.code,
            flag=asked.flag,
            opaque=asked.opaque,
            version=asked.version,
            language=asked.language,
            ext=_NO_FIELDS,
            serialize=asked.serialize,
        )

    def finish(self) -> None:
        """End the request without an answer: its connection is gone."""
        self.answered = True
        if self.lane is not None:
            self.lane.running -= 1
            self.lane = None
