"""Settings of brokers, as far as the operator must know them. Made by `make docs`."""

from __future__ import annotations

from typing import Final, NamedTuple

Scalar = bool | int | float | str | tuple[str, ...]


class Key(NamedTuple):
    """One setting: what it is unless set, and whether it may change while a broker runs."""

    default: Scalar
    dynamic: bool


KEYS: Final[dict[str, Key]] = {
    "broker.cluster": Key("imago", False),
    "broker.shard": Key(0, False),
    "broker.replica": Key(-1, False),
    "broker.replicas": Key(1, False),
    "broker.zone": Key("", True),
    "broker.name_prefix": Key("", False),
    "broker.host": Key("", False),
    "broker.advertised_host": Key("", False),
    "broker.bind": Key("127.0.0.1", False),
    "broker.data_dir": Key("data", False),
    "broker.drain_seconds": Key(10.0, False),
    "broker.seal_linger_ms": Key(35000, True),
    "metaq.enabled": Key(True, False),
    "metaq.port": Key(8123, False),
    "metaq.advertised_port": Key(0, False),
    "metaq.broker_id_base": Key(0, False),
    "metaq.zk_root": Key("/meta", False),
    "metaq.version": Key("1.4.6.2", False),
    "metaq.auto_create_topic": Key(False, True),
    "metaq.topic_patterns": Key((), True),
    "metaq.default_partitions": Key(8, True),
    "metaq.message_bytes_max": Key(2097152, False),
    "metaq.transfer_bytes_max": Key(1048576, False),
    "metaq.line_bytes_max": Key(4096, False),
    "metaq.idle_seconds": Key(120, False),
    "metaq.stat": Key(False, True),
    "metaq.update_consumer_offsets": Key(False, True),
    "rocketmq.enabled": Key(True, False),
    "rocketmq.port": Key(10911, False),
    "rocketmq.advertised_port": Key(0, False),
    "rocketmq.fast_port": Key(-1, False),
    "rocketmq.frame_bytes_max": Key(16777216, False),
    "rocketmq.message_bytes_max": Key(4194304, True),
    "rocketmq.region": Key("DefaultRegion", False),
    "rocketmq.trace_on": Key(True, False),
    "rocketmq.auto_create_topic": Key(True, True),
    "rocketmq.auto_create_group": Key(True, True),
    "rocketmq.default_queues": Key(8, False),
    "rocketmq.pull_hold_ms_max": Key(30000, True),
    "rocketmq.pull_holds_max": Key(100000, False),
    "rocketmq.delay_levels": Key(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", False
    ),
    "rocketmq.idle_seconds": Key(120, False),
    "namesrv.enabled": Key(True, False),
    "namesrv.port": Key(9876, False),
    "admin.enabled": Key(True, False),
    "admin.bind": Key("", False),
    "admin.port": Key(8080, False),
    "admin.token_file": Key("", False),
    "admin.loopback_trusted": Key(False, False),
    "replication.port": Key(-1, False),
    "replication.min_in_sync": Key(0, True),
    "replication.lag_ms_max": Key(2000, False),
    "replication.lost_ms_max": Key(500, False),
    "replication.slave_reads": Key(False, False),
    "replication.handover_linger_ms": Key(35000, False),
    "replication.catch_up_bytes_per_second_max": Key(0, False),
    "replication.peer_networks": Key("", False),
    "zookeeper.connect": Key("none", False),
    "zookeeper.session_timeout_ms": Key(6000, False),
    "zookeeper.connect_timeout_ms": Key(15000, False),
    "store.segment_bytes_max": Key(268435456, False),
    "store.retention_ms": Key(259200000, False),
    "store.retention_bytes_max": Key(0, False),
    "store.sync_interval_ms": Key(200, True),
    "store.metaq_segment_bytes_max": Key(1073741824, False),
    "store.scrub_interval_ms": Key(86400000, False),
    "store.disk_full_ratio": Key(0.9, False),
    "store.disk_force_ratio": Key(0.85, False),
    "store.disk_clean_ratio": Key(0.75, False),
    "acknowledgement.level": Key("", True),
    "acknowledgement.timeout_ms": Key(5000, True),
    "acknowledgement.in_flight_bytes_max": Key(268435456, False),
    "limits.connections_max": Key(20000, False),
    "limits.connections_per_address_max": Key(0, False),
    "limits.output_bytes_pause": Key(262144, False),
    "limits.output_bytes_max": Key(33554432, False),
    "limits.output_bytes_total_max": Key(536870912, False),
    "limits.input_bytes_total_max": Key(0, False),
    "limits.output_stall_seconds": Key(30, False),
    "limits.input_stall_seconds": Key(30, False),
    "limits.topics_max": Key(100000, True),
    "limits.groups_max": Key(100000, True),
    "log.level": Key("info", False),
}
