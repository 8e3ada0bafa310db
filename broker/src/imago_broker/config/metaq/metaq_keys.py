"""Every key of MetaQ's ``server.ini`` with what it does here: kept, met, or refused; none ignored.

The page `docs/metaq.md` has its table from here.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from imago_broker.config.sections.section import FILTER_PREFIX

PIPE, ESCAPED = "|", "\\|"
"""In a table of a page."""


class KeyEffect(Enum):
    """What becomes of a key."""

    KEPT = "kept"
    """It does what it does in MetaQ."""
    NEAREST = "nearest"
    """It does what comes nearest to it in a broker of one log."""
    MET = "met"
    """Every value that it may have is kept to without doing anything; others are refused."""
    REFUSED = "refused"
    """It says what cannot be had here: the file is refused, with the reason and the cure."""


class IniKey(NamedTuple):
    """One key."""

    name: str
    effect: KeyEffect
    setting: str
    """Ours, `section.key`, or what it is of a topic; "": none."""
    meaning: str
    reload: bool = False
    """Whether a changed value takes effect without a restart."""


SYSTEM: Final = (
    IniKey("brokerId", KeyEffect.KEPT, "metaq.broker_id_base", "MetaQ's number of shard 0"),
    IniKey("hostName", KeyEffect.KEPT, "broker.host", "the address that ZooKeeper shows"),
    IniKey("serverPort", KeyEffect.KEPT, "metaq.port", "the port of the text protocol"),
    IniKey(
        "dashboardHttpPort",
        KeyEffect.KEPT,
        "admin.port",
        "the port of the dashboard and of administration",
    ),
    IniKey("dataPath", KeyEffect.KEPT, "broker.data_dir", "the folder of the log and all else"),
    IniKey(
        "dataLogPath",
        KeyEffect.MET,
        "",
        "transactions are in the log: accepted where it names `dataPath`, else refused",
    ),
    IniKey(
        "appClassPath",
        KeyEffect.REFUSED,
        "",
        "Java classes do not run here: filters are expressions, see `group.<group>`",
    ),
    IniKey(
        "numPartitions",
        KeyEffect.KEPT,
        "metaq.default_partitions",
        "partitions of topics that name none, and of those that a put makes",
        True,
    ),
    IniKey(
        "unflushThreshold",
        KeyEffect.NEAREST,
        "acknowledgement.level",
        "0 or less: a put is answered when it is on the device (`leader-fsync`); above: when it is"
        " written (`leader`). How many puts may wait for the device is bounded by time alone",
        True,
    ),
    IniKey(
        "unflushInterval",
        KeyEffect.NEAREST,
        "store.sync_interval_ms",
        "longest time that a message is in the page cache only; the shortest that the file names,"
        " since one log holds all topics. Messages are readable at once",
        True,
    ),
    IniKey(
        "maxSegmentSize",
        KeyEffect.KEPT,
        "store.metaq_segment_bytes_max",
        "size at which a file in MetaQ's format is closed",
    ),
    IniKey(
        "maxTransferSize",
        KeyEffect.KEPT,
        "metaq.transfer_bytes_max",
        "most bytes of an answer to `get`, unless one message is larger",
    ),
    IniKey(
        "getProcessThreadCount",
        KeyEffect.MET,
        "",
        "at most so many threads answer `get`: one does. From 1",
    ),
    IniKey(
        "putProcessThreadCount",
        KeyEffect.MET,
        "",
        "at most so many threads answer `put`: one does. From 1",
    ),
    IniKey(
        "deletePolicy",
        KeyEffect.KEPT,
        "store.retention_ms, a topic's retention_ms and metaq_archive",
        "`delete,168`, `archive,24`, `archive,30m,true`: how long messages are kept, and whether"
        " MetaQ's files are renamed (`.arc`) or packed (`.zip`) then. The log keeps them for the"
        " longest time that the file names",
    ),
    IniKey(
        "deleteWhen",
        KeyEffect.KEPT,
        "store.delete_when, a topic's delete_when",
        "when expired files go: a cron expression with seconds; `0 0 6,18 * * ?` unless given",
    ),
    IniKey(
        "quartzThreadCount", KeyEffect.MET, "", "at most so many threads delete: one does. From 1"
    ),
    IniKey(
        "maxCheckpoints",
        KeyEffect.MET,
        "",
        "a start needs one checkpoint, and none where it is damaged. From 1",
    ),
    IniKey(
        "checkpointInterval",
        KeyEffect.MET,
        "",
        "the log's checkpoint is written every second, which is oftener. From 1000",
    ),
    IniKey(
        "maxTxTimeoutTimerCapacity",
        KeyEffect.NEAREST,
        "metaq.transactions_max",
        "most transactions, with a time-out or without, prepared ones too",
        True,
    ),
    IniKey(
        "maxTxTimeoutInSeconds",
        KeyEffect.KEPT,
        "metaq.transaction_timeout_seconds_max",
        "longest time-out of a transaction that is not prepared",
        True,
    ),
    IniKey(
        "flushTxLogAtCommit",
        KeyEffect.NEAREST,
        "acknowledgement.level",
        "a transaction's end is as safe as a put to its topics, see `unflushThreshold`. 0 to 2",
        True,
    ),
    IniKey(
        "acceptPublish",
        KeyEffect.KEPT,
        "a topic's metaq_publish",
        "whether producers find the topics that say nothing else",
        True,
    ),
    IniKey(
        "acceptSubscribe",
        KeyEffect.KEPT,
        "a topic's metaq_subscribe",
        "whether consumers find the topics that say nothing else",
        True,
    ),
    IniKey(
        "stat",
        KeyEffect.KEPT,
        "metaq.stat",
        "whether topics that say nothing else have real-time statistics",
        True,
    ),
    IniKey(
        "updateConsumerOffsets",
        KeyEffect.KEPT,
        "metaq.update_consumer_offsets",
        "whether a `get` beyond the end receives the end (301)",
        True,
    ),
    IniKey(
        "loadMessageStoresInParallel",
        KeyEffect.MET,
        "",
        "there is one log to load, and nothing to do side by side",
    ),
)
ZOOKEEPER: Final = (
    IniKey("zk.zkEnable", KeyEffect.KEPT, "zookeeper.connect", "false: `none`, a broker alone"),
    IniKey("zk.zkRoot", KeyEffect.KEPT, "metaq.zk_root", "root of MetaQ's tree"),
    IniKey("zk.zkConnect", KeyEffect.KEPT, "zookeeper.connect", "ZooKeeper's addresses"),
    IniKey(
        "zk.zkSessionTimeoutMs",
        KeyEffect.KEPT,
        "zookeeper.session_timeout_ms",
        "how long others keep this broker's place when they hear nothing of it",
    ),
    IniKey(
        "zk.zkConnectionTimeoutMs",
        KeyEffect.KEPT,
        "zookeeper.connect_timeout_ms",
        "how long a start waits for ZooKeeper",
    ),
    IniKey(
        "zk.zkSyncTimeMs",
        KeyEffect.KEPT,
        "metaq.stop_linger_ms",
        "how long an orderly stop still serves after it has left the tree, so that clients can"
        " move",
        True,
    ),
)
TOPIC: Final = (
    IniKey("numPartitions", KeyEffect.KEPT, "queues", "partitions; in place of `[system]`", True),
    IniKey(
        "unflushThreshold", KeyEffect.NEAREST, "acknowledgement", "as in `[system]`, for it", True
    ),
    IniKey(
        "unflushInterval",
        KeyEffect.NEAREST,
        "store.sync_interval_ms",
        "as in `[system]`: the shortest of the file holds for all",
        True,
    ),
    IniKey(
        "dataPath",
        KeyEffect.MET,
        "",
        "one log holds all topics: accepted where it names the `dataPath` of `[system]`, else"
        " refused",
    ),
    IniKey(
        "deletePolicy",
        KeyEffect.KEPT,
        "retention_ms, metaq_archive",
        "as in `[system]`, for it",
        True,
    ),
    IniKey("deleteWhen", KeyEffect.KEPT, "delete_when", "as in `[system]`, for it", True),
    IniKey("acceptPublish", KeyEffect.KEPT, "metaq_publish", "whether producers find it", True),
    IniKey("acceptSubscribe", KeyEffect.KEPT, "metaq_subscribe", "whether consumers find it", True),
    IniKey(
        "stat",
        KeyEffect.KEPT,
        "metaq_stat",
        "whether it has real-time statistics; all but `true` is false",
        True,
    ),
    IniKey(
        FILTER_PREFIX + "<group>",
        KeyEffect.NEAREST,
        "group.<group>",
        "what this group gets of the topic: `tags: red || blue` by"
        " attribute, or `sql: TAGS LIKE 'r%'` by SQL92. The name of a Java class is refused",
        True,
    ),
)
WITHOUT_EFFECT_IN_ORIGINAL: Final = (
    "topics",
    "slaveConfig",
    "zkConfig",
    "topicConfigMap",
    "path",
    "lastModified",
    "propertyChangeSupport",
    "configFileChecksum",
    "closedPartitionMap",
)
"""Names that MetaQ's check of keys lets pass by chance. Refused here, as any other unknown key."""


def table() -> str:
    """Return all keys as a table of a page."""
    lines = [
        "| key | here | ours | at reload | what it does |",
        "|---|---|---|---|---|",
    ]
    for section, keys in (("system", SYSTEM), ("zookeeper", ZOOKEEPER), ("topic=NAME", TOPIC)):
        lines += (
            f"| `[{section}]` `{key.name}` | {key.effect.value} | {_code(key.setting)} |"
            f" {'yes' if key.reload else ''} | {key.meaning.replace(PIPE, ESCAPED)} |"
            for key in keys
        )
    return "\n".join(lines) + "\n"


def _code(setting: str) -> str:
    return f"`{setting}`" if setting and " " not in setting else setting
