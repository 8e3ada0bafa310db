"""What keys of different sections have to do with each other: as data, for the operator too."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Final, Protocol

from imago_broker.config.key_rules import (
    LOOPBACK,
    Holds,
    KeyValue,
    Relation,
    is_loopback,
    relations_problem,
)
from imago_broker.config.sections.section import is_pattern
from imago_wire.records.record import blank_record, record_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from imago_broker.config.sections.client_listeners import ListenerSetting
    from imago_broker.config.sections.cluster_sections import ZookeeperSection
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.config.sections.sections import (
        AdminSection,
        BrokerSection,
        LimitsSection,
        NamesrvSection,
        RocketmqSection,
        StoreSection,
    )
    from imago_broker.config.sections.security_sections import (
        AclSection,
        SecuritySection,
        TlsSection,
    )

HOST_BYTES_MAX: Final = 20
RECORD_BYTES_AROUND_BODY: Final = record_size(
    255, 32767, 0, born_host_size=HOST_BYTES_MAX, store_host_size=HOST_BYTES_MAX
) + len(blank_record(0))
"""Most that a log file needs besides the body: topic, properties, and the file's last record."""

ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104  compared, not bound

_METAQ_ID_MAX: Final = 1023
_CERTIFICATE: Final = Holds("tls.certificate_file", "!=")
_NO_CLIENT_CA: Final = Holds("tls.client_ca_file", "==")


def _fits_into_a_file(key: str) -> Relation:
    return Relation(
        (),
        (Holds(key, "<=", of="store.segment_bytes_max", plus=RECORD_BYTES_AROUND_BODY),),
        f"{key}: {{{key}}}, does not fit into a file of the log: lower it, or set"
        " store.segment_bytes_max = {needed} or more (it is {store.segment_bytes_max})",
    )


def _needs_certificate(said: str, asked: Holds) -> Relation:
    text = f"{said}: needs a certificate: set tls.certificate_file and tls.key_file"
    return Relation((asked,), (_CERTIFICATE,), text)


def _goes_with(key: str, other: str, says: str) -> Iterator[Relation]:
    for one, missing in ((key, other), (other, key)):
        yield Relation((Holds(one, "!="),), (Holds(missing, "!="),), says)


RELATIONS: Final[tuple[Relation, ...]] = (
    Relation(
        (),
        (Holds("metaq.broker_id_base", "<=", _METAQ_ID_MAX, plus_of="broker.shard"),),
        f"metaq.broker_id_base + broker.shard: must be at most {_METAQ_ID_MAX}",
    ),
    _fits_into_a_file("rocketmq.message_bytes_max"),
    _fits_into_a_file("metaq.message_bytes_max"),
    *(
        Relation(
            (),
            (Holds(low, "<=", of=high),),
            f"{low}: {{{low}}}, must be at most {high} = {{{high}}}",
        )
        for low, high in (
            ("store.disk_clean_ratio", "store.disk_force_ratio"),
            ("store.disk_force_ratio", "store.disk_full_ratio"),
        )
    ),
    Relation(
        (Holds("limits.input_bytes_total_max", "!=", 0),),
        (Holds("limits.input_bytes_total_max", ">=", of="rocketmq.frame_bytes_max"),),
        "limits.input_bytes_total_max: {limits.input_bytes_total_max}, does not hold one frame: set"
        " 0 or at least rocketmq.frame_bytes_max = {rocketmq.frame_bytes_max}",
    ),
    Relation(
        (Holds("broker.replicas", ">=", 2),),
        (Holds("zookeeper.connect", "!=", "none"),),
        "broker.replicas: {broker.replicas}, needs a registry: set zookeeper.connect",
    ),
    Relation(
        (Holds("replication.open", "==", True),),
        (Holds("zookeeper.connect", "!=", "none"),),
        "replication.open: true, needs a registry: set zookeeper.connect",
    ),
    Relation(
        (),
        (Holds("replication.min_in_sync", "<=", of="broker.replicas"),),
        "replication.min_in_sync: {replication.min_in_sync}, must be at most broker.replicas ="
        " {broker.replicas}",
    ),
    Relation(
        (
            Holds("broker.replicas", ">=", 2),
            Holds("replication.min_in_sync", "==", 1),
            Holds("acknowledgement.level", "begins", "replicated"),
        ),
        (),
        "replication.min_in_sync: 1, would let one copy stand for {acknowledgement.level}: set 2,"
        " or acknowledgement.level = leader",
    ),
    Relation(
        (Holds("broker.bind", "is", LOOPBACK), Holds("broker.host", "!=")),
        (Holds("broker.host", "is", LOOPBACK),),
        "broker.bind: {broker.bind}, is not where broker.host = {broker.host} is: set broker.bind ="
        " 0.0.0.0, or to that network's address",
    ),
    _needs_certificate("tls.key_file", Holds("tls.key_file", "!=")),
    _needs_certificate("tls.client_auth", Holds("tls.client_auth", "!=", "none")),
    _needs_certificate("tls.client_ca_file", Holds("tls.client_ca_file", "!=")),
    _needs_certificate(
        "tls.admin_client_auth", Holds("tls.admin_client_auth", "in", ("optional", "required"))
    ),
    _needs_certificate("tls.mode = enforcing", Holds("tls.mode", "==", "enforcing")),
    _needs_certificate("tls.metaq_port", Holds("tls.metaq_port", ">=", 0)),
    _needs_certificate(
        "tls.replication = {tls.replication}", Holds("tls.replication", "!=", "disabled")
    ),
    _needs_certificate("tls.calls = enforcing", Holds("tls.calls", "==", "enforcing")),
    Relation(
        (_CERTIFICATE,),
        (Holds("tls.key_file", "!="),),
        "tls.certificate_file: needs its key: set tls.key_file",
    ),
    Relation(
        (_CERTIFICATE, _NO_CLIENT_CA, Holds("tls.client_auth", "!=", "none")),
        (Holds("tls.ca_file", "!="),),
        "tls.client_auth: {tls.client_auth}, needs authorities: set tls.client_ca_file or"
        " tls.ca_file",
    ),
    Relation(
        (
            _CERTIFICATE,
            _NO_CLIENT_CA,
            Holds("tls.admin_client_auth", "in", ("optional", "required")),
        ),
        (Holds("tls.ca_file", "!="),),
        "tls.admin_client_auth: {tls.admin_client_auth}, needs authorities: set tls.client_ca_file"
        " or tls.ca_file",
    ),
    Relation(
        (
            _CERTIFICATE,
            Holds("tls.client_ca_file", "!="),
            Holds("tls.client_auth", "==", "none"),
            Holds("tls.admin_client_auth", "in", ("same", "none")),
        ),
        (),
        "tls.client_ca_file: nobody is asked for a certificate: set tls.client_auth",
    ),
    *_goes_with(
        "zookeeper.tls_certificate_file",
        "zookeeper.tls_key_file",
        "zookeeper.tls_certificate_file: goes with zookeeper.tls_key_file: set both",
    ),
    Relation(
        (Holds("zookeeper.tls_certificate_file", "!="),),
        (Holds("zookeeper.tls_ca_file", "!="),),
        "zookeeper.tls_certificate_file: needs authorities: set zookeeper.tls_ca_file",
    ),
    *_goes_with(
        "zookeeper.user",
        "zookeeper.password_file",
        "zookeeper.user: goes with zookeeper.password_file: set both",
    ),
    Relation(
        (),
        (Holds("zookeeper.user", "lacks", ":"),),
        "zookeeper.user: {zookeeper.user}, must have no colon",
    ),
    Relation(
        (Holds("metaq.slave_id", ">=", 0),),
        (Holds("zookeeper.connect", "!=", "none"),),
        "metaq.slave_id: the master is found in ZooKeeper: set zookeeper.connect",
    ),
    Relation(
        (Holds("metaq.slave_id", ">=", 0),),
        (Holds("metaq.gregor", "==", False),),
        "metaq.gregor: does not go with metaq.slave_id, which is another kind of slave",
    ),
    Relation(
        (Holds("metaq.samsa_slave", "!="),),
        (Holds("metaq.gregor", "==", False), Holds("metaq.slave_id", "<=", -1)),
        "metaq.samsa_slave: a slave is no master: leave metaq.gregor and slave_id out",
    ),
    Relation(
        (Holds("acl.enabled", "==", True), Holds("admin.enabled", "==", True)),
        (Holds("admin.token_file", "!="),),
        "acl.enabled: needs an administrator's token: set admin.token_file",
    ),
    Relation(
        (Holds("security.allow_open", "==", False), Holds("acl.enabled", "==", False)),
        (Holds("broker.bind", "is", LOOPBACK),),
        "security.allow_open: false, and all that reach {broker.bind} may send, read and"
        " administer: set acl.enabled = true, bind loopback (broker.bind = 127.0.0.1), or set"
        " security.allow_open = true",
    ),
    Relation(
        (Holds("security.allow_open", "==", False), Holds("acl.audit", "==", True)),
        (Holds("broker.bind", "is", LOOPBACK),),
        "security.allow_open: false, and all that reach {broker.bind} may send, read and"
        " administer: set acl.audit = false, bind loopback (broker.bind = 127.0.0.1), or set"
        " security.allow_open = true",
    ),
    Relation(
        (Holds("token_review.url", "!="),),
        (Holds("token_review.token_file", "!="), Holds("token_review.audience", "!=")),
        "token_review.url: needs token_review.token_file and an audience",
    ),
)


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
    def grpc_port(self) -> int: ...
    @property
    def replication_port(self) -> int: ...
    @property
    def replicates(self) -> bool: ...
    @property
    def listeners(self) -> tuple[ListenerSetting, ...]: ...


def problem(config: Sections) -> str | None:
    """Return what does not go together, with the keys and the cure, or None."""
    return (
        _ports_problem(config)
        or relations_problem(RELATIONS, values(config))
        or _patterns_problem(config)
        or _listeners_problem(config)
    )


def values(config: Sections) -> dict[str, KeyValue]:
    """Return what is in force by `section.key`, with what follows from several keys."""
    found: dict[str, KeyValue] = {}
    for section in fields(config):  # type: ignore[arg-type]  # a dataclass of dataclasses
        part = getattr(config, section.name)
        if is_dataclass(part):
            found |= {f"{section.name}.{key.name}": getattr(part, key.name) for key in fields(part)}
    return found | {
        "acknowledgement.level": config.acknowledgement_level,
        "replication.min_in_sync": config.min_in_sync,
    }


def _patterns_problem(config: Sections) -> str | None:
    """Settings for topics that nobody may make."""
    for name in config.topics:
        if is_pattern(name) and name not in config.metaq.topic_patterns:
            return f"topics.{name}: no put may make such a topic: add it to metaq.topic_patterns"
    return None


def _listeners_problem(config: Sections) -> str | None:
    """Listeners for protocols that are not spoken, and TLS without a certificate."""
    spoken = {
        "namesrv": config.namesrv.enabled,
        "metaq": config.metaq.enabled,
        "rocketmq": config.rocketmq.enabled,
        "grpc": config.grpc_port >= 0,
    }
    for each in config.listeners:
        if missing := next((name for name in each.ports if not spoken[name]), None):
            return f"broker.listeners: {each.name} has {missing}, which this broker does not serve"
        if each.tls and not config.tls.certificate_file:
            return (
                f"broker.listeners: {each.name} needs a certificate: set tls.certificate_file and"
                " tls.key_file"
            )
    told = config.metaq.listener
    if told and not any(each.name == told and "metaq" in each.ports for each in config.listeners):
        return f"metaq.listener: {told}, is none of broker.listeners with a port for metaq"
    return None


def is_open(config: Sections) -> bool:
    """Whether other machines reach listeners that let everybody do everything."""
    return not config.acl.refuses and not is_loopback(config.broker.bind)


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
        bound.append(("rocketmq.grpc_port", bind, config.grpc_port))
    if config.replicates:
        bound.append(("replication.port", bind, config.replication_port))
    if config.namesrv.enabled:
        bound.append(("namesrv.port", bind, config.namesrv.port))
    if config.admin.enabled:
        bound.append(("admin.port", config.admin.bind or bind, config.admin.port))
    for each in config.listeners:
        for protocol, port in each.ports.items():
            bound.append((f"broker.listeners {each.name} {protocol}", bind, port))
    return bound
