"""SendMessage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.model.topics.attributes import MESSAGE_TYPE
from imago_broker.model.topics.topics import PERM_WRITE
from imago_broker.processors.grpc.calls import CallError, status
from imago_broker.processors.grpc.checks import check_message, check_type, topic_name, type_of
from imago_broker.processors.grpc.message_forms import stored_properties
from imago_broker.processors.grpc.transactions import transaction_id
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.hashing import queue_of_group
from imago_wire.grpc.messages import Encoding, MessageType, make, milliseconds
from imago_wire.record_format import properties as props
from imago_wire.record_format.layout import SYS_COMPRESSED, SYS_PREPARED
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.texts.message_ids import parse_offset_message_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.ports import Clock
    from imago_broker.processors.grpc.asking import AskedResult, TableAsker
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.service.topics.topics import TopicService

SENDS_MAX = 128
"""Of one request; no client sends more than one."""
_LIGHT_FULL = "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]"
"""So begins what 4.9 answers where there are too many light queues; its code says nothing."""
_STORED_ALL_THE_SAME = {
    SdkCode.MASTER_PERSISTENCE_TIMEOUT,
    SdkCode.SLAVE_PERSISTENCE_TIMEOUT,
    SdkCode.HA_NOT_AVAILABLE,
}


class SendCalls:
    """What producers ask for, transactions' ends aside."""

    def __init__(
        self,
        asker: TableAsker,
        topics: TopicService,
        clock: Clock,
        body_bytes_max: Callable[[], int],
    ) -> None:
        self._asker, self._topics, self._clock = asker, topics, clock
        self._body_bytes_max = body_bytes_max

    def send(self, call: Call, request: Any) -> None:
        """SendMessage: each message gets an entry of its own."""
        messages = request.messages
        if not messages:
            raise CallError(SdkCode.MESSAGE_CORRUPTED, "the request has no message")
        if len(messages) > SENDS_MAX:
            raise CallError(
                SdkCode.MESSAGE_CORRUPTED, f"{len(messages)} messages, at most {SENDS_MAX}"
            )
        topic, now_ms = topic_name(messages[0].topic), self._clock.epoch_ms()
        for message in messages:
            if message.topic.name != topic:
                raise CallError(SdkCode.MESSAGE_CORRUPTED, "messages of one request share a topic")
            check_message(message, self._body_bytes_max(), now_ms)
        config = self._topics.get(topic)
        for message in messages:
            check_type(type_of(message.system_properties), type_of_topic(config))
        if config is not None and not (config.perm & PERM_WRITE and config.write_queues):
            raise CallError(SdkCode.FORBIDDEN, "no writable queue")
        _Sends(call, self._asker, topic, config).begin(messages)


def type_of_topic(config: TopicConfig | None) -> str:
    """Return what a topic takes; one that does not exist takes nothing that is a message's type."""
    return "UNSPECIFIED" if config is None else config.attributes.get(MESSAGE_TYPE, "NORMAL")


class _Sends:
    """The messages of one request, on their slow path."""

    def __init__(
        self, call: Call, asker: TableAsker, topic: str, config: TopicConfig | None
    ) -> None:
        self._call, self._asker, self._topic, self._config = call, asker, topic, config

    def begin(self, messages: Any) -> None:
        """Put them."""
        outcomes = SendOutcomes(self._call, len(messages))
        for index, message in enumerate(messages):
            self._put(index, message, outcomes)

    def _put(self, index: int, message: Any, outcomes: SendOutcomes) -> None:
        told = message.system_properties
        queues = self._config.write_queues if self._config is not None else 0
        flag = SYS_PREPARED if told.message_type == MessageType.TRANSACTION else 0
        flag |= SYS_COMPRESSED if told.body_encoding == Encoding.GZIP else 0
        properties = stored_properties(message, self._topic, self._call.stream.peer)
        born_ms = milliseconds(told.born_timestamp)
        ext = {
            "a": self._topic,
            "b": self._topic,
            "e": str(_queue(told, queues)),
            "f": str(flag),
            "g": str(born_ms),
            "h": "0",
            "i": props.encode(properties).decode(),
        }

        def done(outcome: AskedResult) -> None:
            outcomes.done(index, told.message_id, outcome, half=bool(flag & SYS_PREPARED))

        self._asker.ask(self._call, RequestCode.SEND_MESSAGE_V2, ext, done, body=message.body)


class SendOutcomes:
    """What became of the messages of one request, until all have an answer."""

    def __init__(self, call: Call, count: int) -> None:
        self._call, self._left = call, count
        self._entries: list[Any] = [None] * count

    def done(
        self, index: int, message_id: str, outcome: AskedResult, *, half: bool = False
    ) -> None:
        """Note what became of one; the last one's has the request answered."""
        if outcome.done:
            self._entries[index] = make(
                "SendResultEntry",
                status=status(SdkCode.OK),
                message_id=message_id,
                transaction_id=_transaction_of(message_id, outcome) if half else message_id,
                offset=int(outcome.ext.get("queueOffset", "0")),
                recall_handle=outcome.ext.get("recallHandle", ""),
            )
        else:
            error = outcome.error()
            if error.code is SdkCode.INTERNAL_SERVER_ERROR and str(error).startswith(_LIGHT_FULL):
                error = CallError(SdkCode.LITE_TOPIC_QUOTA_EXCEEDED, str(error))
            self._entries[index] = make("SendResultEntry", status=status(error.code, str(error)))
        self._left -= 1
        if not self._left:
            self._call.answer(status=common([one.status for one in self._entries]), **self._said())

    def _said(self) -> dict[str, Any]:
        """Return the entries, unless a lone one has failed: its status says everything."""
        lone = len(self._entries) == 1 and self._entries[0].status.code != SdkCode.OK
        kept = lone and self._entries[0].status.code not in _STORED_ALL_THE_SAME
        return {} if kept else {"entries": self._entries}


def _queue(told: Any, queues: int) -> int:
    """Return the queue of a topic's that takes a message; -1: any."""
    if not queues:
        return -1
    if group := told.message_group or told.lite_topic:
        return queue_of_group(group, queues)
    # A topic of priorities has a queue for each; what is above the last goes there, too.
    return min(told.priority, queues - 1) if told.HasField("priority") else -1


def _transaction_of(message_id: str, outcome: AskedResult) -> str:
    return transaction_id(message_id, parse_offset_message_id(outcome.ext["msgId"])[1])


def common(found: list[Any]) -> Any:
    """Return the status of all, or that they differ."""
    if all(one.code == found[0].code for one in found):
        return found[0]
    return status(SdkCode.MULTIPLE_RESULTS)
