"""The blocking client of the RocketMQ protocol."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from imago_client.blocking.rocketmq.driver import BlockingDriver
from imago_client.config import ClientConfig, ConsumerConfig, ProducerConfig
from imago_client.errors import UsageError
from imago_client.naming import check_name
from imago_client.process import new_state
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.blocking.rocketmq.admin import Admin
    from imago_client.blocking.rocketmq.group import GroupConsumer
    from imago_client.blocking.rocketmq.pipelines import PipelineRun
    from imago_client.blocking.rocketmq.pop_consumer import PopConsumer
    from imago_client.blocking.rocketmq.producer import Producer
    from imago_client.blocking.rocketmq.pull_consumer import PullConsumer
    from imago_client.blocking.rocketmq.requests import Requester
    from imago_client.blocking.rocketmq.transactions import TransactionProducer
    from imago_client.core.consuming.following import Wanted
    from imago_client.core.sending.requesting import AwaitedReplies
    from imago_client.core.sending.transacting import Decision
    from imago_client.message_queue import MessageQueue
    from imago_client.observing.watch import ClientCounters
    from imago_client.received import ReceivedMessage
    from imago_wire.remoting.command import RemotingCommand


class Client:
    """One client of a cluster; see `imago_client.Client` for what the parts do."""

    def __init__(self, bootstrap: str | ClientConfig) -> None:
        self.config = ClientConfig.of(bootstrap)
        if self.config.trace:
            raise UsageError("trace: only the asyncio client traces, imago_client.Client")
        self._state = new_state(self.config)
        self._driver = BlockingDriver(self.config, self._on_request)
        self._consumers: dict[str, GroupConsumer] = {}
        self._transacting: dict[str, TransactionProducer] = {}

    # Each part is loaded when it is used: together they cost more than what a command does.

    @cached_property
    def admin(self) -> Admin:
        """Administration of topics, groups and offsets."""
        from imago_client.blocking.rocketmq.admin import Admin

        return Admin(self._state, self._driver)

    @cached_property
    def _awaited(self) -> AwaitedReplies:
        from imago_client.core.sending.requesting import AwaitedReplies

        return AwaitedReplies()

    @property
    def counters(self) -> ClientCounters:
        """What this client has sent and received so far; read them as often as you like."""
        return self._state.watch.counters

    def producer(
        self, config: ProducerConfig | None = None, *, idempotent: bool = False
    ) -> Producer:
        """Return a new producer; `idempotent` turns that setting on."""
        from imago_client.blocking.rocketmq.producer import Producer

        settings = ProducerConfig.of(config)
        if idempotent:
            settings = replace(settings, idempotent=True)
        return Producer(self._state, self._driver, settings)

    def transaction_producer(
        self,
        group: str,
        checker: Callable[[ReceivedMessage], Decision],
        config: ProducerConfig | None = None,
    ) -> TransactionProducer:
        """Return a producer whose messages are delivered once their transaction is committed.

        `checker` decides about transactions of the group that nobody ended, while `poll` runs:
        see `TransactionProducer`.
        """
        from imago_client.blocking.rocketmq.transactions import TransactionProducer

        check_name("producer group", group, characters_max=120)
        if group in self._transacting:
            raise UsageError(f"group {group!r}: this client has a producer of it already")
        settings = replace(ProducerConfig.of(config), group=group)
        producer = TransactionProducer(
            self._state, self._driver, settings, checker, self._forget_transactions
        )
        self._transacting[group] = producer
        return producer

    def requester(self, config: ProducerConfig | None = None) -> Requester:
        """Return one who sends messages and waits for the replies of their consumers."""
        from imago_client.blocking.rocketmq.requests import Requester

        return Requester(self._state, self._driver, ProducerConfig.of(config), self._awaited)

    def pull_consumer(self, group: str) -> PullConsumer:
        """Return a consumer that reads what the caller asks for, with the group's offsets."""
        from imago_client.blocking.rocketmq.pull_consumer import PullConsumer

        check_name("consumer group", group, characters_max=120)
        return PullConsumer(self._state, self._driver, group)

    def pop_consumer(self, group: str) -> PopConsumer:
        """Return a consumer that takes messages for a while and acknowledges each by itself."""
        from imago_client.blocking.rocketmq.pop_consumer import PopConsumer

        check_name("consumer group", group, characters_max=120)
        return PopConsumer(self._state, self._driver, group)

    def pipeline_run(self, pipeline: str, epoch: int) -> PipelineRun:
        """Return one run of a pipeline, which its starter has allowed under this epoch."""
        from imago_client.blocking.rocketmq.pipelines import PipelineRun

        return PipelineRun(self._state, self._driver, pipeline, epoch)

    def group_consumer(
        self,
        config: ConsumerConfig | str,
        topics: Wanted,
        *,
        on_assigned: Callable[[tuple[MessageQueue, ...]], object] | None = None,
        on_revoked: Callable[[tuple[MessageQueue, ...]], object] | None = None,
    ) -> GroupConsumer:
        """Return a member of a group that shares the topics' queues; poll it to read.

        `topics`: names, or names with TAG expressions (`{"orders": "paid || sent"}`) or
        SQL92 filters over properties (`{"orders": Sql("price > 5")}`), or `re.compile` of a
        pattern: all topics whose whole name matches, also those that come later. `on_assigned`,
        `on_revoked`: called within `poll` and `close` with the queues that the member has begun, or
        ceased, to read.
        """
        from imago_client.blocking.rocketmq.group import GroupConsumer

        settings = ConsumerConfig.of(config)
        if settings.group in self._consumers:
            raise UsageError(f"group {settings.group!r}: this client is a member already")
        consumer = GroupConsumer(
            self._state,
            self._driver,
            settings,
            topics,
            self._forget,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
        )
        self._consumers[settings.group] = consumer
        return consumer

    def close(self) -> None:
        """Leave the groups, then close every connection."""
        for consumer in list(self._consumers.values()):
            consumer.close()
        for producer in list(self._transacting.values()):
            producer.close()
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        if hasattr(self, "_driver") and self._driver.is_open:
            _warn(
                f"unclosed client of {','.join(self.config.bootstrap)}: use `with`, or call close",
                ResourceWarning,
                source=self,
                stacklevel=2,
            )

    def _forget(self, consumer: GroupConsumer) -> None:
        self._consumers.pop(consumer.config.group, None)

    def _forget_transactions(self, producer: TransactionProducer) -> None:
        if self._transacting.get(producer.config.group) is producer:
            del self._transacting[producer.config.group]

    def _on_request(self, address: str, command: RemotingCommand) -> RemotingCommand | None:
        """Take replies, note what asks for work at the next poll, and pass over all else."""
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return self._awaited.arrived(command)
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            from imago_client.core.sending.transacting import group_of_check

            producer = self._transacting.get(group_of_check(command))
            if producer is not None:
                producer.asked(address, command)
            return None
        consumer = self._consumers.get(command.ext.get("consumerGroup", ""))
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and consumer is not None:
            consumer.rebalance_soon()
        return None
