"""Topics and groups of a cluster, as its brokers have them, with the objects that declare them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from imago_cli.exits import CommandError
from imago_cli.kubectl.brokers import Brokers
from imago_cli.kubectl.options import (
    Cluster,
    Context,
    Format,
    Kubeconfig,
    Namespace,
    Output,
)
from imago_cli.kubectl.tool import CLUSTERS, GROUPS, TOPICS, Kubectl, KubectlError
from imago_cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from collections.abc import Mapping


def topics(
    cluster: Cluster,
    topic: Annotated[str | None, typer.Argument(help="One topic, with its queues.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TABLE,
) -> None:
    """List topics with their shards, queues and messages; sealed ones only give what they have."""
    kube = Kubectl(namespace, context, kubeconfig)
    brokers = _brokers(kube, cluster)
    if topic is None:
        rows = _topics(brokers, _declared(kube, TOPICS, "topicName", cluster))
        _print("", rows, output)
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
    group: Annotated[str | None, typer.Argument(help="One group, queue by queue.")] = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    output: Output = Format.TABLE,
) -> None:
    """List consumer groups with their members and their lag, or one with each of its queues."""
    kube = Kubectl(namespace, context, kubeconfig)
    brokers = _brokers(kube, cluster)
    if group is None:
        rows = _groups(brokers, _declared(kube, GROUPS, "groupName", cluster))
        _print("", rows, output)
        return
    found = brokers.show_on_each("/admin/v1/groups", group)
    rows = [
        {"topic": topic, "shard": f"shard-{shard}", **queue}
        for shard, one in found.items()
        for topic, queues in one["topics"].items()
        for queue in queues
    ]
    if found and not rows:
        say(f"{group} has no offsets yet")
    missing = "" if found else f"{cluster} has no group {group}"
    _print(group, sorted(rows, key=lambda row: (row["topic"], row["shard"])), output, missing)


def _brokers(kube: Kubectl, cluster: str) -> Brokers:
    kube.get(CLUSTERS, cluster)
    return Brokers(kube, cluster)


def _topics(brokers: Brokers, declared: Mapping[str, str]) -> list[dict[str, Any]]:
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


def _groups(brokers: Brokers, declared: Mapping[str, str]) -> list[dict[str, Any]]:
    """Sum up; members and topics are the most that a shard knows, for all know the same ones."""
    rows: dict[str, dict[str, Any]] = {}
    for items in brokers.from_each_shard("/admin/v1/groups").values():
        for one in items:
            name = one["name"]
            row = rows.setdefault(name, {"group": name, "members": 0, "topics": 0, "lag": 0})
            row["members"] = max(row["members"], one["members"])
            row["topics"] = max(row["topics"], one["topics"])
            row["lag"] += one["lag"]
            row["resource"] = declared.get(name, "")
    return [row for _, row in sorted(rows.items())]


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


def _yes(value: object) -> str:
    return "yes" if value else ""


def _print(title: str, rows: list[dict[str, Any]], output: Format, missing: str = "") -> None:
    if missing and not rows:
        raise CommandError(missing, cure="call it without a name to see all")
    if output is Format.JSON:
        print_json(rows)
        return
    if not rows:
        say("none")
        return
    columns = tuple(rows[0])
    print_table(title, columns, [tuple(map(_cell, row.values())) for row in rows])
