"""What the work among shards reads and changes, handed over by the assembly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from imago_broker.config import BrokerConfig
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.ports import Clock, MetaqConsumers, Registry, ShardControl, SharedMarks
    from imago_broker.service.access.access import AccessService
    from imago_broker.service.groups.groups import GroupService
    from imago_broker.service.groups.offsets import ConsumerOffsets
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.topics.topics import TopicService
    from imago_log import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardServices:
    """Everything that one shard needs to work with the others. Callables are cheap and answer for
    this moment."""

    current_config: Callable[[], BrokerConfig]
    topics: TopicService
    groups: GroupService
    access: AccessService
    offsets: ConsumerOffsets
    metaq_transactions: MetaqTransactions
    store: MessageStore
    coordinator: Registry
    marks: SharedMarks
    metaq_consumers: MetaqConsumers
    clock: Clock
    peer_tls: Callable[[], ssl.SSLContext | None]
    """With what the admin ports of other brokers are asked; None: without TLS."""
    control: ShardControl
    subscribed: Callable[[], Mapping[str, set[str]]]
    """By topic the groups with a connected consumer that wants it, but those that broadcast."""
    clients_return_ms: Callable[[], int]
    """How long clients may take still to come back to this master; 0: all are known."""
    on_topic_made: list[Callable[[TopicConfig, str], None]]
    """Told each topic that a send has made here, and the template that it is made of."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force, dynamic changes included."""
        return self.current_config()

    @property
    def shard_epoch(self) -> int:
        """Of the mastership that the registry knows of."""
        state = self.coordinator.view().states.get(self.config.broker.shard)
        return state.epoch if state else self.control.shard_status().epoch
