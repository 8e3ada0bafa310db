"""The asyncio client of the RocketMQ protocol: the door to producers, consumers and admin."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from imago_client.checks import check_text
from imago_client.config import ClientConfig, ConsumerConfig, ProducerConfig
from imago_client.errors import UsageError
from imago_client.naming import check_name
from imago_client.process import new_state
from imago_client.rocketmq.driver import Driver
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_client.core.consuming.following import Wanted
    from imago_client.core.sending.requesting import AwaitedReplies
    from imago_client.core.sending.transacting import Decision
    from imago_client.observing.watch import ClientCounters
    from imago_client.received import ReceivedMessage
    from imago_client.rocketmq.admin import Admin
    from imago_client.rocketmq.connection import Connection
    from imago_client.rocketmq.forwarder import Forwarder
    from imago_client.rocketmq.pop_consumer import PopConsumer
    from imago_client.rocketmq.producer import Producer
    from imago_client.rocketmq.pull_consumer import PullConsumer
    from imago_client.rocketmq.push.handler_pool import Takes
    from imago_client.rocketmq.push.push_consumer import PushConsumer
    from imago_client.rocketmq.push.queue_reader import Listener
    from imago_client.rocketmq.push.subscriber import Subscriber
    from imago_client.rocketmq.requests import Requester
    from imago_client.rocketmq.tracing import Tracer
    from imago_client.rocketmq.transactions import TransactionProducer
    from imago_wire.remoting.command import RemotingCommand


class Client:
    """One client of a cluster: its producers and consumers share one connection per broker.

    `bootstrap` is a list of name-service addresses, `host:port[,host:port…]`, or a ClientConfig.
    Nothing is opened before the first call. Use it as `async with`, or call `close`.
    """

    def __init__(self, bootstrap: str | ClientConfig) -> None:
        self.config = ClientConfig.of(bootstrap)
        self._state = new_state(self.config)
        self._driver = Driver(self.config, self._on_request)
        self._tracer = self._new_tracer() if self.config.trace else None
        self._consumers: dict[str, PushConsumer] = {}
        self._transacting: dict[str, TransactionProducer] = {}
        self._requesters: set[Requester] = set()

    # Each part is loaded when it is used: together they cost more than what a command does.

    @cached_property
    def admin(self) -> Admin:
        """Administration of topics, groups and offsets."""
        from imago_client.rocketmq.admin import Admin

        return Admin(self._state, self._driver)

    @cached_property
    def _awaited(self) -> AwaitedReplies:
        from imago_client.core.sending.requesting import AwaitedReplies

        return AwaitedReplies()

    def _new_tracer(self) -> Tracer:
        from imago_client.rocketmq.tracing import Tracer

        return Tracer(self._state, self._driver)

    @property
    def counters(self) -> ClientCounters:
        """What this client has sent and received so far; read them as often as you like."""
        return self._state.watch.counters

    def producer(
        self, config: ProducerConfig | None = None, *, idempotent: bool = False
    ) -> Producer:
        """Return a new producer; `idempotent` turns that setting on."""
        from imago_client.rocketmq.producer import Producer

        settings = ProducerConfig.of(config)
        if idempotent:
            settings = replace(settings, idempotent=True)
        return Producer(self._state, self._driver, settings, self._tracer)

    def transaction_producer(
        self,
        group: str,
        checker: Callable[[ReceivedMessage], Awaitable[Decision]],
        config: ProducerConfig | None = None,
    ) -> TransactionProducer:
        """Return a producer whose messages are delivered once their transaction is committed.

        `checker` decides about transactions of the group that nobody ended: see
        `TransactionProducer`.
        """
        from imago_client.handlers import check_handler
        from imago_client.rocketmq.transactions import TransactionProducer

        check_name("producer group", group, characters_max=120)
        if group in self._transacting:
            raise UsageError(f"group {group!r}: this client has a producer of it already")
        check_handler(checker, "checker")
        settings = replace(ProducerConfig.of(config), group=group)
        producer = TransactionProducer(
            self._state, self._driver, settings, checker, self._forget_transactions, self._tracer
        )
        self._transacting[group] = producer
        return producer

    def forwarder(self, config: ProducerConfig | None = None) -> Forwarder:
        """Return one who sends messages of another cluster on, as they are."""
        from imago_client.rocketmq.forwarder import Forwarder

        return Forwarder(self._state, self._driver, ProducerConfig.of(config))

    def requester(self, config: ProducerConfig | None = None) -> Requester:
        """Return one who sends messages and waits for the replies of their consumers."""
        from imago_client.rocketmq.requests import Requester

        settings = ProducerConfig.of(config)
        requester = Requester(
            self._state, self._driver, settings, self._awaited, self._requesters.discard
        )
        self._requesters.add(requester)
        return requester

    def pull_consumer(self, group: str) -> PullConsumer:
        """Return a consumer that reads what the caller asks for, with the group's offsets."""
        from imago_client.rocketmq.pull_consumer import PullConsumer

        check_name("consumer group", group, characters_max=120)
        return PullConsumer(self._state, self._driver, group)

    def pop_consumer(self, group: str) -> PopConsumer:
        """Return a consumer that takes messages for a while and acknowledges each by itself."""
        from imago_client.rocketmq.pop_consumer import PopConsumer

        check_name("consumer group", group, characters_max=120)
        return PopConsumer(self._state, self._driver, group)

    def push_consumer(
        self,
        config: ConsumerConfig | str,
        topics: Wanted,
        handler: Callable[[list[ReceivedMessage]], Awaitable[None]],
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> PushConsumer:
        """Return a member of a group (its configuration, or just its name); start it to join.

        `topics`: names, or names with TAG expressions (`{"orders": "paid || sent"}`) or
        SQL92 filters over properties (`{"orders": Sql("price > 5")}`), or `re.compile` of a
        pattern: all topics whose whole name matches, also those that come later. `on_assigned`,
        `on_revoked`: `async def`, called with the queues that the member has begun, or ceased, to
        read.
        """
        settings = ConsumerConfig.of(config)
        return self._member(
            settings, topics, handler, on_assigned=on_assigned, on_revoked=on_revoked
        )

    def subscribe(
        self,
        topics: str | Wanted | None = None,
        *,
        group: str | ConsumerConfig,
        pattern: str | None = None,
        manual: bool = False,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> Subscriber:
        """Return a member of a group to iterate over: `async for message in client.subscribe(…)`.

        `topics`: one name, or as `push_consumer` takes them; `pattern` instead: all topics whose
        whole name it matches, also those that come later (`"orders-.*"`). `manual`: messages are
        consumed once they are given to `acknowledge`, not when the next one is asked for.
        """
        from imago_client.rocketmq.push.subscriber import Subscriber

        wanted = _wanted(topics, pattern)
        settings = ConsumerConfig.of(group)
        return Subscriber(
            lambda mailbox: self._member(
                settings,
                wanted,
                _pass_over,
                pool=mailbox,
                on_assigned=on_assigned,
                on_revoked=on_revoked,
            ),
            manual=manual,
        )

    def _member(
        self,
        settings: ConsumerConfig,
        topics: Wanted,
        handler: Callable[[list[ReceivedMessage]], Awaitable[None]],
        *,
        pool: Takes | None = None,
        on_assigned: Listener | None,
        on_revoked: Listener | None,
    ) -> PushConsumer:
        from imago_client.rocketmq.push.push_consumer import PushConsumer

        if settings.group in self._consumers:
            raise UsageError(f"group {settings.group!r}: this client is a member already")
        consumer = PushConsumer(
            self._state,
            self._driver,
            settings,
            topics,
            handler,
            self._remember,
            self._forget,
            self._tracer,
            pool=pool,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        self._consumers[settings.group] = consumer
        return consumer

    async def close(self) -> None:
        """Stop the consumers, wait for what was submitted, then close every connection."""
        try:
            for consumer in list(self._consumers.values()):
                await consumer.stop()
            await self._driver.submissions.ended()
            for producer in list(self._transacting.values()):
                await producer.close()
            for requester in list(self._requesters):
                await requester.close()
            if self._tracer is not None:
                await self._tracer.close()
        finally:
            await self._driver.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if hasattr(self, "_driver") and self._driver.is_open:
            _warn(
                f"unclosed client of {','.join(self.config.bootstrap)}: use `async with`, or await"
                " client.close()",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def _remember(self, consumer: PushConsumer) -> None:
        group = consumer.config.group
        if self._consumers.setdefault(group, consumer) is not consumer:
            raise UsageError(f"group {group!r}: this client is a member already")

    def _forget(self, consumer: PushConsumer) -> None:
        if self._consumers.get(consumer.config.group) is consumer:
            del self._consumers[consumer.config.group]

    def _on_request(self, connection: Connection, command: RemotingCommand) -> None:
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            connection.answer(self._awaited.arrived(command))
            return
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            from imago_client.rocketmq.server_requests import answer_request

            answer_request(connection, command, self._consumers)
            return
        from imago_client.core.sending.transacting import group_of_check

        producer = self._transacting.get(group_of_check(command))
        if producer is not None:
            producer.asked(connection.address, command)

    def _forget_transactions(self, producer: TransactionProducer) -> None:
        if self._transacting.get(producer.config.group) is producer:
            del self._transacting[producer.config.group]


def _wanted(topics: str | Wanted | None, pattern: str | None) -> Wanted:
    if pattern is None and topics is not None:
        return [topics] if isinstance(topics, str) else topics
    if topics is not None or pattern is None:
        raise UsageError("subscribe: name topics, or a pattern, and not both")
    check_text("pattern", pattern)
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(f"pattern: {pattern!r} is no regular expression: {error}") from None


async def _pass_over(_messages: list[ReceivedMessage]) -> None:
    """Take what a broker hands over for a try: a subscription has no handler for it."""
