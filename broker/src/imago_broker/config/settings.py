"""A broker's configuration: all its sections, and what follows from several of them.

The keys stand in `sections` and `cluster_sections`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.config.sections import relations
from imago_broker.config.sections.backup_section import BackupSection
from imago_broker.config.sections.client_listeners import ListenerSetting, parse_listeners
from imago_broker.config.sections.cluster_sections import (
    AcknowledgementSection,
    ReplicationSection,
    ZookeeperSection,
)
from imago_broker.config.sections.metaq_section import MetaqSection
from imago_broker.config.sections.section import LEVELS, ConfigError, Scalar, Value, is_pattern
from imago_broker.config.sections.sections import (
    AdminSection,
    BrokerSection,
    LimitsSection,
    LogSection,
    NamesrvSection,
    RocketmqSection,
    StoreSection,
)
from imago_broker.config.sections.security_sections import (
    AclSection,
    SecuritySection,
    TlsSection,
    TokenReviewSection,
)
from imago_broker.config.sections.tier_section import TierSection
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LEVELS", "BrokerConfig", "ConfigError", "Scalar", "Value"]


_SDK_PORTS = {0: 0, 10911: 8081}
"""By RocketMQ's port: where SDKs are served if nothing else is said. Both are the original's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """All sections. Each part of the broker receives its own, never the whole."""

    broker: BrokerSection = field(default_factory=BrokerSection)
    metaq: MetaqSection = field(default_factory=MetaqSection)
    rocketmq: RocketmqSection = field(default_factory=RocketmqSection)
    namesrv: NamesrvSection = field(default_factory=NamesrvSection)
    admin: AdminSection = field(default_factory=AdminSection)
    tls: TlsSection = field(default_factory=TlsSection)
    acl: AclSection = field(default_factory=AclSection)
    token_review: TokenReviewSection = field(default_factory=TokenReviewSection)
    security: SecuritySection = field(default_factory=SecuritySection)
    replication: ReplicationSection = field(default_factory=ReplicationSection)
    zookeeper: ZookeeperSection = field(default_factory=ZookeeperSection)
    store: StoreSection = field(default_factory=StoreSection)
    tier: TierSection = field(default_factory=TierSection)
    acknowledgement: AcknowledgementSection = field(default_factory=AcknowledgementSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    log: LogSection = field(default_factory=LogSection)
    backup: BackupSection = field(default_factory=BackupSection)
    topics: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    """Topics to create at start when missing, and patterns of topics: name to settings."""

    def __post_init__(self) -> None:
        if problem := relations.problem(self):
            raise WrongError(problem)

    @property
    def patterns(self) -> dict[str, Mapping[str, Scalar]]:
        """What MetaQ's puts may make: pattern to the settings of such topics."""
        return {name: self.topics.get(name, {}) for name in self.metaq.topic_patterns}

    @property
    def declared(self) -> dict[str, Mapping[str, Scalar]]:
        """The topics to be made, without the patterns."""
        return {name: each for name, each in self.topics.items() if not is_pattern(name)}

    @property
    def acknowledgement_level(self) -> str:
        """Level of topics that name none."""
        return self.acknowledgement.level or (LEVELS[2] if self.broker.replicas > 1 else LEVELS[0])

    @property
    def min_in_sync(self) -> int:
        """In-sync members below which puts that wait for replicas are refused."""
        return self.replication.min_in_sync or min(2, self.broker.replicas)

    @property
    def replicates(self) -> bool:
        """Whether other members may copy this one's log."""
        return self.broker.replicas > 1 or self.replication.open

    @property
    def replication_port(self) -> int:
        """Port of the other members; 0: any free one."""
        replication, rocketmq = self.replication.port, self.rocketmq.port
        return replication if replication >= 0 else (rocketmq + 1 if rocketmq else 0)

    @property
    def metaq_broker_id(self) -> int:
        """MetaQ's number of this shard."""
        return self.metaq.broker_id_base + self.broker.shard

    @property
    def fast_port(self) -> int:
        """Port of RocketMQ's second listener; 0: any free one."""
        rocketmq = self.rocketmq
        return rocketmq.fast_port if rocketmq.fast_port >= 0 else max(0, rocketmq.port - 2)

    @property
    def grpc_port(self) -> int:
        """Port of RocketMQ 5's SDKs; 0: any free one, -1: none."""
        rocketmq = self.rocketmq
        if not (rocketmq.enabled and rocketmq.grpc_enabled):
            return -1
        if rocketmq.grpc_port >= 0:
            return rocketmq.grpc_port
        return _SDK_PORTS.get(rocketmq.port, -1)

    @property
    def listeners(self) -> tuple[ListenerSetting, ...]:
        """Those besides the ports of the sections."""
        return parse_listeners(self.broker.listeners)

    @property
    def broker_name(self) -> str:
        """RocketMQ's name of this shard."""
        return f"{self.broker.name_prefix}shard-{self.broker.shard}"
