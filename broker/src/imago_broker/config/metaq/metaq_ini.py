"""MetaQ's ``server.ini``, translated into a configuration of ours."""

from __future__ import annotations

import json
import os.path
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from imago_broker.config.cron import Cron
from imago_broker.config.loading import load
from imago_broker.config.metaq import metaq_expression as expression
from imago_broker.config.metaq.metaq_file import IniValue, MetaqFile, parse
from imago_broker.config.metaq.metaq_keys import SYSTEM, ZOOKEEPER, KeyEffect
from imago_broker.config.sections.section import FILTER_PREFIX, ConfigError, Scalar, is_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from imago_broker.config.metaq.metaq_file import IniSection
    from imago_broker.config.settings import BrokerConfig

TEXTS: Final = {"hostName": ("broker", "host"), "dataPath": ("broker", "data_dir")}
NUMBERS: Final = {
    "brokerId": ("metaq", "broker_id_base"),
    "serverPort": ("metaq", "port"),
    "dashboardHttpPort": ("admin", "port"),
    "numPartitions": ("metaq", "default_partitions"),
    "maxSegmentSize": ("store", "metaq_segment_bytes_max"),
    "maxTransferSize": ("metaq", "transfer_bytes_max"),
    "maxTxTimeoutTimerCapacity": ("metaq", "transactions_max"),
    "maxTxTimeoutInSeconds": ("metaq", "transaction_timeout_seconds_max"),
}
TRUTHS: Final = {
    "stat": ("metaq", "stat"),
    "updateConsumerOffsets": ("metaq", "update_consumer_offsets"),
}
TOPIC_TRUTHS: Final = {"acceptPublish": "metaq_publish", "acceptSubscribe": "metaq_subscribe"}
ZOOKEEPER_NUMBERS: Final = {
    "zk.zkSessionTimeoutMs": ("zookeeper", "session_timeout_ms"),
    "zk.zkConnectionTimeoutMs": ("zookeeper", "connect_timeout_ms"),
    "zk.zkSyncTimeMs": ("metaq", "stop_linger_ms"),
}
AT_LEAST: Final = {
    "getProcessThreadCount": 1,
    "putProcessThreadCount": 1,
    "quartzThreadCount": 1,
    "maxCheckpoints": 1,
    "checkpointInterval": 1000,
    "flushTxLogAtCommit": 0,
}
"""Numbers that are met whatever they say, from this one on."""
AT_MOST: Final = {"flushTxLogAtCommit": 2}
DEFAULT_POLICY: Final = "delete,168"
DEFAULT_DELETE_WHEN: Final = "0 0 6,18 * * ?"
HOUR_MS: Final = 3_600_000
TAGS, SQL = "tags:", "sql:"
"""How the filter of a group begins."""

_POLICY = re.compile(r"(?:(delete)|archive)\s*,\s*(\d{1,9})([smh]?)(?:\s*,\s*(true|false))?")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": HOUR_MS, "": HOUR_MS}
_REASONS = {
    key.name: key.meaning for key in (*SYSTEM, *ZOOKEEPER) if key.effect is KeyEffect.REFUSED
}

Section = dict[str, object]
TopicSection = dict[str, Scalar]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The TOML text, and what a person should know about it."""

    toml: str
    notes: tuple[str, ...]


def convert(
    text: str, name: str = "server.ini", check: Callable[[BrokerConfig], None] | None = None
) -> Conversion:
    """Translate the text of a ``server.ini`` that is called `name`.

    `check` raises ValueError, with our key, for what the configuration's own rules do not see.

    `ConfigError` names file and line of what the original would refuse, and of what cannot be had
    here.
    """
    converter = _Converter(parse(text, name))
    converter.system()
    converter.zookeeper()
    converter.retention()
    converter.all_topics()
    toml = converter.toml()
    converter.check(toml, check)
    return Conversion(toml, tuple(converter.notes))


def settings_of_topics(
    text: str, name: str, topics: Iterable[str]
) -> tuple[dict[str, TopicSection], list[str]]:
    """Return what another broker's ``server.ini`` says of its topics, as settings of ours.

    Also what cannot be had here, such as filters that are Java classes: that is left out.
    `ConfigError`: the text is no such file.
    """
    converter = _Converter(parse(text, name))
    found = {topic: converter.settings_of(topic) for topic in topics}
    return found, converter.notes


@dataclass(frozen=True, slots=True)
class _Policy:
    """What a deletePolicy says."""

    keep_ms: int
    archive: str
    """"": the file is deleted; arc, zip: renamed, packed."""


@dataclass(slots=True)
class _Converter:
    ini: MetaqFile
    notes: list[str] = field(default_factory=list)
    tree: dict[str, Section] = field(default_factory=dict)
    topics: dict[str, TopicSection] = field(default_factory=dict)
    origins: dict[str, IniValue] = field(default_factory=dict)
    """Our keys, and the values of the file that they have."""
    longest_ms: int = 0

    def system(self) -> None:
        values = self.ini.system
        # The original listens on every address of its machine.
        self._set("broker", "bind", "0.0.0.0")  # noqa: S104  what the file means
        self._set("store", "delete_when", DEFAULT_DELETE_WHEN)
        for key, value in values.items():
            with self.ini.at(value.line):
                self._system_key(key, value)
        self._sync_interval()

    def _system_key(self, key: str, value: IniValue) -> None:
        if key in TEXTS:
            self._set(*TEXTS[key], value.text, value)
        elif key in NUMBERS:
            self._set(*NUMBERS[key], expression.integer(key, value.text), value)
        elif key in TRUTHS:
            self._set(*TRUTHS[key], expression.truth(key, value.text), value)
        elif key == "unflushThreshold":
            self._set("acknowledgement", "level", self._level(value), value)
        elif key == "deleteWhen":
            self._set("store", "delete_when", Cron.parse(value.text, key).text, value)
        else:
            self._met_or_refused(key, value)

    def _met_or_refused(self, key: str, value: IniValue) -> None:
        if key in AT_LEAST:
            _between(value, AT_LEAST[key], AT_MOST.get(key))
        elif key == "dataLogPath":
            self._same_folder(value)
        elif key in _REASONS:
            raise ConfigError(f"{key}: {_REASONS[key]}: remove the line")
        elif key in ("acceptPublish", "acceptSubscribe", "loadMessageStoresInParallel"):
            expression.truth(key, value.text)

    def _same_folder(self, value: IniValue) -> None:
        data = self.ini.system.get("dataPath")
        folder = data.text if data else "$HOME/meta"
        if os.path.normpath(value.text) != os.path.normpath(folder):
            raise ConfigError(
                f"{value.key}: {value.text}, but one log, in dataPath ({folder}), holds messages"
                " and transactions: remove the line, or name that folder"
            )

    def _sync_interval(self) -> None:
        """One log is synced for all topics: as often as the one that wants it most often."""
        found: list[tuple[int, IniValue]] = []
        for section in (self.ini.system, *self.ini.topics.values()):
            if value := section.get("unflushInterval"):
                with self.ini.at(value.line):
                    interval_ms = expression.integer(value.key, value.text)
                if interval_ms > 0:
                    found.append((interval_ms, value))
        if not found:
            self._set("store", "sync_interval_ms", 0)
            return
        interval_ms, value = min(found, key=lambda each: each[0])
        self._set("store", "sync_interval_ms", interval_ms, value)

    def zookeeper(self) -> None:
        values = self.ini.zookeeper
        connect, enabled = values.get("zk.zkConnect"), values.get("zk.zkEnable")
        address = connect.text if connect else "localhost:2181"
        if enabled:
            with self.ini.at(enabled.line):
                if not expression.truth(enabled.key, enabled.text):
                    self.notes.append(
                        "zk.zkEnable=false: the broker runs alone and registers nowhere"
                    )
                    address = "none"
        self._set("zookeeper", "connect", address, connect)
        for key, (section, name) in ZOOKEEPER_NUMBERS.items():
            if value := values.get(key):
                with self.ini.at(value.line):
                    self._set(section, name, expression.integer(key, value.text), value)
        if root := values.get("zk.zkRoot"):
            self._set("metaq", "zk_root", "/" + root.text.strip("/"), root)

    def retention(self) -> None:
        """Keep the log as long as the topic that wants it longest."""
        sections = (self.ini.system, *self.ini.topics.values())
        wanted = {self._policy(settings).keep_ms for settings in sections}
        self.longest_ms = max(wanted)
        self._set("store", "retention_ms", self.longest_ms, self.ini.system.get("deletePolicy"))
        if len(wanted) > 1:
            self.notes.append(
                "one log holds all topics: all of them take disk for the longest time that one"
                f" asks for, {self.longest_ms / HOUR_MS:g} hours; the others are hidden earlier"
            )

    def all_topics(self) -> None:
        patterns = [name for name in self.ini.topics if is_pattern(name)]
        if patterns:
            self._set("metaq", "topic_patterns", patterns)
        for name, settings in self.ini.topics.items():
            self.topics[name] = self._topic(settings)
            line = self.ini.topic_lines[name]
            self.origins[f"topics.{name}"] = IniValue(f"[topic={name}]", "", line)
            self.origins |= {f"topics.{name}.{key}": value for key, value in settings.items()}

    def settings_of(self, name: str) -> TopicSection:
        """Return a topic's settings with those of [system] that hold for it; notes say the rest."""
        merged: IniSection = {}
        for value in self.ini.topics.get(name, {}).values():
            try:
                with self.ini.at(value.line):
                    self._topic_key({}, value)
            except ConfigError as error:
                self.notes.append(str(error))
                continue
            merged[value.key] = value
        if when := self.ini.system.get("deleteWhen"):
            merged.setdefault("deleteWhen", when)
        settings = self._topic(merged)
        return settings | {"retention_ms": self._policy(merged).keep_ms}

    def toml(self) -> str:
        # A JSON text, number, truth or list of texts is one in TOML too.
        lines: list[str] = []
        for section, values in self.tree.items():
            lines += ["", f"[{section}]"]
            lines += (f"{key} = {json.dumps(value)}" for key, value in values.items())
        for name, settings in self.topics.items():
            lines += ["", f"[topics.{json.dumps(name)}]"]
            lines += (f"{json.dumps(key)} = {json.dumps(value)}" for key, value in settings.items())
        return "\n".join(lines[1:]) + "\n"

    def check(self, toml: str, check: Callable[[BrokerConfig], None] | None) -> None:
        """What is written must be what can be read; ConfigError says whose line is to blame."""
        try:
            config = load(toml)
            if check is not None:
                check(config)
        except ValueError as error:
            ours, _, reason = str(error).partition(": ")
            value = self.origins.get(ours)
            if value is None:
                raise ConfigError(f"{self.ini.name}: {error}") from error
            raise self.ini.wrong(value.line, f"{value.key}: {reason}") from error

    def _topic(self, settings: IniSection) -> TopicSection:
        merged = {**self.ini.system, **settings}
        partitions = merged["numPartitions"]
        with self.ini.at(partitions.line):
            queues = expression.integer(partitions.key, partitions.text)
            if queues < 1:
                raise ConfigError(f"{partitions.key}: {queues}, must be at least 1")
        topic: TopicSection = {"queues": queues}
        policy = self._policy(settings)
        if policy.archive or policy.keep_ms < self.longest_ms:
            topic["retention_ms"] = policy.keep_ms
        if policy.archive:
            topic["metaq_archive"] = policy.archive
        for key, ours in TOPIC_TRUTHS.items():
            if value := merged.get(key):
                with self.ini.at(value.line):
                    if not expression.truth(key, value.text):
                        topic[ours] = False
        for value in settings.values():
            with self.ini.at(value.line):
                self._topic_key(topic, value)
        return topic

    def _topic_key(self, topic: TopicSection, value: IniValue) -> None:
        key = value.key
        if key == "unflushThreshold":
            topic["acknowledgement"] = self._level(value)
        elif key == "stat":
            # Alone among the values this one is no expression: all but "true" is false.
            topic["metaq_stat"] = value.text.lower() == "true"
        elif key == "deleteWhen":
            topic["delete_when"] = Cron.parse(value.text, key).text
        elif key == "dataPath":
            self._same_folder(value)
        elif key.startswith(FILTER_PREFIX):
            topic[key] = _filter(value)

    def _policy(self, settings: Mapping[str, IniValue]) -> _Policy:
        value = settings.get("deletePolicy") or self.ini.system.get("deletePolicy")
        text = value.text if value else DEFAULT_POLICY
        match = _POLICY.fullmatch(text)
        if match is None:
            assert value is not None, "the default is right"
            raise self.ini.wrong(
                value.line, f"{value.key}: {text!r}, must look like delete,168 or archive,30m,true"
            )
        packed = "zip" if match.group(4) == "true" else "arc"
        keep_ms = max(1, int(match.group(2)) * _UNITS_MS[match.group(3)])
        return _Policy(keep_ms, "" if match.group(1) else packed)

    def _level(self, threshold: IniValue) -> str:
        value = expression.integer(threshold.key, threshold.text)
        return "leader" if value > 0 else "leader-fsync"

    def _set(self, section: str, key: str, value: object, origin: IniValue | None = None) -> None:
        self.tree.setdefault(section, {})[key] = value
        if origin is not None:
            self.origins[f"{section}.{key}"] = origin


def _between(value: IniValue, least: int, most: int | None) -> None:
    number = expression.integer(value.key, value.text, bits=64)
    if number < least:
        raise ConfigError(f"{value.key}: {number}, must be at least {least}")
    if most is not None and number > most:
        raise ConfigError(f"{value.key}: {number}, must be at most {most}")


def _filter(value: IniValue) -> str:
    if not value.text.startswith((TAGS, SQL)):
        raise ConfigError(
            f"{value.key}: {value.text}: Java classes do not run here: say what the group gets, as"
            f" `{TAGS} red || blue` by attribute, or `{SQL} TAGS LIKE 'r%'`"
        )
    return value.text
