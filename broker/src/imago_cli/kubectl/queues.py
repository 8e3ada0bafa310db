"""Topics and groups of a cluster, as its brokers have them, with the objects that declare them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from imago_cli.exits import CommandError
from imago_cli.kubectl.brokers import ClusterBrokers
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.tool import CLUSTERS, GROUPS, TOPICS, Kubectl, KubectlError
from imago_cli.line.declared import Argument
from imago_cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def topics(
    cluster: Cluster,
    topic: Annotated[str | None, Argument(help="One topic, with its queues.")] = None,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """List topics with their shards, queues and messages; sealed queues accept no more."""
    brokers = _brokers(kube, cluster)
    if topic is None:
        rows = _topics(brokers, _declared(kube, TOPICS, "topicName", cluster))
        _print("", rows, output, nothing=f"{cluster} has no topics")
        return
    found = brokers.show_on_each("/admin/v1/topics", topic)
    rows = [
        {"shard": f"shard-{shard}", **_queue(queue), "sealed": _yes(one["sealed"])}
        for shard, one in found.items()
        for queue in one["queues"]
    ]
    _print(topic, rows, output, missing=f"{cluster} has no topic {topic}")


def groups(
    cluster: Cluster,
    group: Annotated[str | None, Argument(help="One group, queue by queue.")] = None,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """List consumer groups with their members and lag, or one group queue by queue.

    MetaQ's consumers keep their offsets in ZooKeeper; the list shows them separately.
    """
    brokers = _brokers(kube, cluster)
    if group is None:
        rows = _groups(brokers, _declared(kube, GROUPS, "groupName", cluster))
        _print("", rows, output, nothing=f"{cluster} has no groups")
        return
    found = brokers.show_on_each("/admin/v1/groups", group)
    rows = [
        {"topic": topic, "shard": f"shard-{shard}", **queue}
        for shard, one in found.items()
        for topic, queues in one["topics"].items()
        for queue in queues
    ]
    rows.sort(key=lambda row: (row["topic"], row["shard"]))
    whole = next(brokers.groups(group), None)
    rows += [row for one in (whole,) if one for row in _of_metaq(one)]
    missing = "" if found or whole else f"{cluster} has no group {group}"
    _print(group, rows, output, missing, nothing=f"{group} has no offsets yet")


def _brokers(kube: Kubectl, cluster: str) -> ClusterBrokers:
    kube.get(CLUSTERS, cluster)
    return ClusterBrokers(kube, cluster)


def _topics(brokers: ClusterBrokers, declared: Mapping[str, str]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for shard, items in brokers.from_each_shard("/admin/v1/topics").items():
        for one in items:
            row = rows.setdefault(one["name"], _topic(one["name"], declared))
            row["shards"].append(shard)
            row["queues"] += 0 if one["sealed"] else one["queues"]
            row["messages"] += one["messages"]
            if one["sealed"]:
                row["sealed"].append(shard)
    return [row for _, row in sorted(rows.items())]


def _topic(name: str, declared: Mapping[str, str]) -> dict[str, Any]:
    resource = declared.get(name, "")
    return {
        "topic": name,
        "shards": [],
        "queues": 0,
        "messages": 0,
        "sealed": [],
        "resource": resource,
    }


def _groups(brokers: ClusterBrokers, declared: Mapping[str, str]) -> list[dict[str, Any]]:
    return [_group(one, declared.get(one["name"], "")) for one in brokers.groups()]


def _group(one: Mapping[str, Any], resource: str) -> dict[str, Any]:
    metaq = one.get("metaq") or {"members": [], "topics": {}}
    sides = (one["topics"], metaq["topics"])
    oldest = [lag["oldest"] for side in sides for lag in side.values() if lag["oldest"]]
    return {
        "group": one["name"],
        "members": len(one["members"]),
        "topics": len(one["topics"]),
        "lag": _unread(one["topics"]),
        "metaqMembers": len(metaq["members"]),
        "metaqTopics": len(metaq["topics"]),
        "metaqLag": _unread(metaq["topics"]),
        "unreadSince": _time(min(oldest)) if oldest else "",
        "resource": resource,
    }


def _unread(topics: Mapping[str, Any]) -> int:
    return sum(lag["lag"] for lag in topics.values())


def _of_metaq(one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what MetaQ's consumers have not read: brokers sum it up by topic."""
    for topic, lag in sorted((one.get("metaq") or {"topics": {}})["topics"].items()):
        queue = {"queue": "", "offset": "", "end": "", "lag": lag["lag"]}
        yield {"topic": topic, "shard": "MetaQ, all", **queue}


def _time(epoch_ms: int) -> str:
    return f"{datetime.fromtimestamp(epoch_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _declared(kube: Kubectl, kind: str, field: str, cluster: str) -> dict[str, str]:
    """Return the objects that declare something, by its name; said where they cannot be seen."""
    try:
        found = kube.all_of(kind)
    except KubectlError as error:
        say(f"objects that declare them are not shown: {error.message}")
        return {}
    return {
        one["spec"].get(field) or one["metadata"]["name"]: one["metadata"]["name"]
        for one in found
        if one["spec"]["clusterRef"]["name"] == cluster
    }


def _queue(queue: Mapping[str, Any]) -> dict[str, Any]:
    low, high = queue["minOffset"], queue["maxOffset"]
    return {"queue": queue["queue"], "from": low, "upTo": high, "messages": high - low}


def _cell(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _words(name: str) -> str:
    """Return the name of a field for people: `metaqLag` is `metaq lag`."""
    return "".join(f" {sign.lower()}" if sign.isupper() else sign for sign in name)


def _yes(value: object) -> str:
    return "yes" if value else ""


def _print(
    title: str, rows: list[dict[str, Any]], output: Format, missing: str = "", nothing: str = ""
) -> None:
    if missing and not rows:
        raise CommandError(missing, cure="call it without a name to see all")
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        say(nothing)
        return
    columns = tuple(map(_words, rows[0]))
    print_table(title, columns, [tuple(map(_cell, row.values())) for row in rows])
