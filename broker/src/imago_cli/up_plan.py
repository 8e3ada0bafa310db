"""What `imago up` runs: ports, folders and configuration of every process, as values.

Without a port base the well-known ports are used: MetaQ 8123, RocketMQ 10911 (its fast port two
below, replication one above), admin 8080, name service 9876, ZooKeeper 2181; broker i of the
machine stands 10 (RocketMQ) or 1 (others) further. With a base N nothing outside the block that
starts at N is bound: name service N, ZooKeeper N + 1, broker i at N + 10 + 10 i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_broker.cluster.settings import CoordinatorConfig
from imago_cli.exits import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PORT_MAX = 65535
SHARDS_MAX = 64
"""Processes on one machine; a mistyped number must not start a thousand."""

HOST = "127.0.0.1"
NO_ZOOKEEPER = "none"
OWN_ZOOKEEPER = "auto"

OWNED_KEYS: Mapping[str, str] = {
    "broker.cluster": "--cluster",
    "broker.shard": "--shards",
    "broker.data_dir": "--data",
    "metaq.port": "--port-base",
    "rocketmq.port": "--port-base",
    "rocketmq.fast_port": "--port-base",
    "replication.port": "--port-base",
    "admin.port": "--port-base",
    "namesrv.port": "--port-base",
    "namesrv.enabled": "--zookeeper",
    "zookeeper.connect": "--zookeeper",
}
"""Keys that differ from broker to broker or belong together, and the flag that decides them."""


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Ports of one broker process."""

    metaq: int
    rocketmq: int
    admin: int

    @property
    def fast(self) -> int:
        """What RocketMQ clients compute by themselves."""
        return self.rocketmq - 2

    @property
    def replication(self) -> int:
        return self.rocketmq + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """One cluster on this machine."""

    data: Path
    cluster: str
    shards: int
    zookeeper: str
    """`auto`, `none`, or the addresses of an ensemble that is there already."""
    port_base: int | None

    def __post_init__(self) -> None:
        if not 1 <= self.shards <= SHARDS_MAX:
            raise UsageError(f"--shards {self.shards}: must be 1 to {SHARDS_MAX}")
        if self.zookeeper == NO_ZOOKEEPER and self.shards > 1:
            raise UsageError(
                f"--zookeeper none runs exactly one broker, not {self.shards}",
                cure="--zookeeper auto starts a ZooKeeper here; or give the address of yours",
            )
        try:
            CoordinatorConfig(cluster=self.cluster)
        except ValueError as error:
            raise UsageError(f"--cluster: {error}") from error
        ports = [port for _, port in self.ports()]
        if len(set(ports)) < len(ports):
            raise UsageError(
                f"{self.shards} shards do not fit between the well-known ports",
                cure="give a --port-base",
            )
        if min(ports) < 1 or max(ports) > PORT_MAX:
            raise UsageError(f"--port-base {self.port_base}: its block would end at {max(ports)}")

    @property
    def namesrv_port(self) -> int:
        return 9876 if self.port_base is None else self.port_base

    @property
    def zookeeper_port(self) -> int:
        return 2181 if self.port_base is None else self.port_base + 1

    @property
    def zookeeper_connect(self) -> str:
        """What processes are told: `none`, or where ZooKeeper is."""
        return f"{HOST}:{self.zookeeper_port}" if self.own_zookeeper else self.zookeeper

    @property
    def own_zookeeper(self) -> bool:
        return self.zookeeper == OWN_ZOOKEEPER

    def broker_ports(self, shard: int) -> BrokerPorts:
        """Ports of the broker that serves this shard."""
        if self.port_base is None:
            return BrokerPorts(8123 + shard, 10911 + 10 * shard, 8080 + shard)
        first = self.port_base + 10 + 10 * shard
        return BrokerPorts(metaq=first + 1, rocketmq=first + 2, admin=first + 4)

    def broker_data(self, shard: int) -> Path:
        return self.data / f"shard-{shard}"

    def ports(self) -> Iterator[tuple[str, int]]:
        """Every port that will be bound on this machine, with what it is for."""
        yield "the name service", self.namesrv_port
        if self.own_zookeeper:
            yield "ZooKeeper", self.zookeeper_port
        for shard in range(self.shards):
            ports = self.broker_ports(shard)
            yield f"MetaQ of shard-{shard}", ports.metaq
            yield f"RocketMQ of shard-{shard}", ports.rocketmq
            yield f"RocketMQ's fast port of shard-{shard}", ports.fast
            yield f"replication of shard-{shard}", ports.replication
            yield f"the admin interface of shard-{shard}", ports.admin

    def broker_tree(self, shard: int, base: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Configuration of one broker: what the base says, and what belongs to the plan."""
        ports = self.broker_ports(shard)
        ours = {
            "broker": {
                "cluster": self.cluster,
                "shard": shard,
                "data_dir": str(self.broker_data(shard)),
            },
            "metaq": {"port": ports.metaq},
            "rocketmq": {"port": ports.rocketmq, "fast_port": ports.fast},
            "replication": {"port": ports.replication},
            "admin": {"port": ports.admin},
            "namesrv": self._namesrv_section(enabled=self.zookeeper == NO_ZOOKEEPER),
            "zookeeper": {"connect": self.zookeeper_connect},
        }
        return _merged(base, ours)

    def namesrv_tree(self, base: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Configuration of the name service's own process."""
        ours = {
            "broker": {"cluster": self.cluster},
            "namesrv": self._namesrv_section(enabled=True),
            "zookeeper": {"connect": self.zookeeper_connect},
        }
        return _merged(base, ours)

    def _namesrv_section(self, *, enabled: bool) -> dict[str, Any]:
        return {"enabled": enabled, "port": self.namesrv_port}

    def ready_broker(self, shard: int, *, pid: int, host: str) -> dict[str, Any]:
        """The broker's entry of the ready line."""
        ports = self.broker_ports(shard)
        return {
            "shard": f"shard-{shard}",
            "replica": 0,
            "pid": pid,
            "role": "master",
            "metaq": f"{host}:{ports.metaq}",
            "rocketmq": f"{host}:{ports.rocketmq}",
            "fast": f"{host}:{ports.fast}",
            "replication": f"{host}:{ports.replication}",
            "admin": f"http://{host}:{ports.admin}",
            "data": str(self.broker_data(shard)),
        }

    def ready(self, host: str, pids: Sequence[int]) -> dict[str, Any]:
        """The ready line."""
        brokers = [self.ready_broker(n, pid=pid, host=host) for n, pid in enumerate(pids)]
        return {
            "ready": True,
            "namesrv": f"{host}:{self.namesrv_port}",
            "zookeeper": self.zookeeper_connect,
            "data": str(self.data),
            "brokers": brokers,
        }


def refuse_owned_keys(assignments: Sequence[str]) -> None:
    """Refuse `--set` of what a flag decides."""
    for assignment in assignments:
        key = assignment.partition("=")[0].strip()
        if flag := OWNED_KEYS.get(key):
            raise UsageError(f"--set {key}: {flag} decides this for every process")


def local_base() -> dict[str, dict[str, Any]]:
    """Settings of a cluster on one machine: it talks to itself, nobody else is let in."""
    return {"broker": {"host": HOST, "bind": HOST}}


def _merged(base: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        section: {**base.get(section, {}), **ours.get(section, {})}
        for section in dict.fromkeys([*base, *ours])
    }
