"""The sections about what several brokers do together: registry, replication, acknowledgement."""

from __future__ import annotations

from dataclasses import dataclass

from imago_broker.config.key_rules import NETWORKS
from imago_broker.config.sections.section import LEVELS, check, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSection:
    """How the members of a shard keep the same log."""

    port: int = setting(
        -1,
        "Port; -1: RocketMQ's port + 1. Advertised; opened by shards of more than one member.",
        low=-1,
        high=65535,
    )
    open: bool = setting(
        False,
        "Whether the port is open where `broker.replicas` is 1, too: others may join the shard"
        " before it counts on them.",
        dynamic=True,
    )
    min_in_sync: int = setting(
        0,
        "In-sync members below which puts that wait for replicas are refused; 0: 2 where"
        " `broker.replicas` is 2 or more, else 1.",
        low=0,
        high=255,
        dynamic=True,
    )
    lag_ms_max: int = setting(
        2000,
        "How far behind a member may be before it leaves the in-sync set.",
        low=100,
        high=600_000,
    )
    lost_ms_max: int = setting(
        500, "How long a member may be gone before it leaves the in-sync set.", low=50, high=60_000
    )
    slave_reads: bool = setting(False, "Whether members that do not lead serve reads.")
    handover_linger_ms: int = setting(
        35_000,
        "How long a former master relays its clients' connections after a planned handover.",
        low=0,
        high=600_000,
    )
    catch_up_bytes_per_second_max: int = setting(
        0, "Most bytes a second sent to one member that is far behind; 0: no limit.", low=0
    )

    peer_networks: str = setting(
        "",
        "Networks (`10.1.0.0/16,…`) from which members may call besides their registered"
        " addresses: where these are translated.",
        form=NETWORKS,
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperSection:
    """The registry."""

    connect: str = setting("none", "`none`, or host:port[,host:port…][/chroot].")
    session_timeout_ms: int = setting(
        6000,
        "Session time-out; every server has to grant it.",
        low=2000,
        high=120_000,
    )
    connect_timeout_ms: int = setting(
        15_000, "How long a start waits for the first connection.", low=100
    )
    tls_ca_file: str = setting(
        "",
        "PEM file of the authorities of ZooKeeper's certificates; empty: no TLS. `connect` names"
        " the secure client port then, by the names in the certificates.",
    )
    tls_certificate_file: str = setting(
        "", "PEM file of the certificate that this broker shows to ZooKeeper; empty: none."
    )
    tls_key_file: str = setting("", "PEM file of its key, without a password.")
    user: str = setting("", "User of all brokers in ZooKeeper (scheme digest); empty: none.")
    password_file: str = setting("", "File with its password.")
    protect: bool = setting(
        True,
        "Whether the nodes of the brokers are for `user` alone, and others only read those that"
        " MetaQ's clients need; false while some brokers have no user yet, or before it goes:"
        " then its nodes are everybody's again.",
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementSection:
    """What the answer to a put waits for."""

    level: str = setting(
        "",
        "Level of topics without one of their own: "
        + ", ".join(LEVELS)
        + "; empty: replicated where"
        " `broker.replicas` is 2 or more, else leader.",
        one_of=("", *LEVELS),
        dynamic=True,
    )
    timeout_ms: int = setting(
        5000, "How long a put waits for its level.", low=10, high=600_000, dynamic=True
    )
    in_flight_bytes_max: int = setting(
        256 << 20, "Bytes of puts not yet acknowledged, over which puts are refused.", low=1 << 20
    )

    def __post_init__(self) -> None:
        check(self)
