"""Sections of a broker's configuration: every key with default, range and meaning.

A key's documentation is in its field, so that `imago config`, the admin interface and an
error message all say the same. `dynamic` keys may change while the broker runs; all others
need a restart.
"""

from __future__ import annotations

from dataclasses import dataclass

from imago_broker.config.cron import Cron, cron_pattern
from imago_broker.config.key_rules import SHOWN
from imago_broker.config.sections.client_listeners import parse_listeners
from imago_broker.config.sections.section import check, setting

DELAYS = r"\s*[0-9]{1,9}[smhd](\s+[0-9]{1,9}[smhd]){0,17}\s*"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSection:
    """Who this broker is and where it listens."""

    cluster: str = setting("imago", "Name of the cluster; the registry's folder.", form=SHOWN)
    shard: int = setting(0, "Number of the shard this broker belongs to.", low=0, high=1023)
    replica: int = setting(
        -1,
        "Number wanted in the shard when the data folder is new and nobody has it; -1: the next.",
        low=-1,
        high=255,
    )
    replicas: int = setting(
        1,
        "Members that the shard is meant to have; more than one need ZooKeeper.",
        low=1,
        high=16,
        dynamic=True,
    )
    zone: str = setting(
        "", "Rack or zone of this machine: members are spread over zones.", form=SHOWN, dynamic=True
    )
    name_prefix: str = setting("", "Prefix of `shard-k` in RocketMQ's broker name.", form=SHOWN)
    host: str = setting(
        "",
        "Address by which clients and other brokers reach this one; empty: `bind`, or the "
        "machine's where that is any.",
        form=SHOWN,
    )
    advertised_host: str = setting(
        "",
        "Address that clients receive, if they reach this broker by another way than brokers"
        " reach each other; empty: `host`.",
        form=SHOWN,
    )
    listeners: tuple[str, ...] = setting(
        (),
        "Further listeners, for clients that come another way: each tells its clients addresses of "
        "its own, of all brokers. Written `NAME host=HOST namesrv=PORT metaq=PORT rocketmq=PORT "
        "grpc=PORT`; `PORT:TOLD` where clients are told another port; `tls`: nobody is served "
        "there without it.",
    )
    listener_hosts_file: str = setting(
        "",
        "File with the hosts of those listeners that name none, a line `NAME=HOST` each; read "
        "again when it changes. A listener's clients are not told of brokers without a host there.",
    )
    bind: str = setting(
        "127.0.0.1",
        "Address that the listeners bind; `0.0.0.0`: all, for clients and members on other "
        "machines.",
    )
    data_dir: str = setting("data", "Folder of the log and everything else on disk.")
    drain_seconds: float = setting(
        10.0, "How long a stop waits for answers in flight.", low=0, high=3600
    )
    seal_linger_ms: int = setting(
        35_000,
        "How long a topic that leaves this shard accepts messages of producers with old routes;"
        " RocketMQ's read routes every 30 s.",
        low=0,
        high=3_600_000,
        dynamic=True,
    )

    def __post_init__(self) -> None:
        check(self)
        parse_listeners(self.listeners)


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketmqSection:
    """The remoting protocol of RocketMQ."""

    enabled: bool = setting(True, "Whether the RocketMQ listeners are opened.")
    port: int = setting(10911, "Port of the listener; 0: any free one.", low=0, high=65535)
    advertised_port: int = setting(
        0, "Port that RocketMQ clients receive; 0: the listener's.", low=0, high=65535
    )
    fast_port: int = setting(
        -1,
        "Port of the second listener; -1: two below `port`, which is what clients compute.",
        low=-1,
        high=65535,
    )
    grpc_enabled: bool = setting(True, "Whether RocketMQ 5's SDKs, which speak gRPC, are served.")
    grpc_port: int = setting(
        -1,
        "Port of RocketMQ 5's SDKs; 0: any free one; -1: 8081 where `port` is 10911, any free one "
        "where it is 0, and none elsewhere: brokers that share a machine need a port each.",
        low=-1,
        high=65535,
    )
    grpc_advertised_port: int = setting(
        0, "Port that RocketMQ 5's SDKs receive; 0: the listener's.", low=0, high=65535
    )
    frame_bytes_max: int = setting(16 << 20, "Largest frame.", low=65536, high=64 << 20)
    message_bytes_max: int = setting(
        4 << 20, "Largest message body.", low=1, high=16 << 20, dynamic=True
    )
    region: str = setting(
        "DefaultRegion",
        "MSG_REGION of every send answer, and with `trace_on` of each message outside batches.",
    )
    trace_on: bool = setting(
        True, "TRACE_ON of every send answer, of every message too where it is false."
    )
    auto_create_topic: bool = setting(
        True, "Whether a send to an unknown topic creates it as TBW102 says.", dynamic=True
    )
    auto_create_group: bool = setting(
        True, "Whether an unknown consumer group is created at first use.", dynamic=True
    )
    default_queues: int = setting(
        8, "Queues of TBW102, the most that a created topic gets.", low=1, high=65536
    )
    pull_hold_ms_max: int = setting(
        30_000, "Longest time a pull is held.", low=0, high=600_000, dynamic=True
    )
    pull_holds_max: int = setting(100_000, "Most pulls held at one moment.", low=0)
    property_filter: bool = setting(
        True,
        "Whether consumers may filter by SQL92 over properties; RocketMQ's enablePropertyFilter.",
        dynamic=True,
    )
    light_queues: bool = setting(
        False,
        "Whether a message goes to the light queues, too, that its property INNER_MULTI_DISPATCH "
        "names; RocketMQ's enableLmq and enableMultiDispatch.",
        dynamic=True,
    )
    light_queues_max: int = setting(
        20_000,
        "Most light queues of a shard; RocketMQ's maxLmqConsumeQueueNum.",
        low=0,
        high=1_000_000,
        dynamic=True,
    )
    delay_levels: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "The delay of each level, from level 1 on. What waits at a level that there is no more is"
        " delivered as the last says.",
        pattern=DELAYS,
        written="up to 18 times with their units s, m, h or d, like 1s 5s 2m 1h",
    )
    timer_delay_ms_max: int = setting(
        72 * 3600 * 1000,
        "How far ahead the time may be that a message names for its delivery; 0: none may.",
        low=0,
        high=7 * 24 * 3600 * 1000,
        dynamic=True,
    )
    recall_enabled: bool = setting(
        True, "Whether producers may take back messages that are not due yet.", dynamic=True
    )
    store_replies: bool = setting(
        True, "Whether replies to requests are kept in the cluster's reply topic.", dynamic=True
    )
    fast_failure: bool = setting(
        False,
        "Whether sends that were read and then had to wait for `send_wait_ms_max` are answered as "
        "busy (2); RocketMQ's brokerFastFailureEnable.",
        dynamic=True,
    )
    send_wait_ms_max: int = setting(
        200,
        "How long sends that were read wait, with `fast_failure`; RocketMQ's "
        "waitTimeMillsInSendQueue.",
        low=0,
        high=600_000,
        dynamic=True,
    )
    idle_seconds: int = setting(120, "A connection without traffic is closed after this.", low=1)
    transaction_timeout_ms: int = setting(
        6000,
        "How old a half message is, at least, when its producer is asked what became of it, unless "
        "the message itself says so.",
        low=0,
        high=86_400_000,
        dynamic=True,
    )
    transaction_check_interval_ms: int = setting(
        30_000,
        "Time between two rounds in which producers are asked.",
        low=10,
        high=86_400_000,
        dynamic=True,
    )
    transaction_checks_max: int = setting(
        15,
        "How often a producer is asked about one message before it is put into "
        "`TRANS_CHECK_MAX_TIME_TOPIC`.",
        low=1,
        high=10_000,
        dynamic=True,
    )
    transactions_max: int = setting(
        100_000, "Most open transactions of this broker.", low=0, high=1_000_000, dynamic=True
    )
    transactions_per_group_max: int = setting(
        50_000, "Most open transactions of one group of producers.", low=0, dynamic=True
    )
    transactions_per_user_max: int = setting(
        25_000,
        "Most open transactions of one user; of those who do not say who they are, of one address.",
        low=0,
        dynamic=True,
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvSection:
    """The name service that every broker can answer."""

    enabled: bool = setting(True, "Whether this process answers the name service.")
    port: int = setting(9876, "Port of the name service; 0: any free one.", low=0, high=65535)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminSection:
    """HTTP for health, metrics, administration and the dashboard."""

    enabled: bool = setting(True, "Whether the admin listener is opened.")
    bind: str = setting("", "Address it binds; empty: `broker.bind`.")
    port: int = setting(8080, "Its port; 0: any free one.", low=0, high=65535)
    token_file: str = setting("", "File with the bearer token for administration; empty: no token.")
    loopback_trusted: bool = setting(
        False,
        "Whether callers on this machine need no token, unless a proxy speaks for them; `imago up` "
        "sets it.",
    )

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSection:
    """The log on disk."""

    segment_bytes_max: int = setting(
        256 << 20,
        "Size of one file of the log, taken from the disk when the file is begun. A log keeps the"
        " size that it began with: another one is for new data folders.",
        low=64 << 10,
        high=1 << 31,
    )
    retention_ms: int = setting(
        72 * 3_600_000, "How long messages are kept; 0: for ever.", low=0, dynamic=True
    )
    delete_when: str = setting(
        "",
        "When expired files go: a cron expression with seconds (`0 0 6,18 * * ?`), in the machine's"
        " zone; empty: as soon as they expire.",
        pattern=f"|{cron_pattern()}",
        written="a cron expression that begins with seconds, like 0 0 6,18 * * ?",
    )
    retention_bytes_max: int = setting(
        0, "Size of the log above which its oldest file goes; 0: none.", low=0, dynamic=True
    )
    sync_interval_ms: int = setting(
        200,
        "How long a message may be in the page cache only; 0: as long as the system likes.",
        low=0,
        high=600_000,
        dynamic=True,
    )
    metaq_segment_bytes_max: int = setting(
        1 << 30, "Size at which a file in MetaQ's own format is closed.", low=4096
    )
    scrub_interval_ms: int = setting(
        24 * 3_600_000,
        "Time in which the whole log and its views are verified once; 0: only what is read is.",
        low=0,
    )
    disk_full_ratio: float = setting(
        0.90, "Used part of the disk at which puts are refused.", low=0.05, high=1
    )
    disk_force_ratio: float = setting(
        0.85,
        "Used part of the disk at which the oldest files go before they expire: see"
        " `disk_force_deletes`.",
        low=0.05,
    )
    disk_force_deletes: str = setting(
        "read",
        "Which of them go: read, those of which every group has read all and nothing still has to"
        " come, while no other member has room; oldest, whoever needs them, as RocketMQ does.",
        one_of=("read", "oldest"),
    )
    disk_clean_ratio: float = setting(
        0.75, "Used part of the disk at which health warns.", low=0.05
    )

    def __post_init__(self) -> None:
        check(self, parsed=("delete_when",))
        if self.delete_when:
            Cron.parse(self.delete_when, "delete_when")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsSection:
    """What clients may take."""

    connections_max: int = setting(
        20_000,
        "Connections of one listener. All together have as many as the process may open files "
        "(RLIMIT_NOFILE), less what the store and the other members need.",
        low=1,
    )
    connections_per_address_max: int = setting(
        0,
        "Connections from one address over all listeners together (an IPv6 /64 counts as one); "
        "0: any number but the last eighth of the places. Brokers of the cluster are not held to "
        "it.",
        low=0,
    )
    output_bytes_pause: int = setting(
        256 << 10, "Unsent answers above which a connection is no longer read.", low=4096
    )
    output_bytes_max: int = setting(
        32 << 20, "Unsent answers above which a connection is closed.", low=65536
    )
    output_bytes_total_max: int = setting(
        512 << 20,
        "Unsent answers of all connections above which answers become small, then refused.",
        low=1 << 20,
    )
    input_bytes_total_max: int = setting(
        0,
        "Unfinished commands of all connections above which those that hold more than their share "
        "are not read, and after a second closed; 0: 40 MiB, or an eighth of the memory limit "
        "(cgroup) where that is less, at least one frame.",
        low=0,
    )
    output_stall_seconds: int = setting(
        30, "A peer that reads nothing for this long while answers wait is closed.", low=1
    )
    input_stall_seconds: int = setting(
        30, "An unfinished command older than this closes its connection.", low=1
    )
    topics_max: int = setting(100_000, "Topics of one shard.", low=1, dynamic=True)
    groups_max: int = setting(100_000, "Consumer groups of one shard.", low=1, dynamic=True)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSection:
    """What the process writes about itself."""

    level: str = setting(
        "info",
        "debug, info, warning or error.",
        one_of=("debug", "info", "warning", "error"),
        dynamic=True,
    )
    format: str = setting(
        "text",
        "text, or json: an object a line, with the names of docs/reference/events.md.",
        one_of=("text", "json"),
    )

    def __post_init__(self) -> None:
        check(self)
