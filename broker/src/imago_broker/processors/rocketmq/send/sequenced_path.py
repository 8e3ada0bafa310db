"""The fast path of an idempotent producer's sends: in the form in which our clients write them.

Their numbers are the last three properties of each message. Whatever looks different goes the
slow path, which says what is wrong with it, or takes it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.puts.sequencing import Numbers
from imago_broker.processors.rocketmq.exchange import Reply
from imago_broker.processors.rocketmq.outcomes import STORED
from imago_broker.processors.rocketmq.send.sequenced import refusal_reply
from imago_broker.service.delays.timers.timer_properties import may_wait
from imago_broker.service.puts.sequencing import NOWHERE
from imago_wire.errors import ProtocolError
from imago_wire.hot import make_entry, plain_send, scan_batch
from imago_wire.record_format.entries import ENTRY_TAIL
from imago_wire.record_format.sequences import split_wire, stored_property
from imago_wire.remoting.command import FLAG_RESPONSE, RemotingCommand, SerializeType
from imago_wire.remoting.messages import MESSAGES_MAX, decode_births

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_broker.core.puts.acknowledgement import Acknowledgement
    from imago_broker.processors.rocketmq.exchange import Lane
    from imago_broker.processors.rocketmq.sending_session import SendingSession, Token
    from imago_broker.service.puts.put_status import PutStatus
    from imago_broker.service.puts.sequencing import SequencedPuts
    from imago_broker.service.topics.topic_handles import TopicHandle, TopicHandles
    from imago_wire.records.record import Entry, Placed
    from imago_wire.remoting.scanning.items import SendItem

    Stored = Callable[[Token, PutStatus, Sequence[Placed]], None]
    Read = tuple[list[tuple[bytes, bytes, int]], Numbers, bytes]
    """Body, properties and flag of each message; what they claim; the first one's unique key."""


_EVERY_ANSWERS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
"""What Java producers need to find; on the fast path these are the settings."""


class SequencedPath:
    """Takes what the fast path of plain sends leaves."""

    def __init__(
        self,
        puts: SequencedPuts,
        handles: TopicHandles,
        lane: Lane,
        *,
        added: bytes,
        stored: Stored,
    ) -> None:
        """`added` are the properties that single messages get; `stored` answers as for others."""
        self._puts, self._handles, self._lane = puts, handles, lane
        self._added, self._stored = added, stored

    def send(self, session: SendingSession, item: SendItem, handle: TopicHandle, tag: str) -> bool:
        """Take one send; False, and nothing done, for one that has to go the slow path.

        `tag` is that of the user whose producer it is.
        """
        queue_id = item.queue_id
        read = None if item.oneway else self._read(item, tag)
        if read is None:
            return False
        messages, claimed, unique = read
        count = len(messages)
        births = decode_births(item.properties, item.born_ms, count) if item.batch else None
        tail = handle.tails[queue_id] or self._handles.tail(handle, queue_id)
        try:
            entries: list[Entry] = [
                make_entry(
                    tail,
                    body,
                    properties,
                    flag=flag,
                    born_ms=born_ms,
                    born_host=session.born_host,
                )
                for (body, properties, flag), born_ms in zip(
                    messages, births or [item.born_ms] * count, strict=True
                )
            ]
        except ProtocolError:
            return False
        self._lane.running += 1
        token = (session, item.opaque, item.serialize, queue_id, unique)
        self.put(entries, claimed, handle.level, token)
        return True

    def put(
        self, entries: list[Entry], claimed: Numbers, level: Acknowledgement, token: Token
    ) -> None:
        """Put messages that count in the lane already."""
        refusal = self._puts.put(entries, claimed, level, self._answer, token)
        if refusal is not None:
            tail = entries[0][ENTRY_TAIL]
            queue = f"{tail.topic.decode('utf-8', 'replace')}/{tail.queue_id}"
            self._reply(token, refusal_reply(refusal, claimed, queue))

    def _read(self, item: SendItem, tag: str) -> Read | None:
        if not item.batch:
            return _read_messages([(item.body, item.properties, item.flag)], self._added, tag)
        try:
            messages = scan_batch(item.body, MESSAGES_MAX)
        except ProtocolError:
            return None
        if item.properties.find(b"TRAN_MSG") >= 0 or may_wait(item.properties):
            return None
        return _read_messages(messages, b"", tag)

    def _answer(self, token: Token, status: PutStatus, placed: Sequence[Placed]) -> None:
        code = STORED.get(status)
        if code is not None and placed[0] == NOWHERE:
            ext = {"msgId": "", "queueId": str(token[3]), "queueOffset": "-1", **_EVERY_ANSWERS}
            self._reply(token, Reply(code, ext=ext))
        else:
            self._stored(token, status, placed)

    def _reply(self, token: Token, reply: Reply) -> None:
        self._lane.running -= 1
        session, opaque, serialize, _, _ = token
        form = SerializeType(serialize)
        request = RemotingCommand(code=0, opaque=opaque, serialize=form, flag=FLAG_RESPONSE)
        session.reply(request, reply)


def _read_messages(
    messages: Sequence[tuple[bytes, bytes, int]], suffix: bytes, tag: str
) -> Read | None:
    """Return the messages with the property that is stored, where they are as our clients write."""
    made: list[tuple[bytes, bytes, int]] = []
    first, key = None, b""
    for body, properties, flag in messages:
        found = split_wire(properties)
        if found is None:
            return None
        bare, claim = found[0], found[1]._replace(producer=found[1].producer + tag)
        plain = plain_send(bare, stored_property(claim) + suffix)
        if first is None:
            first, key = claim, b"" if plain is None else plain[0]
        if plain is None or claim != first._replace(number=first.number + len(made)):
            return None
        made.append((body, plain[1], flag))
    if first is None:
        return None
    return made, Numbers(first.producer, first.epoch, first.number, len(made)), key
