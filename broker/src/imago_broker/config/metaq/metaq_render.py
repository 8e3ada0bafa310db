"""The configuration in the form of MetaQ's ``server.ini``, as its tools ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_broker.config.metaq.metaq_ini import DEFAULT_DELETE_WHEN
from imago_broker.config.sections.section import FILTER_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from imago_broker.config.settings import BrokerConfig, Scalar


def render(config: BrokerConfig, *, host: str) -> bytes:
    """Return the configuration as MetaQ's tools expect it of ``stats config``."""
    metaq, store = config.metaq, config.store
    connect = config.zookeeper.connect
    lines = [
        "[system]",
        f"brokerId={config.metaq_broker_id}",
        f"hostName={host}",
        f"serverPort={metaq.port}",
        f"dashboardHttpPort={config.admin.port}",
        f"numPartitions={metaq.default_partitions}",
        f"unflushThreshold={_threshold(config.acknowledgement_level)}",
        f"unflushInterval={store.sync_interval_ms}",
        f"maxSegmentSize={store.metaq_segment_bytes_max}",
        f"maxTransferSize={metaq.transfer_bytes_max}",
        f"deletePolicy=delete,{_kept(store.retention_ms)}",
        f"deleteWhen={store.delete_when or DEFAULT_DELETE_WHEN}",
        f"maxTxTimeoutTimerCapacity={metaq.transactions_max}",
        f"maxTxTimeoutInSeconds={metaq.transaction_timeout_seconds_max}",
        f"stat={_truth(metaq.stat)}",
        f"updateConsumerOffsets={_truth(metaq.update_consumer_offsets)}",
        "[zookeeper]",
        f"zk.zkEnable={_truth(connect != 'none')}",
        f"zk.zkRoot={metaq.zk_root}",
        f"zk.zkConnect={'localhost:2181' if connect == 'none' else connect}",
        f"zk.zkSessionTimeoutMs={config.zookeeper.session_timeout_ms}",
        f"zk.zkConnectionTimeoutMs={config.zookeeper.connect_timeout_ms}",
        f"zk.zkSyncTimeMs={metaq.stop_linger_ms}",
    ]
    for name, settings in {**config.patterns, **config.declared}.items():
        lines += _topic_lines(name, settings, store.retention_ms)
    return "".join(f"{line}\n" for line in lines).encode()


def _topic_lines(name: str, settings: Mapping[str, Scalar], retention_ms: int) -> Iterable[str]:
    yield f"[topic={name}]"
    yield from _policy_lines(settings, retention_ms)
    for key, value in settings.items():
        if key in SHOWN:
            their_name, shown = SHOWN[key]
            yield f"{their_name}={shown(value)}"
        elif key.startswith(FILTER_PREFIX):
            yield f"{key}={value}"


def _policy_lines(settings: Mapping[str, Scalar], retention_ms: int) -> Iterable[str]:
    archive = settings.get("metaq_archive")
    if archive or "retention_ms" in settings:
        kept = _kept(int(settings.get("retention_ms", retention_ms)))
        packed = ",true" if archive == "zip" else ""
        yield f"deletePolicy={'archive' if archive else 'delete'},{kept}{packed}"


def _threshold(level: str) -> int:
    return 0 if level.endswith("fsync") else 1000


def _kept(ms: int) -> str:
    """Return a time in the largest unit that it is a whole number of; seconds at least."""
    if ms and ms % 3_600_000 == 0:
        return str(ms // 3_600_000)
    return f"{max(1, ms // 1000)}s"


def _truth(value: Scalar) -> str:
    return "true" if value else "false"


SHOWN: Final[Mapping[str, tuple[str, Callable[[Scalar], object]]]] = {
    "queues": ("numPartitions", int),
    "acknowledgement": ("unflushThreshold", lambda level: _threshold(str(level))),
    "delete_when": ("deleteWhen", str),
    "metaq_publish": ("acceptPublish", _truth),
    "metaq_subscribe": ("acceptSubscribe", _truth),
    "metaq_stat": ("stat", _truth),
}
"""Settings of a topic under MetaQ's names, each with how it is written."""
