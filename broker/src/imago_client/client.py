"""The asyncio client of the RocketMQ protocol: the door to producers, consumers and admin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from imago_client.admin import Admin
from imago_client.config import ClientConfig, ConsumerConfig, ProducerConfig
from imago_client.core.requesting import AwaitedReplies
from imago_client.core.subscriptions import ALL
from imago_client.core.transacting import group_of_check
from imago_client.driver import Driver
from imago_client.errors import UsageError
from imago_client.handlers import check_handler
from imago_client.messages import check_name
from imago_client.pop_consumer import PopConsumer
from imago_client.process import new_state
from imago_client.producer import Producer
from imago_client.pull_consumer import PullConsumer
from imago_client.push_consumer import PushConsumer
from imago_client.requests import Requester
from imago_client.server_requests import answer_request
from imago_client.tracing import Tracer
from imago_client.transactions import TransactionProducer
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from imago_client.connection import Connection
    from imago_client.core.transacting import Decision
    from imago_client.received import ReceivedMessage
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
        self._tracer = Tracer(self._state, self._driver) if self.config.trace else None
        self._consumers: dict[str, PushConsumer] = {}
        self._transacting: dict[str, TransactionProducer] = {}
        self._requesters: set[Requester] = set()
        self._awaited = AwaitedReplies()
        self.admin = Admin(self._state, self._driver)

    def producer(
        self, config: ProducerConfig | None = None, *, idempotent: bool = False
    ) -> Producer:
        """Return a new producer; `idempotent` turns that setting on."""
        settings = config or ProducerConfig()
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
        if group in self._transacting:
            raise UsageError(f"group {group!r}: this client has a producer of it already")
        check_handler(checker, "checker")
        settings = replace(config or ProducerConfig(), group=group)
        producer = TransactionProducer(
            self._state, self._driver, settings, checker, self._forget_transactions, self._tracer
        )
        self._transacting[group] = producer
        return producer

    def requester(self, config: ProducerConfig | None = None) -> Requester:
        """Return one who sends messages and waits for the replies of their consumers."""
        settings = config or ProducerConfig()
        requester = Requester(
            self._state, self._driver, settings, self._awaited, self._requesters.discard
        )
        self._requesters.add(requester)
        return requester

    def pull_consumer(self, group: str) -> PullConsumer:
        """Return a consumer that reads what the caller asks for, with the group's offsets."""
        return PullConsumer(self._state, self._driver, group)

    def pop_consumer(self, group: str) -> PopConsumer:
        """Return a consumer that takes messages for a while and acknowledges each by itself."""
        check_name("consumer group", group, characters_max=120)
        return PopConsumer(self._state, self._driver, group)

    def push_consumer(
        self,
        config: ConsumerConfig | str,
        topics: Mapping[str, str] | Sequence[str],
        handler: Callable[[Sequence[ReceivedMessage]], Awaitable[None]],
    ) -> PushConsumer:
        """Return a member of a group (its configuration, or just its name); start it to join.

        `topics`: names, or names with TAG expressions (`{"orders": "paid || sent"}`) or
        SQL92 filters over properties (`{"orders": Sql("price > 5")}`).
        """
        settings = ConsumerConfig(group=config) if isinstance(config, str) else config
        wanted = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, ALL)
        if settings.group in self._consumers:
            raise UsageError(f"group {settings.group!r}: this client is a member already")
        consumer = PushConsumer(
            self._state,
            self._driver,
            settings,
            wanted,
            handler,
            self._remember,
            self._forget,
            self._tracer,
        )
        self._consumers[settings.group] = consumer
        return consumer

    async def close(self) -> None:
        """Stop the consumers, then close every connection."""
        try:
            for consumer in list(self._consumers.values()):
                await consumer.stop()
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

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
            answer_request(connection, command, self._consumers)
            return
        producer = self._transacting.get(group_of_check(command))
        if producer is not None:
            producer.asked(connection.address, command)

    def _forget_transactions(self, producer: TransactionProducer) -> None:
        if self._transacting.get(producer.config.group) is producer:
            del self._transacting[producer.config.group]
