"""MetaQ's ``server.ini``, translated into a configuration of ours."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from imago_broker.config import metaq_expression as expression
from imago_broker.config.loading import load
from imago_broker.config.metaq_file import FILTER_PREFIX, WITHOUT_EFFECT, MetaqFile, parse
from imago_broker.config.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TEXTS = {"hostName": ("broker", "host"), "dataPath": ("broker", "data_dir")}
NUMBERS = {
    "brokerId": ("metaq", "broker_id_base"),
    "serverPort": ("metaq", "port"),
    "dashboardHttpPort": ("admin", "port"),
    "numPartitions": ("metaq", "default_partitions"),
    "maxSegmentSize": ("store", "metaq_segment_bytes_max"),
    "maxTransferSize": ("metaq", "transfer_bytes_max"),
}
TRUTHS = {
    "stat": ("metaq", "stat"),
    "updateConsumerOffsets": ("metaq", "update_consumer_offsets"),
}
DEFAULT_POLICY = "delete,168"
HOUR_MS = 3_600_000

_POLICY = re.compile(r"(delete|archive)\s*,\s*(\d+)([smh]?)(?:\s*,\s*(?:true|false))?")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": HOUR_MS, "": HOUR_MS}

Section = dict[str, object]


@dataclass(frozen=True, slots=True)
class Conversion:
    """The TOML text, and what a person should know about it."""

    toml: str
    notes: tuple[str, ...]


def convert(text: str) -> Conversion:
    """Translate the text of a ``server.ini``; `ConfigError` for what the original would refuse."""
    converter = _Converter(parse(text))
    converter.system()
    converter.zookeeper()
    converter.retention()
    converter.all_topics()
    toml = converter.toml()
    load(toml)  # what is written must be what can be read
    return Conversion(toml, tuple(converter.notes))


@dataclass(slots=True)
class _Converter:
    ini: MetaqFile
    notes: list[str] = field(default_factory=list)
    tree: dict[str, Section] = field(default_factory=dict)
    topics: dict[str, Section] = field(default_factory=dict)
    longest_ms: int = 0

    def system(self) -> None:
        values = self.ini.system
        # The original listens on every address of its machine.
        self._set("broker", "bind", "0.0.0.0")  # noqa: S104  what the file means
        for key, (section, name) in TEXTS.items():
            if key in values:
                self._set(section, name, values[key])
        for key, (section, name) in NUMBERS.items():
            if key in values:
                self._set(section, name, expression.integer(key, values[key]))
        for key, (section, name) in TRUTHS.items():
            if key in values:
                self._set(section, name, expression.truth(key, values[key]))
        self._set("acknowledgement", "level", _level(values["unflushThreshold"]))
        self._note_without_effect(values)

    def zookeeper(self) -> None:
        values = self.ini.zookeeper
        connect = values.get("zk.zkConnect", "localhost:2181")
        if not expression.truth("zk.zkEnable", values.get("zk.zkEnable", "true")):
            self.notes.append("zk.zkEnable=false: the broker runs alone and registers nowhere")
            connect = "none"
        self._set("zookeeper", "connect", connect)
        if timeout := values.get("zk.zkSessionTimeoutMs"):
            timeout_ms = expression.integer("zk.zkSessionTimeoutMs", timeout)
            self._set("zookeeper", "session_timeout_ms", timeout_ms)
        if root := values.get("zk.zkRoot"):
            self._set("metaq", "zk_root", "/" + root.strip("/"))
        self._note_without_effect(values)

    def retention(self) -> None:
        """Keep the log as long as the topic that wants it longest."""
        wanted = {self._retention_ms(self.ini.system)}
        wanted |= {self._retention_ms(settings) for settings in self.ini.topics.values()}
        self.longest_ms = max(wanted)
        self._set("store", "retention_ms", self.longest_ms)
        policies = [self.ini.system, *self.ini.topics.values()]
        if any(settings.get("deletePolicy", "").startswith("archive") for settings in policies):
            self.notes.append("deletePolicy: files are deleted, not archived")
        if len(wanted) > 1:
            self.notes.append(
                "one log holds all topics: all of them take disk for the longest time that one"
                f" asks for, {self.longest_ms / HOUR_MS:g} hours; the others are hidden earlier"
            )

    def all_topics(self) -> None:
        patterns = [name for name in self.ini.topics if "*" in name]
        if patterns:
            self._set("metaq", "topic_patterns", patterns)
        for name, settings in self.ini.topics.items():
            if name not in patterns:
                self.topics[name] = self._topic(settings)
            self._note_topic(name, settings)

    def toml(self) -> str:
        # A JSON text, number, truth or list of texts is one in TOML too.
        lines: list[str] = []
        for section, values in self.tree.items():
            lines += ["", f"[{section}]"]
            lines += (f"{key} = {json.dumps(value)}" for key, value in values.items())
        for name, values in self.topics.items():
            lines += ["", f"[topics.{json.dumps(name)}]"]
            lines += (f"{key} = {json.dumps(value)}" for key, value in values.items())
        return "\n".join(lines[1:]) + "\n"

    def _topic(self, settings: Mapping[str, str]) -> Section:
        merged = {**self.ini.system, **settings}
        queues = expression.integer("numPartitions", merged["numPartitions"])
        topic: Section = {"queues": queues}
        retention_ms = self._retention_ms(settings)
        if retention_ms < self.longest_ms:
            topic["retention_ms"] = retention_ms
        if "unflushThreshold" in settings:
            topic["acknowledgement"] = _level(settings["unflushThreshold"])
        if not expression.truth("acceptPublish", merged.get("acceptPublish", "true")):
            topic["metaq_publish"] = False
        if not expression.truth("acceptSubscribe", merged.get("acceptSubscribe", "true")):
            topic["metaq_subscribe"] = False
        if "stat" in settings:
            # Alone among the values this one is no expression: all but "true" is false.
            topic["metaq_stat"] = settings["stat"].lower() == "true"
        return topic

    def _note_topic(self, name: str, settings: Mapping[str, str]) -> None:
        for key in settings:
            if key.startswith(FILTER_PREFIX):
                reason = WITHOUT_EFFECT["appClassPath"]
                self.notes.append(f"topic {name}: {key} has no effect here: {reason}")
            elif key == "dataPath":
                self.notes.append(f"topic {name}: dataPath has no effect: one log holds all topics")

    def _retention_ms(self, settings: Mapping[str, str]) -> int:
        policy = settings.get("deletePolicy", self.ini.system.get("deletePolicy", DEFAULT_POLICY))
        match = _POLICY.fullmatch(policy)
        if match is None:
            raise ConfigError(f"deletePolicy: {policy!r}, must look like delete,168 or archive,30m")
        return int(match.group(2)) * _UNITS_MS[match.group(3)]

    def _set(self, section: str, key: str, value: object) -> None:
        self.tree.setdefault(section, {})[key] = value

    def _note_without_effect(self, keys: Iterable[str]) -> None:
        for key in keys:
            if key in WITHOUT_EFFECT:
                self.notes.append(f"{key} has no effect here: {WITHOUT_EFFECT[key]}")


def _level(threshold: str) -> str:
    value = expression.integer("unflushThreshold", threshold)
    return "leader" if value > 0 else "leader-fsync"
