"""The configuration in the form of MetaQ's ``server.ini``, as its tools ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_broker.config.settings import BrokerConfig, Scalar


def render(config: BrokerConfig, *, host: str) -> bytes:
    """Return the configuration as MetaQ's tools expect it of ``stats config``."""
    metaq, store = config.metaq, config.store
    threshold = 0 if config.acknowledgement_level.endswith("fsync") else 1000
    connect = config.zookeeper.connect
    lines = [
        "[system]",
        f"brokerId={config.metaq_broker_id}",
        f"hostName={host}",
        f"serverPort={metaq.port}",
        f"dashboardHttpPort={config.admin.port}",
        f"numPartitions={metaq.default_partitions}",
        f"unflushThreshold={threshold}",
        "unflushInterval=10000",
        f"maxSegmentSize={store.metaq_segment_bytes_max}",
        f"maxTransferSize={metaq.transfer_bytes_max}",
        f"deletePolicy=delete,{store.retention_ms // 1000}s",
        f"stat={_truth(metaq.stat)}",
        f"updateConsumerOffsets={_truth(metaq.update_consumer_offsets)}",
        "[zookeeper]",
        f"zk.zkEnable={_truth(connect != 'none')}",
        f"zk.zkRoot={metaq.zk_root}",
        f"zk.zkConnect={'localhost:2181' if connect == 'none' else connect}",
        f"zk.zkSessionTimeoutMs={config.zookeeper.session_timeout_ms}",
    ]
    lines += _topic_lines(config.topics)
    lines += (f"[topic={pattern}]" for pattern in metaq.topic_patterns)
    return "".join(f"{line}\n" for line in lines).encode()


def _topic_lines(topics: Mapping[str, Mapping[str, Scalar]]) -> Iterable[str]:
    for name, settings in topics.items():
        yield f"[topic={name}]"
        if "queues" in settings:
            yield f"numPartitions={settings['queues']}"
        for ours, theirs in (
            ("metaq_publish", "acceptPublish"),
            ("metaq_subscribe", "acceptSubscribe"),
            ("metaq_stat", "stat"),
        ):
            if ours in settings:
                yield f"{theirs}={_truth(bool(settings[ours]))}"


def _truth(value: bool) -> str:
    return "true" if value else "false"
