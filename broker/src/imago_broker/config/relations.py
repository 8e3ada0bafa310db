"""What keys of different sections have to do with each other."""

from __future__ import annotations

import ipaddress
from itertools import combinations
from typing import TYPE_CHECKING, Final, Protocol

from imago_broker.config.section import is_pattern
from imago_wire.record import blank_record, record_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.config.cluster_sections import ZookeeperSection
    from imago_broker.config.metaq_section import MetaqSection
    from imago_broker.config.sections import (
        AdminSection,
        BrokerSection,
        LimitsSection,
        NamesrvSection,
        RocketmqSection,
        StoreSection,
        TlsSection,
    )
    from imago_broker.config.security_sections import AclSection, SecuritySection

HOST_BYTES_MAX: Final = 20
RECORD_BYTES_AROUND_BODY: Final = record_size(
    255, 32767, 0, born_host_size=HOST_BYTES_MAX, store_host_size=HOST_BYTES_MAX
) + len(blank_record(0))
"""Most that a log file needs besides the body: topic, properties, and the file's last record."""

ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104  compared, not bound


class Sections(Protocol):
    """What is compared: the configuration's sections, and what follows from several of them."""

    @property
    def broker(self) -> BrokerSection: ...
    @property
    def metaq(self) -> MetaqSection: ...
    @property
    def rocketmq(self) -> RocketmqSection: ...
    @property
    def namesrv(self) -> NamesrvSection: ...
    @property
    def admin(self) -> AdminSection: ...
    @property
    def tls(self) -> TlsSection: ...
    @property
    def acl(self) -> AclSection: ...
    @property
    def security(self) -> SecuritySection: ...
    @property
    def zookeeper(self) -> ZookeeperSection: ...
    @property
    def store(self) -> StoreSection: ...
    @property
    def limits(self) -> LimitsSection: ...
    @property
    def topics(self) -> Mapping[str, object]: ...
    @property
    def acknowledgement_level(self) -> str: ...
    @property
    def min_in_sync(self) -> int: ...
    @property
    def fast_port(self) -> int: ...
    @property
    def replication_port(self) -> int: ...


def problem(config: Sections) -> str | None:
    """Return what does not go together, with the keys and the cure, or None."""
    found = _ports_problem(config) or _sizes_problem(config)
    found = found or _replicas_problem(config) or _address_problem(config)
    found = (
        found
        or _tls_problem(config.tls)
        or _zookeeper_problem(config.zookeeper)
        or _patterns_problem(config)
        or _originals_problem(config)
    )
    return found or _access_problem(config)


def _patterns_problem(config: Sections) -> str | None:
    """Settings for topics that nobody may make."""
    for name in config.topics:
        if is_pattern(name) and name not in config.metaq.topic_patterns:
            return f"topics.{name}: no put may make such a topic: add it to metaq.topic_patterns"
    return None


def _originals_problem(config: Sections) -> str | None:
    """Replication with original brokers that cannot be."""
    if config.metaq.slave_id >= 0 and config.zookeeper.connect == "none":
        return "metaq.slave_id: the master is found in ZooKeeper: set zookeeper.connect"
    if config.metaq.slave_id >= 0 and config.metaq.gregor:
        return "metaq.gregor: does not go with metaq.slave_id, which is another kind of slave"
    if config.metaq.samsa_slave:
        if config.metaq.gregor or config.metaq.slave_id >= 0:
            return "metaq.samsa_slave: a slave is no master: leave metaq.gregor and slave_id out"
        host, _, port = config.metaq.samsa_slave.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            return f"metaq.samsa_slave: {config.metaq.samsa_slave!r}, must be host:port"
    return None


def _tls_problem(tls: TlsSection) -> str | None:
    """TLS is asked for without what it needs."""
    if not tls.certificate_file:
        for key, asked in (
            ("tls.key_file", bool(tls.key_file)),
            ("tls.client_auth", tls.client_auth != "none"),
            ("tls.client_ca_file", bool(tls.client_ca_file)),
            ("tls.admin_client_auth", tls.admin_client_auth not in ("same", "none")),
            ("tls.mode = enforcing", tls.mode == "enforcing"),
            ("tls.metaq_port", tls.metaq_port >= 0),
            (f"tls.replication = {tls.replication}", tls.replication != "disabled"),
            ("tls.calls = enforcing", tls.calls == "enforcing"),
        ):
            if asked:
                return f"{key}: needs a certificate: set tls.certificate_file and tls.key_file"
        return None
    if not tls.key_file:
        return "tls.certificate_file: needs its key: set tls.key_file"
    wanted = tls.client_auth if tls.client_auth != "none" else tls.asked_of_admin
    if wanted != "none" and not (tls.client_ca_file or tls.ca_file):
        key = "client_auth" if tls.client_auth != "none" else "admin_client_auth"
        return f"tls.{key}: {wanted}, needs authorities: set tls.client_ca_file or tls.ca_file"
    if tls.client_ca_file and wanted == "none":
        return "tls.client_ca_file: nobody is asked for a certificate: set tls.client_auth"
    return None


def _access_problem(config: Sections) -> str | None:
    """There is nobody who could make users, or the broker is open and must not be."""
    if config.acl.enabled:
        if config.admin.enabled and not config.admin.token_file:
            return "acl.enabled: needs an administrator's token: set admin.token_file"
        return None
    if not config.security.allow_open and is_open(config):
        return (
            f"security.allow_open: false, and all that reach {config.broker.bind} may send, read"
            " and administer: set acl.enabled = true, bind loopback (broker.bind = 127.0.0.1), or"
            " set security.allow_open = true"
        )
    return None


def is_open(config: Sections) -> bool:
    """Whether other machines reach listeners that let everybody do everything."""
    return not config.acl.enabled and not is_loopback(config.broker.bind)


def _address_problem(config: Sections) -> str | None:
    """Others get an address at which nothing listens."""
    bind, host = config.broker.bind, config.broker.host
    if is_loopback(bind) and host and not is_loopback(host):
        return (
            f"broker.bind: {bind}, is not where broker.host = {host} is: set broker.bind = 0.0.0.0,"
            " or to that network's address"
        )
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _sizes_problem(config: Sections) -> str | None:
    segment = config.store.segment_bytes_max
    for key, size in (
        ("rocketmq.message_bytes_max", config.rocketmq.message_bytes_max),
        ("metaq.message_bytes_max", config.metaq.message_bytes_max),
    ):
        needed = size + RECORD_BYTES_AROUND_BODY
        if needed > segment:
            return (
                f"{key}: {size}, does not fit into a file of the log: lower it, or set"
                f" store.segment_bytes_max = {needed} or more (it is {segment})"
            )
    input_max, frame_max = config.limits.input_bytes_total_max, config.rocketmq.frame_bytes_max
    if 0 < input_max < frame_max:
        return (
            f"limits.input_bytes_total_max: {input_max}, does not hold one frame: set 0 or at least"
            f" rocketmq.frame_bytes_max = {frame_max}"
        )
    return None


def _zookeeper_problem(zookeeper: ZookeeperSection) -> str | None:
    """Credentials for ZooKeeper of which a part is missing."""
    shown = (zookeeper.tls_certificate_file, zookeeper.tls_key_file)
    if any(shown) and not all(shown):
        return "zookeeper.tls_certificate_file: goes with zookeeper.tls_key_file: set both"
    if any(shown) and not zookeeper.tls_ca_file:
        return "zookeeper.tls_certificate_file: needs authorities: set zookeeper.tls_ca_file"
    if bool(zookeeper.user) != bool(zookeeper.password_file):
        return "zookeeper.user: goes with zookeeper.password_file: set both"
    if ":" in zookeeper.user:
        return f"zookeeper.user: {zookeeper.user!r}, must have no colon"
    return None


def _replicas_problem(config: Sections) -> str | None:
    replicas, least = config.broker.replicas, config.min_in_sync
    if replicas > 1 and config.zookeeper.connect == "none":
        return f"broker.replicas: {replicas}, needs a registry: set zookeeper.connect"
    if least > replicas:
        return f"replication.min_in_sync: {least}, must be at most broker.replicas = {replicas}"
    if replicas > 1 and least == 1 and config.acknowledgement_level.startswith("replicated"):
        return (
            "replication.min_in_sync: 1, would let one copy stand for"
            f" {config.acknowledgement_level}: set 2, or acknowledgement.level = leader"
        )
    return None


def _ports_problem(config: Sections) -> str | None:
    for (key, host, port), (other, other_host, other_port) in combinations(_bound(config), 2):
        same_host = host == other_host or host in ANY_HOST or other_host in ANY_HOST
        if port == other_port and port > 0 and same_host:
            return f"{other}: {port} is also {key}; every listener needs a port of its own"
    return None


def _bound(config: Sections) -> list[tuple[str, str, int]]:
    """Return key, address and port of every listener that is opened."""
    bind, bound = config.broker.bind, []
    if config.metaq.enabled:
        bound.append(("metaq.port", bind, config.metaq.port))
        bound.append(("tls.metaq_port", bind, config.tls.metaq_port))
    if config.rocketmq.enabled:
        bound.append(("rocketmq.port", bind, config.rocketmq.port))
        set_apart = config.rocketmq.fast_port >= 0
        key = "rocketmq.fast_port" if set_apart else "rocketmq.port - 2, the fast port"
        bound.append((key, bind, config.fast_port))
    if config.broker.replicas > 1:
        bound.append(("replication.port", bind, config.replication_port))
    if config.namesrv.enabled:
        bound.append(("namesrv.port", bind, config.namesrv.port))
    if config.admin.enabled:
        bound.append(("admin.port", config.admin.bind or bind, config.admin.port))
    return bound
