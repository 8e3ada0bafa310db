"""SyncLiteSubscription: the lite topics that a client wants, told to all shards of their topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_broker.model.access.users import ANONYMOUS, Introduced
from imago_broker.processors.grpc.asking import AskedResult
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.checks import group_name, lite_topic_name, topic_name
from imago_wire.grpc.codes import SdkCode
from imago_wire.remoting.bodies.lite import (
    LiteAction,
    LiteSubscription,
    LiteSubscriptionCtlRequestBody,
    OffsetOption,
    OffsetOptionType,
)
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from imago_broker.processors.grpc.asking import TableAsker
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.rocketmq.static.static_front import OtherBrokers

LITE_NAMES_MAX = 10_000
"""Of one request."""
_ACTIONS: Final = tuple(LiteAction)
_OPTIONS: Final = {
    "policy": OffsetOptionType.POLICY,
    "offset": OffsetOptionType.OFFSET,
    "tail_n": OffsetOptionType.TAIL_N,
    "timestamp": OffsetOptionType.TIMESTAMP,
}


class LiteCalls:
    """SDKs tell their access point alone: it tells the others."""

    def __init__(
        self,
        asker: TableAsker,
        others: OtherBrokers,
        loop: asyncio.AbstractEventLoop,
        brokers_of: Callable[[str], Iterable[str]],
        type_of: Callable[[str], str],
        *,
        broker_name: str,
    ) -> None:
        """`brokers_of`: which brokers have a topic; `type_of`: what it takes."""
        self._asker, self._others, self._loop = asker, others, loop
        self._brokers_of, self._type_of, self._broker_name = brokers_of, type_of, broker_name
        self._tasks: set[asyncio.Task[None]] = set()

    def sync(self, call: Call, request: Any) -> None:
        """SyncLiteSubscription."""
        topic, group = topic_name(request.topic), group_name(request.group)
        names = list(request.lite_topic_set)
        if len(names) > LITE_NAMES_MAX or not 0 <= request.action < len(_ACTIONS):
            raise CallError(
                SdkCode.BAD_REQUEST, f"action {request.action} of {len(names)} lite topics"
            )
        if self._type_of(topic) != "LITE":
            raise CallError(
                SdkCode.BAD_REQUEST,
                f"{topic} has no lite topics: set the topic's attribute message.type=LITE",
            )
        told = LiteSubscription(
            action=_ACTIONS[request.action],
            client_id=call.client_id,
            group=group,
            topic=topic,
            lite_topic_set=frozenset(map(lite_topic_name, names)),
            offset_option=lite_option(request),
            version=request.version,
        )
        body = LiteSubscriptionCtlRequestBody(subscription_set=(told,)).encode()
        brokers = set(self._brokers_of(topic))
        syncing = _Syncing(call, len(brokers))
        for broker in brokers - {self._broker_name}:
            task = self._loop.create_task(self._tell(call, broker, body, syncing))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._broker_name in brokers:
            code = RequestCode.LITE_SUBSCRIPTION_CTL
            self._asker.ask(call, code, {}, syncing.told, body=body)

    async def _tell(self, call: Call, broker: str, body: bytes, syncing: _Syncing) -> None:
        host, _, port = call.stream.peer.rpartition(":")
        user = "" if call.user == ANONYMOUS else call.user
        client = Introduced(user, host, int(port) if port.isdecimal() else 0)
        code = RequestCode.LITE_SUBSCRIPTION_CTL
        reply = await self._others.ask(broker, code, {}, client, body=body)
        syncing.told(
            AskedResult(reply.code, reply.remark or "", reply.ext or {}, b"", denied=False)
        )


def lite_option(request: Any) -> OffsetOption | None:
    """Return where a request says that a group is to go on."""
    if not request.HasField("offset_option"):
        return None
    said = request.offset_option
    name = said.WhichOneof("content")
    return None if name is None else OffsetOption(type=_OPTIONS[name], value=getattr(said, name))


class _Syncing:
    """What all brokers say to one call; the first that refuses has its answer."""

    def __init__(self, call: Call, count: int) -> None:
        self._call, self._left = call, count

    def told(self, outcome: AskedResult) -> None:
        """Take what one says."""
        self._left -= 1
        if not outcome.done:
            self._call.refuse(outcome.error())
        elif not self._left:
            self._call.answer()
