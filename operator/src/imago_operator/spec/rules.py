"""The rules of every kind. What only one field says, its bounds say; all else stands here."""

from __future__ import annotations

import re
from typing import Any, Final

from imago_operator.spec import applications, setting_rules
from imago_operator.spec.owned import OWNED_SETTINGS
from imago_operator.spec.schema.rule import (
    Rule,
    exactly_one,
    immutable,
    not_smaller,
    resource_name,
    spans,
)
from imago_operator.spec.schema.values import Quantity

BROKERS, STORAGE = "spec.brokers", "spec.brokers.storage"
ZOOKEEPER = "spec.zookeeper"


def _cron(value: str) -> str:
    """Return the pattern of one field: `*`, values, ranges, steps, lists."""
    part = rf"([*]|({value})(-({value}))?)(/[1-9][0-9]?)?"
    return f"{part}(,{part})*"


SCHEDULE: Final = "(?i)^{}$".format(
    " ".join(
        _cron(value)
        for value in (
            "[0-5]?[0-9]",
            "[01]?[0-9]|2[0-3]",
            "0?[1-9]|[12][0-9]|3[01]",
            "0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec",
            "[0-7]|sun|mon|tue|wed|thu|fri|sat",
        )
    )
)
"""Five fields of cron with values in their bounds, for CEL and for Python."""
ZONE: Final = "^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$"
OWNED_ATTRIBUTES: Final = ("dialects", "acknowledgement", "retention_ms", "retention.ms")
SYSTEM_TOPICS: Final = (
    "IMAGO_META",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "BenchmarkTest",
    "OFFSET_MOVED_EVENT",
    "SELF_TEST_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC",
)
SYSTEM_PREFIXES: Final = ("rmq_sys_", "%RETRY%", "%DLQ%")
OWNED_SPARK: Final = (
    "spark.app.name",
    "spark.master",
    "spark.submit.deployMode",
    "spark.kubernetes.namespace",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.pod.name",
    "spark.executor.instances",
    "spark.sql.streaming.checkpointLocation",
)
_SETTING: Final = "^[a-z]+[.][a-z][a-z0-9_]*$"
_ID_MAX: Final = 1023


def _listed(names: tuple[str, ...]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _may_not_fall(path: str, name: str, message: str) -> Rule:
    return Rule(
        path=path,
        cel=f"self.{name} >= oldSelf.{name}",
        holds_after=lambda node, old: bool(node[name] >= old[name]),
        message=message,
    )


def _one_copy_stands_for_all(node: Any) -> bool:
    if not node.get("acknowledgement", "replicated").startswith("replicated"):
        return False
    return bool(node["replicasPerShard"] > 1 and node.get("minInSync") == 1)


_FILE_SIZE: Final = "store.segment_bytes_max"
_EDIT: Final = ("self", "oldSelf")


def _setting_stays(name: str, message: str) -> Rule:
    """Return the rule that a setting of the brokers, or its absence, stays as it is."""
    now, before = (f"has({node}.config) && '{name}' in {node}.config" for node in _EDIT)
    return Rule(
        path=BROKERS,
        cel=f"{now} ? {before} && self.config['{name}'] == oldSelf.config['{name}'] : !({before})",
        holds_after=lambda node, old: (
            node.get("config", {}).get(name) == old.get("config", {}).get(name)
        ),
        message=message,
    )


CLUSTER: Final[tuple[Rule, ...]] = (
    *resource_name(40, "an ImagoCluster"),
    Rule(
        path=BROKERS,
        cel="!has(self.minInSync) || self.minInSync <= self.replicasPerShard",
        holds=lambda node: node.get("minInSync", 1) <= node["replicasPerShard"],
        message="minInSync must be at most replicasPerShard",
    ),
    Rule(
        path=BROKERS,
        cel="!(self.replicasPerShard > 1 && has(self.minInSync) && self.minInSync == 1"
        " && (!has(self.acknowledgement) || self.acknowledgement.startsWith('replicated')))",
        holds=lambda node: not _one_copy_stands_for_all(node),
        message="minInSync 1 would call one copy replicated: set 2, or acknowledgement leader",
    ),
    Rule(
        path=f"{BROKERS}.config",
        cel=f"self.all(key, key.matches('{_SETTING}'))",
        holds=lambda node: all(re.search(_SETTING, key) for key in node),
        message="settings are named section.key, as docs/configuration.md lists them",
    ),
    Rule(
        path=f"{BROKERS}.config",
        cel=f"!self.exists(key, key in {_listed(OWNED_SETTINGS)})",
        holds=lambda node: not any(key in OWNED_SETTINGS for key in node),
        message="config may not set what the operator sets: ports, names, addresses, members,"
        " acknowledgement, log.level",
    ),
    *setting_rules.rules(OWNED_SETTINGS),
    _setting_stays(
        _FILE_SIZE,
        f"{_FILE_SIZE} cannot be changed: brokers do not start on a log whose files have another"
        " size",
    ),
    spans(f"{BROKERS}.replication", "ackTimeout", low="10ms", high="10m"),
    Rule(
        path=STORAGE,
        cel="self.type != 'PersistentClaim' || has(self.size)",
        holds=lambda node: node["type"] != "PersistentClaim" or "size" in node,
        message="size is required with PersistentClaim",
    ),
    Rule(
        path=STORAGE,
        cel="!has(self.autoGrow) || !has(self.size) ||"
        " quantity(self.autoGrow.max).compareTo(quantity(self.size)) >= 0",
        holds=lambda node: (
            "autoGrow" not in node
            or "size" not in node
            or Quantity(node["autoGrow"]["max"]).bytes >= Quantity(node["size"]).bytes
        ),
        message="autoGrow.max must be at least size",
    ),
    Rule(
        path=STORAGE,
        cel="!has(self.autoGrow) || self.type == 'PersistentClaim'",
        holds=lambda node: "autoGrow" not in node or node["type"] == "PersistentClaim",
        message="autoGrow needs PersistentClaim: nothing else grows",
    ),
    spans(f"{STORAGE}.autoGrow", "coolDown", low="1m", high="168h"),
    Rule(
        path="spec",
        cel="!self.hibernated || self.brokers.storage.type == 'PersistentClaim'",
        holds=lambda node: (
            not node["hibernated"] or node["brokers"]["storage"]["type"] == "PersistentClaim"
        ),
        message="hibernated needs storage of type PersistentClaim: Ephemeral goes with its pods",
    ),
    Rule(
        path="spec",
        cel="!oldSelf.hibernated || (self.brokers.shards == oldSelf.brokers.shards"
        " && self.brokers.replicasPerShard == oldSelf.brokers.replicasPerShard)",
        holds_after=lambda node, old: (
            not old["hibernated"]
            or all(node["brokers"][n] == old["brokers"][n] for n in ("shards", "replicasPerShard"))
        ),
        message="shards and replicasPerShard stay while the cluster hibernates: set hibernated to"
        " false first, by itself",
    ),
    exactly_one(ZOOKEEPER, "managed", "external"),
    Rule(
        path=ZOOKEEPER,
        cel="has(self.managed) == has(oldSelf.managed)",
        holds_after=lambda node, old: ("managed" in node) == ("managed" in old),
        message="managed and external exclude each other for good: the registry is stored there",
    ),
    immutable(f"{ZOOKEEPER}.external", "chroot"),
    Rule(
        path="spec.allowedNamespaces",
        cel="(self.from == 'Selector') == has(self.selector)",
        holds=lambda node: (node["from"] == "Selector") == ("selector" in node),
        message="selector goes with from: Selector",
    ),
    Rule(
        path="spec.updatePolicy",
        cel="self.mode != 'Window' || (has(self.windows) && size(self.windows) > 0)",
        holds=lambda node: node["mode"] != "Window" or bool(node.get("windows")),
        message="mode Window needs windows",
    ),
    Rule(
        path="spec.updatePolicy.windows[]",
        cel=f"self.schedule.matches('{SCHEDULE}')",
        holds=lambda node: re.fullmatch(SCHEDULE, node["schedule"]) is not None,
        message="schedule has minute 0-59, hour 0-23, day 1-31, month 1-12 or jan-dec,"
        " weekday 0-7 or sun-sat",
        only_at_admission=True,
    ),
    Rule(
        path="spec.updatePolicy.windows[]",
        cel=f"self.timeZone.matches('{ZONE}')",
        holds=lambda node: re.fullmatch(ZONE, node["timeZone"]) is not None,
        message="timeZone is a name as Europe/Berlin",
        only_at_admission=True,
    ),
    spans("spec.updatePolicy", "handoverTimeout", low="1s", high="1h"),
    spans("spec.updatePolicy", "readyTimeout", low="10s", high="24h"),
    spans("spec.updatePolicy.windows[]", "duration", low="1m", high="168h"),
    spans("spec.scaleDown", "timeout", low="1m", high="8760h"),
)


def _topic_name(node: Any) -> str:
    spec = node.get("spec", {})
    return str(spec.get("topicName", node["metadata"]["name"]))


def _is_system(name: str) -> bool:
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_PREFIXES)


TOPIC: Final[tuple[Rule, ...]] = (
    Rule(
        path="",
        cel="has(self.spec.topicName) || size(self.metadata.name) <= 127",
        holds=lambda node: len(_topic_name(node)) <= 127,
        message="give a topicName: the resource's own is longer than 127 characters",
    ),
    Rule(
        path="spec",
        cel="!has(self.topicName) || !(self.topicName in "
        + _listed(SYSTEM_TOPICS)
        + "".join(f" || self.topicName.startsWith('{prefix}')" for prefix in SYSTEM_PREFIXES)
        + ")",
        holds=lambda node: not _is_system(node.get("topicName", "")),
        message="this topic belongs to the brokers",
    ),
    immutable("spec", "clusterRef"),
    immutable("spec", "topicName"),
    immutable("spec", "dialects"),
    _may_not_fall("spec", "partitions", "partitions cannot be lowered: clients know their numbers"),
    Rule(
        path="spec.config",
        cel=f"!self.exists(key, key in {_listed(OWNED_ATTRIBUTES)})",
        holds=lambda node: not any(key in OWNED_ATTRIBUTES for key in node),
        message="config may not set what has a field of its own",
    ),
    Rule(
        path="spec.placement",
        cel="!(has(self.count) && has(self.shardIds) && size(self.shardIds) > 0)",
        holds=lambda node: not ("count" in node and node.get("shardIds")),
        message="give count or shardIds, not both",
    ),
    spans("spec.retention", "time", low="1s", high="87600h"),
)

GROUP: Final[tuple[Rule, ...]] = (
    immutable("spec", "clusterRef"),
    immutable("spec", "groupName"),
    Rule(
        path="spec",
        cel="!has(self.reset) || self.mode == 'Clustering'",
        holds=lambda node: "reset" not in node or node["mode"] == "Clustering",
        message="a Broadcast group cannot be reset: its members keep their own offsets",
    ),
    Rule(
        path="spec.reset",
        cel="(self.to == 'Timestamp') == has(self.timestamp)",
        holds=lambda node: (node["to"] == "Timestamp") == ("timestamp" in node),
        message="timestamp goes with to: Timestamp",
    ),
    spans("spec.maxLag", "time", high="8760h"),
)


REBALANCE: Final[tuple[Rule, ...]] = (
    Rule(
        path="spec",
        cel="self == oldSelf",
        holds_after=lambda node, old: bool(node == old),
        message="an ImagoRebalance cannot be changed: delete it and make another",
    ),
    Rule(
        path="spec",
        cel="(self.mode == 'Full') == (!has(self.shards) || size(self.shards) == 0)",
        holds=lambda node: (node["mode"] == "Full") == (not node.get("shards")),
        message="Drain, Seal and Fill need shards, Full has none",
    ),
)

BACKUP: Final[tuple[Rule, ...]] = (
    *resource_name(63, "an ImagoBackup"),
    immutable("spec", "clusterRef"),
)

SCHEDULED_BACKUP: Final[tuple[Rule, ...]] = (
    *resource_name(50, "an ImagoScheduledBackup"),
    immutable("spec", "clusterRef"),
    *applications.schedule_rules("spec", "schedule", SCHEDULE, ZONE),
)

PIPELINE: Final[tuple[Rule, ...]] = (
    *resource_name(40, "an ImagoPipeline"),
    immutable("spec", "clusterRef"),
    *applications.rules(SCHEDULE, ZONE),
    exactly_one("spec.checkpoint", "claim", "path"),
    Rule(
        path="spec.checkpoint",
        cel="has(self.path) == has(oldSelf.path) && (!has(self.path) || self.path == oldSelf.path)",
        holds_after=lambda node, old: node.get("path") == old.get("path"),
        message="the checkpoint cannot be moved: it would begin anew",
    ),
    not_smaller("spec.checkpoint.claim"),
    immutable("spec.checkpoint.claim", "storageClassName"),
    Rule(
        path="spec.spark.conf",
        cel=f"!self.exists(key, key in {_listed(OWNED_SPARK)})",
        holds=lambda node: not any(key in OWNED_SPARK for key in node),
        message="conf may not set what the operator sets",
    ),
    spans("spec.restart", "backoff", low="1s", high="1h"),
)
