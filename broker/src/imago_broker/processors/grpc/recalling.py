"""RecallMessage: a delayed message is not to be delivered, on whichever shard it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.model.access.users import ANONYMOUS, Introduced
from imago_broker.processors.grpc.asking import AskedResult
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.checks import check_type, topic_name
from imago_broker.processors.grpc.sending import type_of_topic
from imago_wire.errors import ProtocolError
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import MessageType
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.texts.handles import parse_recall_handle

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from imago_broker.processors.grpc.asking import TableAsker
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.rocketmq.static.static_front import OtherBrokers
    from imago_broker.service.topics.topics import TopicService

RECALL_HANDLE_MAX = 1024
"""Characters of a handle; those of the longest names have half as many."""


class RecallCalls:
    """SDKs ask their access point, which may be any broker: it passes on what is another's."""

    def __init__(
        self,
        asker: TableAsker,
        topics: TopicService,
        others: OtherBrokers,
        loop: asyncio.AbstractEventLoop,
        *,
        broker_name: str,
        leads: Callable[[], bool],
    ) -> None:
        self._asker, self._topics, self._others, self._loop = asker, topics, others, loop
        self._broker_name, self._leads = broker_name, leads
        self._tasks: set[asyncio.Task[None]] = set()

    def recall(self, call: Call, request: Any) -> None:
        """RecallMessage."""
        topic, handle = topic_name(request.topic), request.recall_handle
        if len(handle) > RECALL_HANDLE_MAX:
            raise CallError(SdkCode.INTERNAL_SERVER_ERROR, "this is no recall handle")
        ext = {"producerGroup": topic, "topic": topic, "recallHandle": handle}
        broker = _broker_of(handle) or self._broker_name
        if broker != self._broker_name or not self._leads():
            task = self._loop.create_task(self._ask_there(call, broker, ext))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        check_type(MessageType.DELAY, type_of_topic(self._topics.get(topic)))
        self._asker.ask(call, RequestCode.RECALL_MESSAGE, ext, lambda told: _answer(call, told))

    async def _ask_there(self, call: Call, broker: str, ext: Mapping[str, str]) -> None:
        host, _, port = call.stream.peer.rpartition(":")
        user = "" if call.user == ANONYMOUS else call.user
        client = Introduced(user, host, int(port) if port.isdecimal() else 0)
        reply = await self._others.ask(broker, RequestCode.RECALL_MESSAGE, ext, client)
        told = AskedResult(reply.code, reply.remark or "", reply.ext or {}, b"", denied=False)
        _answer(call, told)


def _answer(call: Call, told: AskedResult) -> None:
    if told.done:
        call.answer(message_id=told.ext.get("msgId", ""))
    else:
        call.refuse(told.error())


def _broker_of(handle: str) -> str:
    """Return which broker has the message; empty: nobody knows, and the table says why."""
    try:
        return parse_recall_handle(handle).broker_name
    except ProtocolError:
        return ""
