"""The settings of MetaQ's protocol."""

from __future__ import annotations

from dataclasses import dataclass

from imago_broker.config.sections.section import check, setting
from imago_wire.errors import WrongError

TOPIC_PATTERN = r"[*%|A-Za-z0-9_-][*%|A-Za-z0-9_.-]{0,126}"
"""A topic's name in which a `*` may stand for any."""
_PORT = (
    "0{0,4}[1-9]|0{0,3}[1-9][0-9]|0{0,2}[1-9][0-9]{2}|0?[1-9][0-9]{3}|[1-5][0-9]{4}|6[0-4][0-9]{3}"
)
ROOT = r"(/[^/\x00-\x1f\x7f-\x9f\s]+)+"
HOST_AND_PORT = rf"(.+:({_PORT}|65[0-4][0-9]{{2}}|655[0-2][0-9]|6553[0-5]))?"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaqSection:
    """The text protocol of MetaQ."""

    enabled: bool = setting(True, "Whether the MetaQ listener is opened.")
    port: int = setting(8123, "Port of the MetaQ listener; 0: any free one.", low=0, high=65535)
    advertised_port: int = setting(
        0, "Port that MetaQ clients receive; 0: the listener's.", low=0, high=65535
    )
    listener: str = setting(
        "",
        "Which of `broker.listeners` MetaQ's clients find in ZooKeeper, which has one address of "
        "each broker; empty: none of them, but the broker's own.",
    )
    broker_id_base: int = setting(
        0, "MetaQ broker id of shard 0; raise it beside original brokers.", low=0, high=1023
    )
    zk_root: str = setting(
        "/meta",
        "Root of MetaQ's public tree in ZooKeeper.",
        pattern=ROOT,
        written="a path, like /meta",
    )
    http: bool = setting(
        False,
        "Whether /put, /get and /offset of the admin port serve messages, as MetaQ's plugin"
        " jettyBroker does: without a password, like the text protocol.",
    )
    handshake: bool = setting(
        True,
        "With `acl.enabled`: whether our own clients may prove whose they are with a user's"
        " password, which does not travel. MetaQ's own know no such thing.",
        dynamic=True,
    )
    server_ini: str = setting(
        "",
        "MetaQ's `server.ini`, read at the start and again whenever it changes; what this file and"
        " the environment say wins over it.",
    )
    stop_linger_ms: int = setting(
        0,
        "How long an orderly stop still serves MetaQ's clients after it has left ZooKeeper, so that"
        " they can move.",
        low=0,
        high=600_000,
        dynamic=True,
    )
    version: str = setting("1.4.6.2", "What `version` and `stats` answer.")
    auto_create_topic: bool = setting(
        False, "Whether a put to any unknown topic creates it.", dynamic=True
    )
    topic_patterns: tuple[str, ...] = setting(
        (),
        "Topics accepted when auto_create_topic is off: names in which * matches anything.",
        pattern=TOPIC_PATTERN,
        written="names of letters, digits and _ - % | . with * for anything, like logs-*",
        dynamic=True,
    )
    default_partitions: int = setting(
        8, "Partitions of a topic that a MetaQ put creates.", low=1, high=65536, dynamic=True
    )
    message_bytes_max: int = setting(
        2 << 20,
        "Largest body a put may have. MetaQ's own consumers cannot read more than 2 MiB.",
        low=1,
        high=16 << 20,
    )
    transfer_bytes_max: int = setting(
        1 << 20, "Most bytes of one `get` answer, unless one message is larger.", low=1024
    )
    line_bytes_max: int = setting(4096, "Longest command line.", low=256, high=65536)
    idle_seconds: int = setting(
        120,
        "A connection without traffic is closed after this; clients beat every 10 s.",
        low=1,
    )
    stat: bool = setting(
        False,
        "Whether topics without a setting of their own have real-time statistics.",
        dynamic=True,
    )
    update_consumer_offsets: bool = setting(
        False,
        "Whether a `get` beyond the end receives the end (301) instead of 404.",
        dynamic=True,
    )
    slave_id: int = setting(
        -1,
        "From 0 on: copy the original MetaQ master that has this shard's broker id, as its"
        " asynchronous slave of this number (`metaslave`), and take no other messages.",
        low=-1,
        high=1_000_000,
    )
    slave_group: str = setting(
        "", "Group in whose name the master is asked; empty: meta-slave-group_ and the number."
    )
    slave_delay_ms_max: int = setting(
        500,
        "Longest time between two questions for what is new in a partition of the master.",
        low=1,
        high=60_000,
        dynamic=True,
    )
    slave_sync_config: bool = setting(
        False,
        "Whether topics copied from an original master have the settings of its `server.ini`, now"
        " and whenever it changes (`autoSyncMasterConfig`).",
    )
    gregor: bool = setting(
        False,
        "Whether this broker is the `gregor` slave of an original `samsa` master: it takes what"
        " that sends by `sync`, nothing else, and is not in MetaQ's tree.",
    )
    samsa_slave: str = setting(
        "",
        "`host:port` of a `gregor` slave, an original one or of ours: this broker is its `samsa`"
        " master, and a put is answered when both have it.",
        pattern=HOST_AND_PORT,
        written="host:port, like gregor.example:8123",
    )
    samsa_timeout_ms: int = setting(
        2000, "How long the gregor slave may take for a message.", low=1, high=600_000, dynamic=True
    )
    samsa_failures_max: int = setting(
        100,
        "After so many messages one after the other that the slave did not take, puts are refused"
        " until it takes one again.",
        low=1,
        dynamic=True,
    )
    transactions_max: int = setting(
        10_000,
        "Most transactions, local and XA, that are open or prepared; as many more that a person has"
        " decided about are kept.",
        low=1,
        dynamic=True,
    )
    transactions_per_name_max: int = setting(
        5_000,
        "Most of them with one session id, or one unique qualifier.",
        low=1,
        dynamic=True,
    )
    transactions_per_user_max: int = setting(
        5_000,
        "Most of them that one user has begun; of those who do not say who they are, one address.",
        low=1,
        dynamic=True,
    )
    transaction_messages_max: int = setting(
        10_000, "Most messages of one transaction.", low=1, dynamic=True
    )
    transaction_bytes_max: int = setting(
        32 << 20, "Most bytes of one transaction.", low=1024, dynamic=True
    )
    transactions_bytes_max: int = setting(
        256 << 20,
        "Most bytes of all transactions that are not prepared: they are in memory.",
        low=1024,
        dynamic=True,
    )
    transactions_bytes_per_user_max: int = setting(
        128 << 20, "Most of these bytes of one user, or address.", low=1024, dynamic=True
    )
    transaction_timeout_seconds_max: int = setting(
        60,
        "Longest time after which a transaction that is not prepared is rolled back, where its "
        "producer asks for a time.",
        low=1,
        dynamic=True,
    )

    def __post_init__(self) -> None:
        check(self, parsed=("topic_patterns", "samsa_slave"))
        host, _, port = self.samsa_slave.rpartition(":")
        number = int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else 0
        if self.samsa_slave and not (host and 0 < number < 65536):
            raise WrongError(f"samsa_slave: {self.samsa_slave!r}, must be host:port")
