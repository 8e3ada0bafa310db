"""What `imago up` runs: ports, folders and configuration of every process, as values.

Without a port base the well-known ports are used: MetaQ 8123, RocketMQ 10911 (its fast port two
below, replication one above), admin 8080, RocketMQ's SDKs 8081, name service 9876, ZooKeeper 2181;
broker i of the machine stands 10 (RocketMQ) or 1 (others) further. Where there are several, 8081 is
the second's admin port, and SDKs have 8180 + i. With a base N nothing outside the block that starts
at N is bound: name service N, ZooKeeper N + 1, broker i at N + 10 + 10 i. Brokers are counted shard
by shard: replica r of shard k of M replicas is broker k M + r.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from imago_broker.cluster.settings import CoordinatorConfig
from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PORT_MAX = 65535
BROKERS_MAX = 64
"""Processes on one machine; a mistyped number must not start a thousand."""

HOST = "127.0.0.1"
NO_ZOOKEEPER = "none"
OWN_ZOOKEEPER = "auto"

OWNED_KEYS: Mapping[str, str] = {
    "broker.cluster": "--cluster",
    "broker.shard": "--shards",
    "broker.replicas": "--replicas",
    "broker.replica": "--replicas",
    "broker.data_dir": "--data",
    "metaq.port": "--port-base",
    "rocketmq.port": "--port-base",
    "rocketmq.fast_port": "--port-base",
    "rocketmq.grpc_port": "--port-base",
    "replication.port": "--port-base",
    "admin.port": "--port-base",
    "namesrv.port": "--port-base",
    "namesrv.enabled": "--zookeeper",
    "zookeeper.connect": "--zookeeper",
}
"""Keys that differ from broker to broker or belong together, and the flag that decides them."""


class BrokerPlace(NamedTuple):
    """Which broker: its shard, and its number there."""

    shard: int
    replica: int

    @property
    def name(self) -> str:
        """Name of its process, its folder and its files; the first has the shard's name alone."""
        return f"shard-{self.shard}-{self.replica}" if self.replica else f"shard-{self.shard}"


_ENSEMBLE = re.compile(r"[^\s,/]+:[0-9]{1,5}(,[^\s,/]+:[0-9]{1,5})*(/\S*)?")


def _check_zookeeper(said: str, brokers: int) -> None:
    if said == NO_ZOOKEEPER and brokers > 1:
        raise CommandUsageError(
            f"--zookeeper none runs exactly one broker, not {brokers}",
            cure="--zookeeper auto starts a ZooKeeper here; or give the address of yours, or"
            " another --data: a folder keeps the shards and members that it was made with",
        )
    if said not in (NO_ZOOKEEPER, OWN_ZOOKEEPER) and not _ENSEMBLE.fullmatch(said):
        raise CommandUsageError(f"--zookeeper {said}: must be auto, none or HOST:PORT[,HOST:PORT…]")


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """Ports of one broker process."""

    metaq: int
    rocketmq: int
    admin: int
    grpc: int

    @property
    def fast(self) -> int:
        """What RocketMQ clients compute by themselves."""
        return self.rocketmq - 2

    @property
    def replication(self) -> int:
        return self.rocketmq + 1


class Present(NamedTuple):
    """What is only known of a broker while it runs."""

    pid: int
    replica: int
    """The number that the registry gave its data folder."""
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """One cluster on this machine."""

    data: Path
    cluster: str
    shards: int
    zookeeper: str
    """`auto`, `none`, or the addresses of an ensemble that is there already."""
    port_base: int | None
    replicas: int = 1
    """Members of each shard."""

    def __post_init__(self) -> None:
        for flag, number in (("--shards", self.shards), ("--replicas", self.replicas)):
            if not 1 <= number <= BROKERS_MAX:
                raise CommandUsageError(f"{flag} {number}: must be 1 to {BROKERS_MAX}")
        brokers = self.shards * self.replicas
        if brokers > BROKERS_MAX:
            raise CommandUsageError(f"{brokers} brokers are more than this machine is asked to run")
        _check_zookeeper(self.zookeeper, brokers)
        try:
            CoordinatorConfig(cluster=self.cluster)
        except ValueError as error:
            raise CommandUsageError(f"--cluster: {error}") from error
        ports = [port for _, port in self.ports()]
        if len(set(ports)) < len(ports):
            raise CommandUsageError(
                f"{brokers} brokers do not fit between the well-known ports",
                cure="give a --port-base",
            )
        if min(ports) < 1 or max(ports) > PORT_MAX:
            raise CommandUsageError(
                f"--port-base {self.port_base}: its block would end at {max(ports)}",
                cure=f"a block of ports is between 1 and {PORT_MAX}",
            )

    @property
    def namesrv_port(self) -> int:
        return 9876 if self.port_base is None else self.port_base

    @property
    def zookeeper_port(self) -> int:
        return 2181 if self.port_base is None else self.port_base + 1

    @property
    def zookeeper_connect(self) -> str:
        """The processes' `--zookeeper`: `none`, or its address."""
        return f"{HOST}:{self.zookeeper_port}" if self.own_zookeeper else self.zookeeper

    @property
    def own_zookeeper(self) -> bool:
        return self.zookeeper == OWN_ZOOKEEPER

    def places(self) -> Iterator[BrokerPlace]:
        """All brokers, in the order in which they are counted."""
        for shard in range(self.shards):
            for replica in range(self.replicas):
                yield BrokerPlace(shard, replica)

    def broker_ports(self, place: BrokerPlace) -> BrokerPorts:
        """Ports of one broker."""
        number = place.shard * self.replicas + place.replica
        if self.port_base is None:
            grpc = 8081 if self.shards * self.replicas == 1 else 8180 + number
            return BrokerPorts(8123 + number, 10911 + 10 * number, 8080 + number, grpc)
        first = self.port_base + 10 + 10 * number
        return BrokerPorts(metaq=first + 1, rocketmq=first + 2, admin=first + 4, grpc=first + 5)

    def broker_data(self, place: BrokerPlace) -> Path:
        return self.data / place.name

    def ports(self) -> Iterator[tuple[str, int]]:
        """Every port that will be bound on this machine, with what it is for."""
        yield "the name service", self.namesrv_port
        if self.own_zookeeper:
            yield "ZooKeeper", self.zookeeper_port
        for place in self.places():
            ports = self.broker_ports(place)
            yield f"MetaQ of {place.name}", ports.metaq
            yield f"RocketMQ of {place.name}", ports.rocketmq
            yield f"RocketMQ's fast port of {place.name}", ports.fast
            yield f"replication of {place.name}", ports.replication
            yield f"the admin interface of {place.name}", ports.admin
            yield f"RocketMQ's SDKs of {place.name}", ports.grpc

    def broker_tree(self, place: BrokerPlace, base: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Configuration of one broker: what the base says, and what belongs to the plan."""
        ports = self.broker_ports(place)
        ours = {
            "broker": {
                "cluster": self.cluster,
                "shard": place.shard,
                "replica": place.replica,
                "replicas": self.replicas,
                "data_dir": str(self.broker_data(place)),
            },
            "metaq": {"port": ports.metaq},
            "rocketmq": {
                "port": ports.rocketmq,
                "fast_port": ports.fast,
                "grpc_port": ports.grpc,
            },
            "replication": {"port": ports.replication},
            "admin": {"loopback_trusted": True, **base.get("admin", {}), "port": ports.admin},
            "namesrv": self._namesrv_section(enabled=self.zookeeper == NO_ZOOKEEPER),
            "zookeeper": {"connect": self.zookeeper_connect},
        }
        return merged(base, ours)

    def namesrv_tree(self, base: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Configuration of the name service's own process."""
        ours = {
            "broker": {"cluster": self.cluster, "replicas": self.replicas},
            "namesrv": self._namesrv_section(enabled=True),
            "zookeeper": {"connect": self.zookeeper_connect},
        }
        return merged(base, ours)

    def _namesrv_section(self, *, enabled: bool) -> dict[str, Any]:
        return {"enabled": enabled, "port": self.namesrv_port}

    def ready_broker(self, place: BrokerPlace, *, host: str, now: Present) -> dict[str, Any]:
        """The broker's entry of the ready line."""
        ports = self.broker_ports(place)
        return {
            "shard": f"shard-{place.shard}",
            "replica": now.replica,
            "pid": now.pid,
            "role": now.role,
            "metaq": f"{host}:{ports.metaq}",
            "rocketmq": f"{host}:{ports.rocketmq}",
            "fast": f"{host}:{ports.fast}",
            "grpc": f"{host}:{ports.grpc}",
            "replication": f"{host}:{ports.replication}",
            "admin": f"http://{host}:{ports.admin}",
            "data": str(self.broker_data(place)),
        }

    def ready(self, host: str, present: Mapping[BrokerPlace, Present]) -> dict[str, Any]:
        """The ready line."""
        brokers = [
            self.ready_broker(place, host=host, now=present[place]) for place in self.places()
        ]
        return {
            "ready": True,
            "namesrv": f"{host}:{self.namesrv_port}",
            "zookeeper": self.zookeeper_connect,
            "data": str(self.data),
            "brokers": brokers,
        }


def refuse_owned_keys(assignments: Sequence[str], *, option: str = "--set") -> None:
    """Refuse settings of what a flag decides."""
    for assignment in assignments:
        key = assignment.partition("=")[0].strip()
        if flag := OWNED_KEYS.get(key):
            raise CommandUsageError(f"{option} {key}: {flag} decides this for every process")


def local_base() -> dict[str, dict[str, Any]]:
    """Settings of a cluster on one machine: it talks to itself, nobody else is let in.

    Its disk is its user's, and mostly full of other things: the cluster takes puts to the last
    percent, and deletes nothing for what others wrote.
    """
    return {
        "broker": {"host": HOST, "bind": HOST},
        "store": {"disk_clean_ratio": 0.97, "disk_force_ratio": 0.99, "disk_full_ratio": 0.99},
    }


def merged(base: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return `base` with what `ours` says in its place, key by key."""
    return {
        section: {**base.get(section, {}), **ours.get(section, {})}
        for section in dict.fromkeys([*base, *ours])
    }
