"""The metrics of a broker: name, help and where each is read from when Prometheus asks.

Those of its shard are in `shard_metrics`, of ports in `port_metrics`, of consumer groups in
`group_metrics`, of what topics took and groups were given in `usage_metrics`, of features in their
folders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.app.metrics.group_metrics import group_samples
from imago_broker.app.metrics.port_metrics import port_samples
from imago_broker.app.metrics.quota_metrics import quota_samples
from imago_broker.app.metrics.shard_metrics import shard_samples
from imago_broker.app.metrics.usage_metrics import usage_samples
from imago_broker.config.sections.relations import is_open
from imago_broker.metrics import Sample, counter, gauge, histogram, longest, metaq_samples
from imago_broker.model.registry.cluster import RegistryConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app.core_services import CoreServices
    from imago_broker.app.member.hindrances import Hindrances
    from imago_broker.app.member.shard_member import ShardMember
    from imago_broker.app.ports.listeners import Ports
    from imago_broker.config import BrokerConfig
    from imago_broker.metrics import BrokerCollector, MetaqCounters
    from imago_broker.ports import Registry
    from imago_broker.processors.rocketmq.assembly import DeliveryParts, RocketmqAssembly
    from imago_broker.service.access.access import AccessService
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.role import RoleState
    from imago_log.lifecycle.scrubbing import ScrubCounts
    from imago_log.results import StoreHealth
    from imago_log.store import MessageStore


def add_metrics(
    collector: BrokerCollector,
    *,
    config: BrokerConfig,
    members: Callable[[], int],
    core: CoreServices,
    registry: Registry,
    role: RoleState,
    ports: Ports,
    rocketmq: RocketmqAssembly,
    metaq_counters: MetaqCounters,
    health: Callable[[], StoreHealth],
    refused: Callable[[], Hindrances],
    member: ShardMember | None,
) -> None:
    """Have the collector give out the samples of all parts.

    `members`: how many the shard is to have now.
    """
    store = core.messages.store
    collector.add(
        [
            *_log(store, health, refused),
            *_shard(config.broker.shard, members, registry, role),
            *_puts(core),
            *port_samples(ports),
            *_access(config, core.access),
            *_rocketmq(rocketmq.delivery),
            *(sample for feature in rocketmq.features for sample in feature.samples),
            *metaq_samples(metaq_counters),
            *_metaq_transactions(core.metaq_transactions),
        ]
    )
    if member is not None:
        callers = ports.replication.refused
        collector.add_source(lambda: shard_samples(member, role, callers))
    collector.add_source(lambda: group_samples(role, core.offsets, store))
    collector.add_source(lambda: quota_samples(core.quotas))
    collector.add_source(lambda: usage_samples(rocketmq.delivery.usage))


def _log(
    store: MessageStore, health: Callable[[], StoreHealth], refused: Callable[[], Hindrances]
) -> list[Sample]:
    damaged = store.damaged_ranges

    def scrubbed() -> ScrubCounts:
        return store.components.scrubber.counts

    return [
        gauge(
            "log_start_offset",
            "Log offset of the oldest byte that the log keeps.",
            lambda: store.log_start,
        ),
        gauge(
            "log_end_offset",
            "Log offset behind the newest record of the log.",
            lambda: store.log_end,
        ),
        gauge(
            "log_durable_offset",
            "Log offset below which the log is synced to the disk.",
            lambda: store.durable_end,
        ),
        gauge(
            "log_visible_offset",
            "Log offset below which readers are given messages: the high watermark.",
            lambda: store.high_watermark,
        ),
        gauge(
            "log_epoch",
            "Highest epoch of a mastership that this broker has seen.",
            lambda: store.epoch_seen,
        ),
        gauge(
            "log_damaged_ranges",
            "Parts of the log that are out of service for damage.",
            lambda: len(damaged()),
        ),
        gauge(
            "log_damaged_bytes",
            "Bytes of the log that are out of service for damage.",
            lambda: sum(each.size for each in damaged()),
        ),
        counter(
            "log_skipped",
            "Messages lost in damage of the log that readers were led past.",
            lambda: store.components.storage.damage.skipped,
        ),
        counter(
            "log_forced_messages",
            "Messages deleted for want of room before they had expired.",
            lambda: store.forced.counts.messages,
        ),
        counter(
            "log_forced_bytes",
            "Bytes of the log deleted for want of room before they had expired.",
            lambda: store.forced.counts.bytes,
        ),
        counter(
            "log_scrubbed_bytes",
            "Bytes of the log verified in the background.",
            lambda: scrubbed().bytes_verified,
        ),
        counter(
            "log_scrubs",
            "Times that the whole log was verified in the background.",
            lambda: scrubbed().passes,
        ),
        counter(
            "views_mended",
            "Wrong units, key entries and MetaQ files that were put right from the log.",
            lambda: scrubbed().views_mended,
        ),
        gauge(
            "disk_used_ratio",
            "Used part of the disk with the log, 0 to 1.",
            lambda: health().disk_used_ratio,
        ),
        gauge(
            "writable",
            "1 while puts to the shard are accepted, as far as this broker knows.",
            lambda: not refused().puts,
        ),
        gauge(
            "readable",
            "1 while messages of the shard are given to readers, as far as this broker knows.",
            lambda: not refused().gets,
        ),
    ]


def _shard(
    shard: int, members: Callable[[], int], registry: Registry, role: RoleState
) -> list[Sample]:
    def in_sync() -> int:
        state = registry.view().states.get(shard)
        return len(state.in_sync) if state else 1

    return [
        gauge("shard_leads", "1 while this broker is the master of its shard.", lambda: role.leads),
        gauge("shard_in_sync", "Members of the shard that are in sync with its master.", in_sync),
        gauge("shard_replicas", "Members that the shard is to have.", members),
        gauge(
            "shard_members",
            "Members of the shard that are registered now.",
            lambda: len(registry.view().members(shard)),
        ),
        gauge(
            "registry_connected",
            "1 while the registry answers and our registration exists.",
            lambda: registry.state is RegistryConnection.CONNECTED,
        ),
        gauge(
            "registry_refused_nodes",
            "Registry nodes whose content cannot be understood; their last good content counts.",
            lambda: len(registry.view().refused),
        ),
    ]


def _puts(core: CoreServices) -> list[Sample]:
    puts, waiting = core.messages, core.messages.acknowledgements
    times = puts.append_times
    return [
        counter("messages_stored", "Messages appended to the log.", lambda: puts.appended),
        counter(
            "appends",
            "Writes to the log, one for all puts of a turn of the event loop.",
            lambda: puts.appends,
        ),
        counter(
            "put_timeouts",
            "Puts that did not reach their acknowledgement level in time.",
            lambda: waiting.timeouts,
        ),
        counter(
            "puts_failed",
            "Messages that were refused or could not be appended.",
            lambda: puts.failed,
        ),
        counter(
            "appended_bytes",
            "Bytes of the log taken by messages that were put.",
            lambda: puts.appended_bytes,
        ),
        histogram("append_seconds", "How long a message's append took.", times.below),
        *longest("append", "Longest append to the log.", lambda: times.max_ns / 1e9),
        gauge(
            "append_ms_p99",
            "Milliseconds within which 99 of 100 messages were appended; use imago_append_seconds.",
            lambda: times.percentile(0.99),
        ),
        gauge(
            "unacknowledged_bytes",
            "Bytes of messages that are appended and not yet acknowledged.",
            lambda: waiting.bytes_waiting,
        ),
        gauge("topics", "Topics of this shard.", lambda: len(core.topics.all())),
        gauge(
            "light_queues",
            "Light queues (RocketMQ's LMQ) of this shard.",
            lambda: len(core.messages.light),
        ),
        gauge("groups", "Consumer groups of this shard.", lambda: len(core.groups.all())),
    ]


def _access(config: BrokerConfig, access: AccessService) -> list[Sample]:
    return [
        gauge(
            "access_open",
            "1 while anyone who reaches the ports from other machines may do everything.",
            lambda: is_open(config),
        ),
        gauge("access_users", "Users that access control knows.", lambda: len(access.users)),
        counter(
            "access_denied",
            "Requests that access control has refused.",
            lambda: access.denials.count,
        ),
        counter(
            "access_would_be_denied",
            "Requests that were served, and would be refused without acl.audit.",
            lambda: access.denials.audited,
        ),
    ]


def _rocketmq(delivery: DeliveryParts) -> list[Sample]:
    traffic, hold = delivery.traffic, delivery.hold
    return [
        counter(
            "rocketmq_messages_out",
            "Messages that RocketMQ clients have pulled.",
            lambda: traffic.messages,
        ),
        counter(
            "rocketmq_bytes_out",
            "Bytes of messages that RocketMQ clients have pulled.",
            lambda: traffic.bytes,
        ),
        counter(
            "rocketmq_reads_found",
            "Pulls of RocketMQ clients that found messages.",
            lambda: traffic.found,
        ),
        counter(
            "rocketmq_reads_missed",
            "Pulls of RocketMQ clients that found no message.",
            lambda: traffic.missed,
        ),
        gauge(
            "rocketmq_pulls_held",
            "Pulls of RocketMQ clients that wait for messages.",
            lambda: len(hold),
        ),
        *longest(
            "rocketmq_read",
            "Longest read for a pull of a RocketMQ client.",
            lambda: traffic.read_ns_max / 1e9,
        ),
    ]


def _metaq_transactions(transactions: MetaqTransactions) -> list[Sample]:
    counts = transactions.counts
    return [
        gauge(
            "metaq_transactions_open",
            "MetaQ: transactions open or prepared.",
            lambda: transactions.open.count,
        ),
        gauge(
            "metaq_transactions_bytes",
            "MetaQ: bytes of open transactions in memory.",
            lambda: transactions.open.total_bytes,
        ),
        gauge(
            "metaq_transactions_prepared_seconds_max",
            "MetaQ: age of the oldest prepared transaction; 0: none is.",
            transactions.oldest_prepared_s,
        ),
        gauge(
            "metaq_transactions_decided",
            "MetaQ: transactions that a person decided about and no producer forgot.",
            lambda: len(transactions.open.heuristic),
        ),
        counter(
            "metaq_transactions_prepared", "MetaQ: transactions prepared.", lambda: counts.prepared
        ),
        counter(
            "metaq_transactions_committed",
            "MetaQ: transactions committed.",
            lambda: counts.committed,
        ),
        counter(
            "metaq_transactions_rolled_back",
            "MetaQ: transactions rolled back.",
            lambda: counts.rolled_back,
        ),
        counter(
            "metaq_transactions_expired",
            "MetaQ: transactions rolled back since their time was over.",
            lambda: counts.expired,
        ),
        counter(
            "metaq_transactions_abandoned",
            "MetaQ: transactions rolled back since their connections were gone.",
            lambda: counts.abandoned,
        ),
        counter(
            "metaq_transactions_lost",
            "MetaQ: prepared transactions whose messages the log lost.",
            lambda: counts.lost,
        ),
    ]
