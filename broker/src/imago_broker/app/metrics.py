"""The metrics of a broker: name, help and where each is read from when Prometheus asks.

Those of its shard are in `shard_metrics`, of consumer groups in `group_metrics`,
of what topics took and groups were given in `usage_metrics`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.app.group_metrics import group_samples
from imago_broker.app.quota_metrics import quota_samples
from imago_broker.app.shard_metrics import shard_samples
from imago_broker.app.usage_metrics import usage_samples
from imago_broker.config.relations import is_open
from imago_broker.metrics import Sample, metaq_samples
from imago_broker.model.cluster import RegistryConnection

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app.core_services import CoreServices
    from imago_broker.app.listeners import Ports
    from imago_broker.app.shard_member import ShardMember
    from imago_broker.config import BrokerConfig
    from imago_broker.core.budget import InputBudget
    from imago_broker.metrics import BrokerCollector, MetaqCounters
    from imago_broker.ports import Registry
    from imago_broker.processors.rocketmq.assembly import DeliveryParts, RocketmqAssembly
    from imago_broker.server.listener import Listener
    from imago_broker.server.tls_entry import TlsDoor
    from imago_broker.service.access import AccessService
    from imago_broker.service.delays.levels import DelayService
    from imago_broker.service.delays.timers import TimerService
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.pop.service import PopService
    from imago_broker.service.pop.waiting import PopWaiting
    from imago_broker.service.role import RoleState
    from imago_broker.service.transactions.service import TransactionService
    from imago_log.repair.scrubbing import ScrubCounts
    from imago_log.results import StoreHealth
    from imago_log.store import MessageStore


def add_metrics(
    collector: BrokerCollector,
    *,
    config: BrokerConfig,
    core: CoreServices,
    registry: Registry,
    role: RoleState,
    ports: Ports,
    rocketmq: RocketmqAssembly,
    metaq_counters: MetaqCounters,
    health: Callable[[], StoreHealth],
    member: ShardMember | None,
) -> None:
    """Have the collector give out the samples of all parts."""
    store = core.messages.store
    collector.add(
        [
            *_log(store, health),
            *_shard(config, registry, role),
            *_puts(core),
            *_ports(ports),
            *_access(config, core.access),
            *_input(ports.input_budget),
            *_rocketmq(rocketmq.delivery),
            *_transactions(rocketmq.transactions.service),
            *_timers(rocketmq.delays.levels, rocketmq.delays.timers),
            *_pops(rocketmq.pop.service, rocketmq.pop.waiting),
            *metaq_samples(metaq_counters),
            *_metaq_transactions(core.metaq_transactions),
        ]
    )
    if member is not None:
        refused = ports.replication.refused
        collector.add_source(lambda: shard_samples(member, role, refused))
    collector.add_source(lambda: group_samples(role, core.offsets, store))
    collector.add_source(lambda: quota_samples(core.quotas))
    collector.add_source(lambda: usage_samples(rocketmq.delivery.usage))


def _gauge(name: str, text: str, read: Callable[[], float], port: str = "") -> Sample:
    return Sample(f"imago_{name}", text, read, "gauge", (("port", port),) if port else ())


def _counter(name: str, text: str, read: Callable[[], float], port: str = "") -> Sample:
    return Sample(f"imago_{name}", text, read, "counter", (("port", port),) if port else ())


def _log(store: MessageStore, health: Callable[[], StoreHealth]) -> list[Sample]:
    damaged = store.damaged_ranges

    def scrubbed() -> ScrubCounts:
        return store.scrubbed

    return [
        _gauge("log_start_offset", "First byte of the log.", lambda: store.log_start),
        _gauge("log_end_offset", "End of the log.", lambda: store.log_end),
        _gauge("log_durable_offset", "End of what is on disk.", lambda: store.durable_end),
        _gauge("log_visible_offset", "End of what is read.", lambda: store.high_watermark),
        _gauge("log_epoch", "Epoch of the master.", lambda: store.epoch_seen),
        _gauge("log_damaged_ranges", "Parts of the log out of service.", lambda: len(damaged())),
        _gauge(
            "log_damaged_bytes",
            "Bytes of the log out of service.",
            lambda: sum(each.size for each in damaged()),
        ),
        _counter("log_skipped", "Messages lost in damage, passed over.", lambda: store.skipped),
        _counter(
            "log_scrubbed_bytes", "Verified in the background.", lambda: scrubbed().bytes_verified
        ),
        _counter("log_scrubs", "Times the whole log was verified.", lambda: scrubbed().passes),
        _counter("views_mended", "Wrong units, keys and files.", lambda: scrubbed().views_mended),
        _gauge("disk_used_ratio", "Used part of the disk.", lambda: health().disk_used_ratio),
        _gauge("writable", "1 while puts are accepted.", lambda: health().writable),
    ]


def _shard(config: BrokerConfig, registry: Registry, role: RoleState) -> list[Sample]:
    shard = config.broker.shard

    def in_sync() -> int:
        state = registry.view().states.get(shard)
        return len(state.in_sync) if state else 1

    return [
        _gauge("shard_leads", "1 while this broker is the master.", lambda: role.leads),
        _gauge("shard_in_sync", "Members in the in-sync set.", in_sync),
        _gauge("shard_replicas", "Members it is to have.", lambda: config.broker.replicas),
        _gauge("shard_members", "Live members.", lambda: len(registry.view().members(shard))),
        _gauge(
            "registry_connected",
            "1 while the registry answers and our registration exists.",
            lambda: registry.state is RegistryConnection.CONNECTED,
        ),
        _gauge(
            "registry_refused_nodes",
            "Nodes whose content cannot be understood; their last good content counts.",
            lambda: len(registry.view().refused),
        ),
    ]


def _puts(core: CoreServices) -> list[Sample]:
    puts, waiting = core.messages, core.messages.acknowledgements
    times = puts.append_times
    return [
        _counter("messages_stored", "Messages appended.", lambda: puts.appended),
        _counter("appends", "Appends: one for all puts of a loop turn.", lambda: puts.appends),
        _counter("put_timeouts", "Puts whose level was late.", lambda: waiting.timeouts),
        _counter("puts_failed", "Messages refused or not appended.", lambda: puts.failed),
        _counter("appended_bytes", "Bytes of the log that puts took.", lambda: puts.appended_bytes),
        _gauge("append_ms_max", "Longest append.", lambda: times.max_ns / 1e6),
        _gauge("append_ms_p99", "Whole ms of 99 of 100.", lambda: times.percentile(0.99)),
        _gauge(
            "unacknowledged_bytes",
            "Bytes not yet acknowledged.",
            lambda: waiting.bytes_waiting,
        ),
        _gauge("topics", "Topics of this shard.", lambda: len(core.topics.all())),
        _gauge("light_queues", "Light queues.", lambda: len(core.messages.light)),
        _gauge("groups", "Consumer groups.", lambda: len(core.groups.all())),
    ]


def _ports(ports: Ports) -> list[Sample]:
    return [
        *_port("metaq", ports.metaq),
        *_port("rocketmq", ports.rocketmq),
        *_port("fast", ports.fast),
        *_port("namesrv", ports.names),
        *_tls(ports),
        _gauge(
            "connections_max",
            "Connections of all client ports that the process has files for.",
            lambda: ports.places.count_max,
        ),
    ]


def _access(config: BrokerConfig, access: AccessService) -> list[Sample]:
    return [
        _gauge(
            "access_open",
            "1 while anyone who reaches the ports from other machines may do everything.",
            lambda: is_open(config),
        ),
        _gauge("access_users", "Users.", lambda: len(access.users)),
        _counter(
            "access_denied",
            "Requests that access control has refused.",
            lambda: access.denials.count,
        ),
    ]


def _tls(ports: Ports) -> list[Sample]:
    certificates = ports.certificates
    if certificates is None:
        return []
    doors = ports.doors

    def total(read: Callable[[TlsDoor], int]) -> int:
        return sum(map(read, doors))

    return [
        *_port("metaq_tls", ports.metaq_tls),
        _gauge(
            "tls_certificate_expires_seconds",
            "End of the certificate in force, in seconds since 1970; 0: it is not valid now.",
            lambda: certificates.contexts.expires_s,
        ),
        _gauge(
            "tls_certificate_refused",
            "1 while the certificate's files have something that cannot be used.",
            lambda: bool(certificates.problem),
        ),
        _counter(
            "tls_certificates_loaded",
            "Certificates that came into force.",
            lambda: certificates.loaded,
        ),
        _counter(
            "tls_handshakes",
            "Handshakes that were finished.",
            lambda: total(lambda door: door.handshakes),
        ),
        _counter(
            "tls_handshakes_failed",
            "Connections that were not served for want of TLS.",
            lambda: total(lambda door: door.failures.count),
        ),
        _counter(
            "tls_handshakes_delayed",
            "Handshakes that waited for their turn (tls.handshakes_per_second_max).",
            lambda: ports.handshakes.delayed,
        ),
        _gauge(
            "tls_handshakes_waiting",
            "Those that wait now.",
            lambda: ports.handshakes.waiting,
        ),
    ]


def _port(name: str, listener: Listener) -> list[Sample]:
    return [
        _gauge("connections", "Open connections.", lambda: listener.connections, name),
        _counter("connections_accepted", "Accepted.", lambda: listener.accepted, name),
        _counter("connections_refused", "Above a limit.", lambda: listener.refused, name),
    ]


def _input(budget: InputBudget) -> list[Sample]:
    return [
        _gauge("input_unfinished_bytes", "Of commands that are not whole.", lambda: budget.held),
        _gauge("input_waiting", "Connections not read for the budget.", lambda: budget.waiting),
        _counter("input_dropped", "Connections ended for it.", lambda: budget.dropped),
    ]


def _rocketmq(delivery: DeliveryParts) -> list[Sample]:
    traffic, hold = delivery.traffic, delivery.hold
    return [
        _counter("rocketmq_messages_out", "Messages pulled.", lambda: traffic.messages),
        _counter("rocketmq_bytes_out", "Bytes pulled.", lambda: traffic.bytes),
        _counter("rocketmq_reads_found", "Answers with messages.", lambda: traffic.found),
        _counter("rocketmq_reads_missed", "Reads that found none.", lambda: traffic.missed),
        _gauge("rocketmq_pulls_held", "Pulls that wait for messages.", lambda: len(hold)),
        _gauge("rocketmq_read_ms_max", "Longest read.", lambda: traffic.read_ns_max / 1e6),
    ]


def _transactions(transactions: TransactionService) -> list[Sample]:
    counts = transactions.counts
    return [
        _gauge("transactions_open", "Open transactions.", lambda: len(transactions.halves)),
        _counter("transactions_begun", "Half messages stored.", lambda: counts.opened),
        _counter("transactions_committed", "Committed.", lambda: counts.committed),
        _counter("transactions_rolled_back", "Rolled back.", lambda: counts.rolled_back),
        _counter("transactions_given_up", "Asked about too often.", lambda: counts.given_up),
        _counter("transactions_lost", "Half messages that cannot be read.", lambda: counts.lost),
        _counter("transaction_checks", "Checks of open ones.", lambda: counts.checks),
        _counter(
            "transaction_checks_unasked", "Checks without a live producer.", lambda: counts.unasked
        ),
    ]


def _metaq_transactions(transactions: MetaqTransactions) -> list[Sample]:
    counts = transactions.counts
    return [
        _gauge(
            "metaq_transactions_open",
            "MetaQ: transactions open or prepared.",
            lambda: transactions.open.count,
        ),
        _gauge(
            "metaq_transactions_bytes",
            "MetaQ: bytes of open transactions in memory.",
            lambda: transactions.open.total_bytes,
        ),
        _gauge(
            "metaq_transactions_prepared_seconds_max",
            "MetaQ: age of the oldest prepared transaction; 0: none is.",
            transactions.oldest_prepared_s,
        ),
        _gauge(
            "metaq_transactions_decided",
            "MetaQ: transactions that a person decided about and no producer forgot.",
            lambda: len(transactions.open.heuristic),
        ),
        _counter("metaq_transactions_prepared", "MetaQ: prepared.", lambda: counts.prepared),
        _counter("metaq_transactions_committed", "MetaQ: committed.", lambda: counts.committed),
        _counter(
            "metaq_transactions_rolled_back", "MetaQ: rolled back.", lambda: counts.rolled_back
        ),
        _counter(
            "metaq_transactions_expired",
            "MetaQ: rolled back since their time was over.",
            lambda: counts.expired,
        ),
        _counter(
            "metaq_transactions_abandoned",
            "MetaQ: rolled back since their connections were gone.",
            lambda: counts.abandoned,
        ),
        _counter(
            "metaq_transactions_lost",
            "MetaQ: prepared ones whose messages the log lost.",
            lambda: counts.lost,
        ),
    ]


def _timers(delay: DelayService, timers: TimerService) -> list[Sample]:
    return [
        _gauge("timers_pending", "Messages that wait for their time.", lambda: timers.pending),
        _counter("timers_fired", "Of them delivered.", lambda: timers.figures.fired),
        _counter("timers_lost", "Of them gone with their log files.", lambda: timers.figures.lost),
        _counter("delayed_lost", "The same, of messages of delay levels.", lambda: delay.lost),
        _counter("timers_late_ms", "By how much, summed up.", lambda: timers.figures.late_ms),
        _gauge(
            "timers_late_ms_max", "The most since the start.", lambda: timers.figures.late_ms_max
        ),
    ]


def _pops(pops: PopService, waiting: PopWaiting) -> list[Sample]:
    counts = pops.counts
    return [
        _gauge("pop_out", "Messages that were popped and not acknowledged.", lambda: pops.out),
        _gauge("pop_waiting", "POPs that wait for a message.", lambda: len(waiting)),
        _counter("pop_handed_out", "Messages popped.", lambda: counts.handed_out),
        _counter("pop_again", "Of them popped before.", lambda: counts.again),
        _counter("pop_acknowledged", "Of them acknowledged.", lambda: counts.acknowledged),
        _counter("pop_void", "Receipts that did not count any more.", lambda: counts.void),
        _counter("pop_lost", "Popped messages gone before they were done.", lambda: counts.lost),
    ]
