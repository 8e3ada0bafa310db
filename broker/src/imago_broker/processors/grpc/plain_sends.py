"""The fast path of SendMessage: ordinary messages, without a request of the remoting protocol.

One message of an ordinary kind to a topic that is there goes from its bytes to the log, with those
of all connections of the turn in one put, and its answer is made in one go. Whatever else is asked
for goes the slow path.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.model.topics.topics import PERM_WRITE
from imago_broker.processors.grpc import checks
from imago_broker.processors.grpc.asking import AskedResult
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.sending import SendOutcomes, type_of_topic
from imago_broker.processors.rocketmq.exchange import Reply
from imago_broker.processors.rocketmq.needs import PUBLISH, of_topic
from imago_broker.processors.rocketmq.outcomes import REFUSED, STORED
from imago_broker.processors.rocketmq.send.sending import broker_properties
from imago_broker.processors.rounds import Round
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.grpc.hashing import queue_of_group
from imago_wire.grpc.messages import MessageType, make
from imago_wire.grpc.scanning.twins import plain_send
from imago_wire.hot import make_entry
from imago_wire.record_format.entries import PLACED_QUEUE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Sequence

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.model.access.access import Need
    from imago_broker.processors.grpc.authentication import CallUsers
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.rocketmq.rows import Table
    from imago_broker.service.puts.messages import MessageService
    from imago_broker.service.topics.topic_handles import TopicHandle, TopicHandles
    from imago_wire.records.record import Placed, QueueTail

_OK = PutStatus.OK
_Sent = tuple["Call", bytes]
"""Whose answer is awaited, and the message's id."""


class _Target(NamedTuple):
    """A topic, as long as its handle is the one that it was made of."""

    handle: TopicHandle
    tails: list[QueueTail | None]
    ordinary: bool
    """Whether it takes messages without a group; else, and beside them, such of a group."""
    ordered: bool
    need: Need


class PlainSends:
    """Takes ordinary sends of all connections."""

    def __init__(
        self,
        users: CallUsers,
        table: Table,
        messages: MessageService,
        handles: TopicHandles,
        settings: LiveSettings[RocketmqSection],
        cluster: str,
    ) -> None:
        """`table` serves what goes the slow path, in the same lane."""
        self._users, self._messages, self._handles = users, messages, handles
        self._made = handles.by_name
        self._settings = settings
        self._added = broker_properties(cluster, settings.current)
        self._lane = table.lanes["send"]
        self._watched = table.watched
        self._targets: dict[str, _Target] = {}
        self._round: Round[None, _Sent] = Round(Acknowledgement.LEADER)
        self._rng = random.Random()  # noqa: S311  spreads messages over queues, no secret

    def take(self, call: Call, data: bytes) -> bool:
        """Put the message of a request; False: it goes the slow path."""
        lane, stream = self._lane, call.stream
        if self._watched or lane.running >= lane.running_max:
            return False
        limits = (
            self._settings.current.message_bytes_max,
            checks.PROPERTIES_MAX,
            checks.USER_BYTES_MAX,
            checks.MESSAGE_GROUP_BYTES_MAX,
        )
        found = plain_send(data, stream.peer.encode(), self._added, limits)
        if found is None:
            return False
        topic, group, message_id, properties, body, born_ms = found
        target = self._targets.get(topic)
        if target is None or target.handle is not self._made.get(topic):
            target = self._target(topic)
        if target is None or not (target.ordered if group else target.ordinary):
            return False
        if not self._users.grant(call, (target.need,)):
            return False
        handle, queues = target.handle, len(target.tails)
        queue = queue_of_group(group, queues) if group else self._rng.randrange(queues)
        tail = target.tails[queue] or self._handles.tail(handle, queue)
        entry = make_entry(tail, body, properties, born_ms=born_ms, born_host=stream.born_host)
        round_ = self._round
        if round_.level is not handle.level or round_.entries is not self._messages.newest:
            round_ = self._round = Round(handle.level)
            self._messages.put(round_.entries, handle.level, self._stored, round_)
        round_.entries.append(entry)
        round_.asked.append((call, message_id))
        lane.running += 1
        return True

    def _target(self, topic: str) -> _Target | None:
        """Return a topic that takes ordinary messages; None: it needs a closer look."""
        handle = self._handles.of(topic)
        if handle is None or topic not in self._handles.rocketmq_tails[handle.level]:
            return None
        try:
            checks.topic_name(make("Resource", name=topic))
        except CallError:
            return None
        if not handle.tails or not handle.config.perm & PERM_WRITE:
            return None
        takes = type_of_topic(handle.config)
        target = self._targets[topic] = _Target(
            handle,
            handle.tails,
            takes in (MessageType.NORMAL.name, "MIXED"),
            takes in (MessageType.FIFO.name, "MIXED"),
            of_topic(topic, PUBLISH),
        )
        return target

    def _stored(
        self, round_: Round[None, _Sent], status: PutStatus, placed: Sequence[Placed]
    ) -> None:
        if status is PutStatus.TOO_LARGE and len(round_.asked) > 1:
            for entry, asked in zip(round_.entries, round_.asked, strict=True):
                alone: Round[None, _Sent] = Round(round_.level)  # only the one too large shall fail
                alone.entries.append(entry)
                alone.asked.append(asked)
                self._messages.put(alone.entries, alone.level, self._stored, alone)
            return
        self._lane.running -= len(round_.asked)
        if status is _OK:
            for (call, message_id), place in zip(round_.asked, placed, strict=True):
                call.stored(message_id, place[PLACED_QUEUE_OFFSET])
            return
        reply = Reply(STORED[status]) if status in STORED else REFUSED[status]
        outcome = AskedResult(reply.code, reply.remark or "", {}, b"", denied=False)
        for call, message_id in round_.asked:
            SendOutcomes(call, 1).done(0, message_id.decode(), outcome)
