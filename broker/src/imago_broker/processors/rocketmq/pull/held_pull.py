"""A pull that waits without a command object: most are woken by what they want, and that is all.

Whatever else comes of it, its time being up, a refusal, messages that its tags pass over, is left
to the table's pull, which takes its place where it waits.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from imago_broker.processors.rocketmq.exchange import Exchange
from imago_broker.service.groups.channel import Channel
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.command import RemotingCommand, SerializeType

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.processors.rocketmq.pull.pull import PullProcessor
    from imago_broker.service.groups.pull_hold import Held, PullHold
    from imago_wire.remoting.scanning.granting import Grants
    from imago_wire.remoting.scanning.items import AskedPull

logger = logging.getLogger(__name__)

Tags = frozenset[int] | None


class PullingChannel(Channel, Protocol):
    """A connection as the fast path uses it."""

    grants: Grants | None
    """What its users may do; None: all."""

    def add(self, head: bytes, body: bytes) -> bool:
        """Add the frame of an answer; False: its peer has to read before there are more."""
        ...


class Answerer(Protocol):
    """Answers pulls by the fast path."""

    def answer_held(self, channel: PullingChannel, asked: AskedPull, tags: Tags) -> bool:
        """Answer a pull that was held with messages; False: it needs a closer look."""
        ...


@dataclass(slots=True, eq=False)
class HeldPull:
    """One of them, until it is answered or its connection is gone. It counts in its lane."""

    channel: PullingChannel
    asked: AskedPull
    tags: Tags
    answerer: Answerer
    processor: PullProcessor
    lane: Lane
    hold: PullHold
    _held: Held | None = field(default=None, init=False)

    def wait(self, hold_ms: int) -> bool:
        """Wait for messages; False when there is no room for it."""
        asked = self.asked
        self._held = self.hold.hold(
            asked.topic.encode(), asked.queue_id, hold_ms=hold_ms, wake=self._wake
        )
        if self._held is None:
            return False
        self.lane.running += 1
        self.channel.watch(self._gone)
        return True

    def _wake(self, late: bool) -> bool:
        if late or not self._answered():
            return self._look_closer(late)
        self.channel.unwatch(self._gone)
        self.lane.running -= 1
        return True

    def _answered(self) -> bool:
        try:
            return self.answerer.answer_held(self.channel, self.asked, self.tags)
        except Exception:
            # The table's pull reads it again, and says what is wrong to the log and to the client.
            logger.debug("held_pull_left topic=%s", self.asked.topic, exc_info=True)
            return False

    def _look_closer(self, late: bool) -> bool:
        asked, held = self.asked, self._held
        assert held is not None, "only what is held is woken"
        command = RemotingCommand(
            code=RequestCode.PULL_MESSAGE,
            opaque=asked.opaque,
            serialize=SerializeType(asked.serialize),
        )
        exchange = Exchange(self.channel, command)
        exchange.lane = self.lane
        self.channel.unwatch(self._gone)
        held.token = self.processor.take_over(exchange, asked, self.tags, held)
        return held.token(late)

    def _gone(self) -> None:
        if self._held is not None:
            self.hold.forget(self._held)
        self.lane.running -= 1
