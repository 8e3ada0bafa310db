"""What clusters are, and what the operator is at: read off the status that it writes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from imago_cli.exits import Exit
from imago_cli.kubectl.explain import Story
from imago_cli.kubectl.lateness import not_looked_at
from imago_cli.kubectl.options import Cluster, Format, Output
from imago_cli.kubectl.orders import pending
from imago_cli.kubectl.tool import CLUSTERS, Kubectl
from imago_cli.line.declared import Argument, Option
from imago_cli.output import counted, print_json, print_line, print_table, role_name, say

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

COLUMNS = (
    *("namespace", "cluster", "ready", "available", "reason", "shards", "in sync", "version"),
    "waits for",
)
WARNINGS = (("RegistryOpen", "ZooKeeper is open: "), ("CertificateEndsSoon", ""))
"""Conditions that a person is to see, with what their message is about."""
MEMBERS = ("shard", "epoch", "phase", "puts", "gets", "pod", "role", "state", "lag")


def status(
    cluster: Annotated[
        str | None, Argument(help="Name of an ImagoCluster; all unless given.")
    ] = None,
    everywhere: Annotated[
        bool, Option("--all-namespaces", "-A", help="Clusters of all namespaces.")
    ] = False,
    *,
    kube: Kubectl,
    output: Output = Format.TABLE,
) -> None:
    """Show clusters, or one with its shards and members.

    Exit code 1: clients cannot put or get on some shard, or nobody can tell: the operator cannot,
    or has not looked for a minute and a half. 6: none can, for a cluster hibernates, as its spec
    says; of several clusters 1 goes first.
    """
    if cluster is None:
        found = kube.all_of(CLUSTERS, everywhere=everywhere)
        _print_all(found, output)
    else:
        found = [kube.get(CLUSTERS, cluster)]
        _print_one(kube, found[0], output)
    unserved = [one for one in found if holds(one, "Available") != "True"]
    if any(holds(one, "Hibernated") != "True" for one in unserved):
        sys.exit(Exit.FAILED)
    if unserved:
        sys.exit(Exit.HIBERNATED)


def explain(cluster: Cluster, *, kube: Kubectl, output: Output = Format.TABLE) -> None:
    """Explain what the operator does, what it waits for, what comes next, and what to do."""
    found = kube.get(CLUSTERS, cluster)
    story = Story.of(found, pending(kube, found))
    if output is Format.JSON:
        print_json(story.to_json())
    else:
        for line in story.lines():
            print_line(line)


def condition(resource: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    """Return a condition; empty where the resource does not have it."""
    listed = resource.get("status", {}).get("conditions", ())
    return next((one for one in listed if one["type"] == type_), {})


def holds(resource: Mapping[str, Any], type_: str) -> str:
    """Return True, False or Unknown: a condition is worth no more than the look that it is of."""
    if not_looked_at(resource):
        return "Unknown"
    return str(condition(resource, type_).get("status", "Unknown"))


def _print_all(found: Sequence[Mapping[str, Any]], output: Format) -> None:
    if output is Format.JSON:
        print_json([_brief(one) for one in found])
        return
    if not found:
        say("no ImagoCluster here; -A looks in all namespaces")
        return
    print_table("", COLUMNS, [tuple(_brief(one).values()) for one in found])


def _brief(one: Mapping[str, Any]) -> dict[str, Any]:
    said = one.get("status", {})
    brokers = said.get("brokers", {})
    return {
        "namespace": one["metadata"].get("namespace", ""),
        "name": one["metadata"]["name"],
        "ready": holds(one, "Ready"),
        "available": holds(one, "Available"),
        "reason": "NotLookedAt"
        if not_looked_at(one)
        else condition(one, "Ready").get("reason", "NotYetReconciled"),
        "shards": brokers.get("shards", 0),
        "inSync": f"{_in_sync(one)} of {brokers.get('replicas', 0)}",
        "version": said.get("version", ""),
        "waitsFor": (said.get("progress") or {}).get("waitsFor", ""),
    }


def _in_sync(one: Mapping[str, Any]) -> str:
    """Return how many members are in sync; ? where nobody knows, or nobody has looked since."""
    count = one.get("status", {}).get("brokers", {}).get("inSyncReplicas")
    return "?" if count is None or not_looked_at(one) else str(count)


def _print_one(kube: Kubectl, found: Mapping[str, Any], output: Format) -> None:
    if output is Format.JSON:
        print_json({**_brief(found), "status": found.get("status", {})})
        return
    for line in _head(found):
        print_line(line)
    shards = found.get("status", {}).get("shards", ())
    stale = bool(not_looked_at(found))
    print_table("", MEMBERS, [row for shard in shards for row in _members(shard, stale=stale)])
    for line in _remarks(kube, found):
        print_line(line)


def _head(found: Mapping[str, Any]) -> Iterator[str]:
    ready, said = condition(found, "Ready"), found.get("status", {})
    name = f"{found['metadata']['name']} (namespace {found['metadata'].get('namespace', '')})"
    late = not_looked_at(found)
    reason = "NotLookedAt" if late else ready.get("reason", "NotYetReconciled")
    yield f"{name}: Ready={holds(found, 'Ready')} {reason}"
    if late:
        yield f"  {late}"
    if text := ready.get("message"):
        yield f"  {text}"
    service = condition(found, "Available")
    if service.get("message") and service["message"] != text:
        yield f"  Available={holds(found, 'Available')} {service['reason']}: {service['message']}"
    if said.get("zookeeper"):
        yield f"  MetaQ clients:    zkConnect {said['zookeeper']}"
    if said.get("bootstrap"):
        yield f"  RocketMQ clients: name server {said['bootstrap']}"
    if said.get("grpc"):
        yield f"  RocketMQ 5's SDKs: endpoints {said['grpc']}"
    yield from _outside(said)


def _outside(said: Mapping[str, Any]) -> Iterator[str]:
    for way in said.get("listeners", ()):
        if way.get("bootstrap") == said.get("bootstrap"):
            continue  # of type Internal: those inside are told above
        asked = way.get("bootstrapServers") or way.get("bootstrap")
        asked = asked or "an address that is not known yet"
        registry = f", MetaQ's zkConnect {way['zookeeper']}" if way.get("zookeeper") else ""
        sdks = f", SDKs' endpoints {way['grpc']}" if way.get("grpc") else ""
        admin = f", administration https://{way['admin']}" if way.get("admin") else ""
        yield f"  outside, {way['name']}: name server {asked}{registry}{sdks}{admin}"


def _members(shard: Mapping[str, Any], *, stale: bool) -> Iterator[tuple[object, ...]]:
    name, epoch = f"shard-{shard['id']}", shard.get("epoch", "")
    served = ("?", "?") if stale else tuple(shard.get(kind, "Unknown") for kind in ("puts", "gets"))
    for one in shard.get("members") or [{"pod": "", "role": "", "state": ""}]:
        state, lag = ("?", "?") if stale else (one["state"], one.get("lag", ""))
        mine = (one["pod"], role_name(one["role"]), state, lag)
        yield (name, epoch, "?" if stale else shard["phase"], *served, *mine)


def _remarks(kube: Kubectl, found: Mapping[str, Any]) -> Iterator[str]:
    """What a person should know besides the table."""
    said = found.get("status", {})
    if rollout := said.get("rollout"):
        blocked = f"; blocked by {rollout['blockedBy']}" if rollout.get("blockedBy") else ""
        count = f"{rollout.get('updated', 0)} done, {rollout.get('remaining', 0)} to go"
        yield f"restarting ({rollout['cause']}): {count}{blocked}"
    if leaving := said.get("scaleDown"):
        victims = ", ".join(f"shard-{n}" for n in leaving.get("victims", ()))
        left = leaving.get("messagesRemaining")
        unread = "" if left is None else f", {counted(left, 'message')} to read"
        yield f"going: {victims}: {leaving['step']}{unread}"
    if holds(found, "Degraded") == "True":
        yield f"degraded: {condition(found, 'Degraded').get('message', '')}"
    warned = ((condition(found, type_).get("message"), what) for type_, what in WARNINGS)
    yield from (f"{what}{text}" for text, what in warned if text)
    for claim in said.get("storage", ()):
        size = f"{claim.get('capacity', '?')} of {claim['requested']} bytes"
        yield f"claim {claim['claim']}: {size}, {claim.get('condition', '')}"
    for one in pending(kube, found):
        yield f"waits for approval: {one['summary']} `kubectl imago approve` … {one['id']}"
    if not said:
        yield "the operator has not observed it yet: is it running, and for this namespace?"
