"""Everything the RocketMQ processors stand on, put together once by the broker's assembly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from imago_broker.ports import Clock, Coordinator
    from imago_broker.service.clients import ClientRegistry
    from imago_broker.service.delay import DelayService
    from imago_broker.service.groups import GroupService
    from imago_broker.service.locks import QueueLocks
    from imago_broker.service.messages import MessageService
    from imago_broker.service.offsets import ConsumerOffsets
    from imago_broker.service.pull_hold import PullHold
    from imago_broker.service.topics import TopicService


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqIdentity:
    """How this broker calls itself towards RocketMQ clients."""

    cluster: str
    broker_name: str
    host: str
    """Advertised address: it stands in every record and message id."""
    port: int
    broker_id: int = 0
    region: str = "DefaultRegion"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqSettings:
    """Limits and switches of the RocketMQ side."""

    body_bytes_max: int = 4 << 20
    auto_create_topics: bool = True
    auto_create_groups: bool = True
    default_queues: int = 8
    """Queues of the template topic TBW102: the most that auto-creation gives."""
    trace_on: bool = True
    send_running_max: int = 10_000
    pull_running_max: int = 100_000
    query_running_max: int = 20_000
    admin_running_max: int = 10_000
    pull_hold_ms_max: int = 25_000
    """A held pull is answered by then: clients give up after 30 s."""
    bulk_messages_max: int = 10_000
    bulk_bytes_max: int = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqServices:
    """The services, as the assembly made them."""

    identity: RocketmqIdentity
    settings: RocketmqSettings
    messages: MessageService
    topics: TopicService
    offsets: ConsumerOffsets
    groups: GroupService
    clients: ClientRegistry
    locks: QueueLocks
    delay: DelayService
    hold: PullHold
    clock: Clock
    coordinator: Coordinator
