"""Settings of brokers, as far as the operator must know them. Made by `make docs`."""

from __future__ import annotations

from typing import Final, NamedTuple

Scalar = bool | int | float | str | tuple[str, ...]


class BrokerKey(NamedTuple):
    """One setting: what it is unless set, and whether it may change while a broker runs."""

    default: Scalar
    dynamic: bool


KEYS: Final[dict[str, BrokerKey]] = {
    "broker.cluster": BrokerKey("imago", False),
    "broker.shard": BrokerKey(0, False),
    "broker.replica": BrokerKey(-1, False),
    "broker.replicas": BrokerKey(1, False),
    "broker.zone": BrokerKey("", True),
    "broker.name_prefix": BrokerKey("", False),
    "broker.host": BrokerKey("", False),
    "broker.advertised_host": BrokerKey("", False),
    "broker.bind": BrokerKey("127.0.0.1", False),
    "broker.data_dir": BrokerKey("data", False),
    "broker.drain_seconds": BrokerKey(10.0, False),
    "broker.seal_linger_ms": BrokerKey(35000, True),
    "metaq.enabled": BrokerKey(True, False),
    "metaq.port": BrokerKey(8123, False),
    "metaq.advertised_port": BrokerKey(0, False),
    "metaq.broker_id_base": BrokerKey(0, False),
    "metaq.zk_root": BrokerKey("/meta", False),
    "metaq.version": BrokerKey("1.4.6.2", False),
    "metaq.auto_create_topic": BrokerKey(False, True),
    "metaq.topic_patterns": BrokerKey((), True),
    "metaq.default_partitions": BrokerKey(8, True),
    "metaq.message_bytes_max": BrokerKey(2097152, False),
    "metaq.transfer_bytes_max": BrokerKey(1048576, False),
    "metaq.line_bytes_max": BrokerKey(4096, False),
    "metaq.idle_seconds": BrokerKey(120, False),
    "metaq.stat": BrokerKey(False, True),
    "metaq.update_consumer_offsets": BrokerKey(False, True),
    "rocketmq.enabled": BrokerKey(True, False),
    "rocketmq.port": BrokerKey(10911, False),
    "rocketmq.advertised_port": BrokerKey(0, False),
    "rocketmq.fast_port": BrokerKey(-1, False),
    "rocketmq.frame_bytes_max": BrokerKey(16777216, False),
    "rocketmq.message_bytes_max": BrokerKey(4194304, True),
    "rocketmq.region": BrokerKey("DefaultRegion", False),
    "rocketmq.trace_on": BrokerKey(True, False),
    "rocketmq.auto_create_topic": BrokerKey(True, True),
    "rocketmq.auto_create_group": BrokerKey(True, True),
    "rocketmq.default_queues": BrokerKey(8, False),
    "rocketmq.pull_hold_ms_max": BrokerKey(30000, True),
    "rocketmq.pull_holds_max": BrokerKey(100000, False),
    "rocketmq.delay_levels": BrokerKey(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", False
    ),
    "rocketmq.store_replies": BrokerKey(True, True),
    "rocketmq.idle_seconds": BrokerKey(120, False),
    "namesrv.enabled": BrokerKey(True, False),
    "namesrv.port": BrokerKey(9876, False),
    "admin.enabled": BrokerKey(True, False),
    "admin.bind": BrokerKey("", False),
    "admin.port": BrokerKey(8080, False),
    "admin.token_file": BrokerKey("", False),
    "admin.loopback_trusted": BrokerKey(False, False),
    "replication.port": BrokerKey(-1, False),
    "replication.min_in_sync": BrokerKey(0, True),
    "replication.lag_ms_max": BrokerKey(2000, False),
    "replication.lost_ms_max": BrokerKey(500, False),
    "replication.slave_reads": BrokerKey(False, False),
    "replication.handover_linger_ms": BrokerKey(35000, False),
    "replication.catch_up_bytes_per_second_max": BrokerKey(0, False),
    "replication.peer_networks": BrokerKey("", False),
    "zookeeper.connect": BrokerKey("none", False),
    "zookeeper.session_timeout_ms": BrokerKey(6000, False),
    "zookeeper.connect_timeout_ms": BrokerKey(15000, False),
    "store.segment_bytes_max": BrokerKey(268435456, False),
    "store.retention_ms": BrokerKey(259200000, False),
    "store.retention_bytes_max": BrokerKey(0, False),
    "store.sync_interval_ms": BrokerKey(200, True),
    "store.metaq_segment_bytes_max": BrokerKey(1073741824, False),
    "store.scrub_interval_ms": BrokerKey(86400000, False),
    "store.disk_full_ratio": BrokerKey(0.9, False),
    "store.disk_force_ratio": BrokerKey(0.85, False),
    "store.disk_clean_ratio": BrokerKey(0.75, False),
    "acknowledgement.level": BrokerKey("", True),
    "acknowledgement.timeout_ms": BrokerKey(5000, True),
    "acknowledgement.in_flight_bytes_max": BrokerKey(268435456, False),
    "limits.connections_max": BrokerKey(20000, False),
    "limits.connections_per_address_max": BrokerKey(0, False),
    "limits.output_bytes_pause": BrokerKey(262144, False),
    "limits.output_bytes_max": BrokerKey(33554432, False),
    "limits.output_bytes_total_max": BrokerKey(536870912, False),
    "limits.input_bytes_total_max": BrokerKey(0, False),
    "limits.output_stall_seconds": BrokerKey(30, False),
    "limits.input_stall_seconds": BrokerKey(30, False),
    "limits.topics_max": BrokerKey(100000, True),
    "limits.groups_max": BrokerKey(100000, True),
    "log.level": BrokerKey("info", False),
}
