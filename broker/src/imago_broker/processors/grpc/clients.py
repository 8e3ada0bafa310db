"""Clients: what they say of themselves over telemetry, that they live, and that they leave.

A client is known by its id and its user. Its telemetry stream is the way to it: producers and
consumers stand beside those of the remoting protocol, in the same registry, for as long as that
stream lives; what it has said of itself stays for two minutes longer, as it comes back.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from imago_broker.model.access.users import ANONYMOUS
from imago_broker.processors.grpc.calls import CallError, status
from imago_broker.processors.grpc.checks import group_name, topic_name
from imago_broker.processors.grpc.client_channel import ClientChannel
from imago_broker.processors.grpc.settings import merged_settings
from imago_broker.processors.rocketmq.needs import PUBLISH, SUBSCRIBE, of_topic
from imago_broker.service.groups.clients import CLIENT_LIFE_MS
from imago_wire.grpc import headers as heads
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import SQL, ClientType
from imago_wire.remoting.bodies.client import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from imago_wire.remoting.codes import RequestCode
from imago_wire.remoting.peer import Language

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Container

    from imago_broker.model.access.access import Need
    from imago_broker.ports import Clock
    from imago_broker.processors.grpc.asking import AskedResult, TableAsker
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.service.groups.clients import ClientRegistry
    from imago_broker.service.groups.groups import GroupService

CLIENTS_MAX = 200_000
"""Whose settings are kept."""
NAMED_MAX = 1024
"""That one client publishes or subscribes to."""
SETTINGS_BYTES_MAX = 128 << 20
"""Of all clients' settings; above it no more are taken. One user may have a quarter."""
_USERS_SHARE: Final = 4
_NAME_BYTES: Final = 128
_SUBSCRIPTION_BYTES: Final = 512
"""About what one takes beside its expression."""
GRPC_INTERNAL, GRPC_INVALID = 13, 3

_CONSUMERS = {
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
    ClientType.LITE_PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.LITE_SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}
_OF_LITE_TOPICS: Final = (ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER)


@dataclass(slots=True)
class SdkClient:
    """One client, as its settings say."""

    kind: int
    topics: tuple[str, ...]
    group: str
    subscriptions: tuple[SubscriptionData, ...]
    seen_ms: int
    channel: ClientChannel | None = None

    @property
    def size(self) -> int:
        """About how many bytes its settings take."""
        names = _SUBSCRIPTION_BYTES + _NAME_BYTES * len(self.topics)
        return names + sum(
            _SUBSCRIPTION_BYTES + len(each.sub_string) for each in self.subscriptions
        )


class ClientRenewals(Protocol):
    """What keeps messages out for clients."""

    def only_for(self, clients: Container[tuple[str, str]]) -> None:
        """Keep messages for these alone."""
        ...

    def gone(self, client: tuple[str, str]) -> None:
        """Let others have, soon, what a client had."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class SdkClients:
    """Telemetry, Heartbeat and NotifyClientTermination."""

    asker: TableAsker
    registry: ClientRegistry
    groups: GroupService
    clock: Clock
    loop: asyncio.AbstractEventLoop
    renewals: ClientRenewals
    body_bytes_max: Callable[[], int]
    may: Callable[[str, Need, str], bool]
    """Whether a user may have this from an address."""
    lite_gone: Callable[[tuple[str, str]], None] = lambda _: None
    """Told the group and id of a client of lite topics that has left."""
    _clients: dict[tuple[str, str], SdkClient] = field(default_factory=dict, init=False)
    _bytes: Counter[str] = field(default_factory=Counter, init=False)
    """By user."""

    def __post_init__(self) -> None:
        self.renewals.only_for(self._clients)

    def __len__(self) -> int:
        return len(self._clients)

    def wants_lite(self, key: tuple[str, str]) -> bool | None:
        """Whether a client reads lite topics; None: it has not said what it is."""
        client = self._clients.get(key)
        return None if client is None else client.kind in _OF_LITE_TOPICS

    def told(self, call: Call, command: Any) -> None:
        """Take one command of a telemetry stream."""
        what = command.WhichOneof("content")
        if what == "settings":
            self._settings(call, command.settings)
            return
        client = self._clients.get(call.key)
        channel = client.channel if client is not None else None
        if channel is None:
            return
        if what == "thread_stack_trace":
            found = command.thread_stack_trace
            channel.traced(found.nonce, found.thread_stack_trace)
        elif what == "verify_message_result":
            channel.verified(command.verify_message_result.nonce, command.status.code)

    def ended(self, call: Call) -> None:
        """A telemetry stream is over; its client may open another one."""
        client = self._clients.get(call.key)
        if client is None or client.channel is None or client.channel.stream is not call.stream:
            return
        self._leave(client)
        client.seen_ms = self.clock.epoch_ms()

    def heartbeat(self, call: Call, request: Any) -> None:
        """Heartbeat: the client lives."""
        client = self._clients.get(call.key)
        if client is None:
            raise CallError(
                SdkCode.UNRECOGNIZED_CLIENT_TYPE, "no telemetry has said what this client is"
            )
        if client.kind not in (ClientType.PRODUCER, *_CONSUMERS):
            raise CallError(SdkCode.UNRECOGNIZED_CLIENT_TYPE, f"clients of type {client.kind}")
        if client.kind != ClientType.PRODUCER:
            group_name(request.group)
        client.seen_ms = self.clock.epoch_ms()
        self._register(call, client, lambda error: _settle(call, error))

    def terminate(self, call: Call, request: Any) -> None:
        """NotifyClientTermination: the client leaves at once."""
        if request.HasField("group") and request.group.name:
            group_name(request.group)
        if call.key not in self._clients:
            raise CallError(
                SdkCode.UNRECOGNIZED_CLIENT_TYPE, "no telemetry has said what this client is"
            )
        self._forget(call.key)
        call.answer()

    def tick(self) -> None:
        """Forget clients that have not come back. Call it every five seconds."""
        now_ms = self.clock.epoch_ms()
        for key, client in list(self._clients.items()):
            if now_ms - client.seen_ms > CLIENT_LIFE_MS:
                self._forget(key)

    def reconnect(self) -> None:
        """Have all clients ask for routes again: this broker leads no more, or closes."""
        for client in self._clients.values():
            if client.channel is not None:
                client.channel.tell_reconnect()

    def _settings(self, call: Call, told: Any) -> None:
        kind = told.WhichOneof("content")
        if kind is None:
            call.stream.fail(GRPC_INVALID, "settings of neither a producer nor a consumer")
            return
        if call.language is Language.UNKNOWN:
            call.stream.fail(GRPC_INVALID, "x-mq-language names no language")
            return
        try:
            client = self._read(told, kind)
        except CallError as error:
            text = f"process client telemetryCommand failed. {error}"
            call.stream.fail(GRPC_INVALID, text)
            return
        code, refusal = SdkCode.UNAUTHORIZED, self._refusal(call, client)
        if refusal is None and not self._take_place(call, client):
            code = SdkCode.TOO_MANY_REQUESTS
            refusal = "too many bytes of settings of all clients, or of this user's: close some"
        if refusal is not None:
            ClientChannel(call.stream, call.user, self.loop).tell(status=status(code, refusal))
            call.stream.send(b"", last=True)
            return
        self._register(call, client, lambda error: self._registered(call, client, told, error))

    def _registered(
        self, call: Call, client: SdkClient, told: Any, error: CallError | None
    ) -> None:
        """Answer settings; nothing is kept of a client that may not be there."""
        channel = client.channel
        if channel is None:
            return
        if error is not None:
            channel.tell(status=status(error.code, str(error)))
            call.stream.send(b"", last=True)
            if self._clients.get(call.key) is client:
                self._forget(call.key)
            return
        group = self.groups.get(client.group) if client.group else None
        channel.tell(
            status=status(SdkCode.OK),
            settings=merged_settings(told, group, self.body_bytes_max()),
        )

    def _read(self, told: Any, kind: str) -> SdkClient:
        """Return what settings say; CallError: a name in them is none."""
        now_ms = self.clock.epoch_ms()
        if kind == "publishing":
            _require_few(len(told.publishing.topics))
            topics = tuple(dict.fromkeys(map(topic_name, told.publishing.topics)))
            return SdkClient(ClientType.PRODUCER, topics, "", (), now_ms)
        said = told.subscription
        _require_few(len(said.subscriptions))
        found = {
            topic: SubscriptionData(
                topic=topic,
                sub_string=each.expression.expression or "*",
                expression_type="SQL92" if each.expression.type == SQL else "TAG",
                sub_version=now_ms,
            )
            for topic, each in [(topic_name(each.topic), each) for each in said.subscriptions]
        }
        group = group_name(said.group)
        return SdkClient(told.client_type, (), group, tuple(found.values()), now_ms)

    def _refusal(self, call: Call, client: SdkClient) -> str | None:
        """Return why a client may not be what it says, or None."""
        wanted = [of_topic(topic, PUBLISH) for topic in client.topics]
        wanted += [of_topic(each.topic, SUBSCRIBE) for each in client.subscriptions]
        for need in wanted:
            if not self.may(call.user, need, call.stream.address):
                return f"User:{call.user} has no permission to access {need.kind}:{need.name}"
        return None

    def _take_place(self, call: Call, client: SdkClient) -> bool:
        """Keep a client in place of what was said of it before; False: there is no room."""
        before = self._clients.get(call.key)
        more = client.size - (0 if before is None else before.size)
        if more > 0 and not self._has_room(call.user, more):
            return False
        channel = None
        if before is not None and before.channel is not None:
            channel = before.channel
            if channel.stream is not call.stream or before.group != client.group:
                self._leave(before)
                channel = None
        client.channel = channel or ClientChannel(call.stream, call.user, self.loop)
        if client.group:
            group = self.groups.get(client.group)
            in_order = group is not None and group.consume_message_orderly
            version = call.headers.get(heads.CLIENT_VERSION, "")[:_NAME_BYTES]
            client.channel.describe(_running(client, version, in_order=in_order))
        while len(self._clients) >= CLIENTS_MAX and before is None:
            self._forget(next(iter(self._clients)))
        self._clients[call.key] = client
        self._bytes[call.user] += more
        return True

    def _has_room(self, user: str, more: int) -> bool:
        whole = SETTINGS_BYTES_MAX
        of_user = whole // _USERS_SHARE if user not in ("", ANONYMOUS) else whole
        return self._bytes[user] + more <= of_user and self._bytes.total() + more <= whole

    def _forget(self, key: tuple[str, str]) -> None:
        client = self._clients.pop(key)
        self._bytes[key[0]] -= client.size
        if self._bytes[key[0]] <= 0:
            del self._bytes[key[0]]
        self._leave(client)
        self.renewals.gone(key)
        if client.kind in _OF_LITE_TOPICS:
            self.lite_gone((client.group, key[1]))

    def _register(
        self, call: Call, client: SdkClient, done: Callable[[CallError | None], None]
    ) -> None:
        """Note a client where those of the remoting protocol are."""
        if client.channel is None:
            done(None)  # it opens another stream, and says the same over that
            return
        consume_type = _CONSUMERS.get(ClientType(client.kind)) if client.group else None
        consumers: tuple[ConsumerData, ...] = ()
        if client.group:
            consumers = (
                ConsumerData(
                    group_name=client.group,
                    consume_type=consume_type or ConsumeType.CONSUME_POP,
                    subscription_data_set=client.subscriptions,
                ),
            )
        data = HeartbeatData(
            client_id=call.client_id,
            consumer_data_set=consumers,
            producer_data_set=tuple(ProducerData(group_name=topic) for topic in client.topics),
        )

        def registered(outcome: AskedResult) -> None:
            done(None if outcome.done else outcome.error())

        self.asker.ask(
            call,
            RequestCode.HEART_BEAT,
            {},
            registered,
            body=data.encode(),
            channel=client.channel,
        )

    def _leave(self, client: SdkClient) -> None:
        channel, client.channel = client.channel, None
        if channel is not None:
            channel.gone()
            self.registry.closed(channel)


def _running(client: SdkClient, version: str, *, in_order: bool) -> dict[str, Any]:
    """Return what RocketMQ's tools are told of a consumer, as its own clients tell it."""
    return {
        "properties": {
            "PROP_CONSUME_TYPE": _CONSUMERS.get(
                ClientType(client.kind), ConsumeType.CONSUME_POP
            ).value,
            "PROP_CONSUMEORDERLY": str(in_order).lower(),
            "PROP_CONSUMER_START_TIMESTAMP": str(client.seen_ms),
            "PROP_CLIENT_VERSION": version,
        },
        "subscriptionSet": [json.loads(each.encode()) for each in client.subscriptions],
        "mqTable": {},
        "mqPopTable": {},
        "statusTable": {},
    }


def _require_few(count: int) -> None:
    if count > NAMED_MAX:
        raise CallError(SdkCode.BAD_REQUEST, f"{count} topics of one client, at most {NAMED_MAX}")


def _settle(call: Call, error: CallError | None) -> None:
    if error is None:
        call.answer()
    else:
        call.refuse(error)
