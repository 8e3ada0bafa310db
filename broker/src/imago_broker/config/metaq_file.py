"""Reading the text of MetaQ's ``server.ini``: sections, keys that exist, keys that must be there.

Keys that have no counterpart here (thread counts, cron expressions of the delete job, the
transaction journal) are listed with the reason, so that nobody believes they still do something.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.config.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REQUIRED = (
    "brokerId",
    "numPartitions",
    "unflushThreshold",
    "unflushInterval",
    "maxSegmentSize",
    "maxTransferSize",
)
OPTIONAL = (
    "hostName", "serverPort", "dashboardHttpPort", "dataPath", "dataLogPath", "appClassPath",
    "getProcessThreadCount", "putProcessThreadCount", "deletePolicy", "deleteWhen",
    "quartzThreadCount", "maxCheckpoints", "checkpointInterval", "maxTxTimeoutTimerCapacity",
    "maxTxTimeoutInSeconds", "flushTxLogAtCommit", "acceptPublish", "acceptSubscribe", "stat",
    "updateConsumerOffsets", "loadMessageStoresInParallel",
)  # fmt: skip
SYSTEM_KEYS = (*REQUIRED, *OPTIONAL)
ZOOKEEPER_KEYS = (
    "zk.zkEnable", "zk.zkRoot", "zk.zkConnect", "zk.zkSessionTimeoutMs",
    "zk.zkConnectionTimeoutMs", "zk.zkSyncTimeMs",
)  # fmt: skip
TOPIC_KEYS = (
    "numPartitions", "unflushThreshold", "unflushInterval", "dataPath", "deletePolicy",
    "deleteWhen", "acceptPublish", "acceptSubscribe", "stat",
)  # fmt: skip
FILTER_PREFIX = "group."

WITHOUT_EFFECT: Mapping[str, str] = {
    "dataLogPath": "the log has no second folder",
    "appClassPath": "filters are Java classes, which this broker does not run",
    "getProcessThreadCount": "requests are served by one event loop",
    "putProcessThreadCount": "requests are served by one event loop",
    "deleteWhen": "expired files are deleted as soon as they expire",
    "quartzThreadCount": "expired files are deleted as soon as they expire",
    "maxCheckpoints": "the log needs no checkpoints of transactions",
    "checkpointInterval": "the log needs no checkpoints of transactions",
    "maxTxTimeoutTimerCapacity": "transactions are not served",
    "maxTxTimeoutInSeconds": "transactions are not served",
    "flushTxLogAtCommit": "transactions are not served",
    "loadMessageStoresInParallel": "there is one log to load",
    "unflushInterval": "a message is readable as soon as it is written",
    "zk.zkConnectionTimeoutMs": "there is one time-out",
    "zk.zkSyncTimeMs": "no pause is needed",
}

_SECTION = re.compile(r"\[\s*(?:(system|zookeeper)|topic\s*=\s*(.+?))\s*\]")


@dataclass(slots=True)
class MetaqFile:
    """The sections of one file; blank values count as absent."""

    system: dict[str, str] = field(default_factory=dict)
    zookeeper: dict[str, str] = field(default_factory=dict)
    topics: dict[str, dict[str, str]] = field(default_factory=dict)


def parse(text: str) -> MetaqFile:
    """Return the sections of a file; `ConfigError` for what the original would refuse."""
    ini = MetaqFile()
    section: dict[str, str] | None = None
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in ";#":
            continue
        if line.startswith("["):
            section = _section(ini, line, number)
            continue
        key, equals, value = line.partition("=")
        if section is None or not equals:
            raise ConfigError(f"line {number}: {line!r} is neither a section nor key=value")
        if value.strip():
            section[key.strip()] = value.strip()
    _check(ini)
    return ini


def _section(ini: MetaqFile, line: str, number: int) -> dict[str, str]:
    match = _SECTION.fullmatch(line)
    if match is None:
        raise ConfigError(
            f"line {number}: {line!r}, there are [system], [zookeeper] and [topic=NAME]"
        )
    if match.group(2):
        return ini.topics.setdefault(match.group(2), {})
    return ini.system if match.group(1) == "system" else ini.zookeeper


def _check(ini: MetaqFile) -> None:
    _all_known(ini.system, SYSTEM_KEYS)
    _all_known(ini.zookeeper, (*ZOOKEEPER_KEYS, *SYSTEM_KEYS))
    for settings in ini.topics.values():
        _all_known((key for key in settings if not key.startswith(FILTER_PREFIX)), TOPIC_KEYS)
    blank = [key for key in REQUIRED if key not in ini.system]
    if blank:
        raise ConfigError(f"Blank value for {blank[0]}")
    if not ini.topics:
        raise ConfigError("there is no [topic=NAME] section: name at least one topic")
    if not ini.zookeeper:
        raise ConfigError("there is no [zookeeper] section: MetaQ needs one even when disabled")


def _all_known(keys: Iterable[str], known: tuple[str, ...]) -> None:
    for key in keys:
        if key not in known:
            nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
            raise ConfigError(f"Invalid config key:{key},do you mean '{nearest[0]}'?")
