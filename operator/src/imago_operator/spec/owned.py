"""Settings of brokers that a cluster's `brokers.config` may not say."""

from __future__ import annotations

from typing import Final

OWNED_SETTINGS: Final = (
    "broker.cluster",
    "broker.shard",
    "broker.replica",
    "broker.replicas",
    "broker.zone",
    "broker.host",
    "broker.advertised_host",
    "broker.listeners",
    "broker.listener_hosts_file",
    "broker.bind",
    "broker.data_dir",
    "metaq.enabled",
    "metaq.port",
    "metaq.advertised_port",
    "metaq.listener",
    "rocketmq.enabled",
    "rocketmq.port",
    "rocketmq.advertised_port",
    "rocketmq.fast_port",
    "rocketmq.grpc_port",
    "rocketmq.grpc_advertised_port",
    "replication.port",
    "replication.open",
    "replication.min_in_sync",
    "namesrv.enabled",
    "namesrv.port",
    "admin.enabled",
    "admin.bind",
    "admin.port",
    "admin.token_file",
    "admin.loopback_trusted",
    "zookeeper.connect",
    "acknowledgement.level",
    "acknowledgement.timeout_ms",
    "log.level",
)
"""Settings of brokers that other fields of the resource say, or Kubernetes."""
