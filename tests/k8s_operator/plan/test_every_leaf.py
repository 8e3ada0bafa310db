"""Each leaf of an ImagoCluster's spec, changed alone on a cluster that runs, and changed back.

It converges, or is refused with words, or stands still and says why; and something is done about
all but those that nothing has to be done about. The leaves are those of the
definition, so that a new field is asked as well; what it is changed to comes from its bounds.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_operator.model.desired import Desired, desired_of
from imago_operator.spec.kinds import CLUSTER
from imago_testing.operated.resources import OPERATOR, resource
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.model.actions import ClassClaim
    from imago_operator.spec.schema.fields import Schema

SELECTED: Final = {"labelSelector": {"matchLabels": {"a": "b"}}}
VALUES: Final[dict[str, tuple[Any, ...]]] = {
    "acknowledgement": ("leader", "leader-fsync", "replicated-fsync"),
    "version": ("1.1.0", "2.0.0"),
    "chroot": ("/mq",),
    "removeShards": ([1],),
    "imagePullSecrets": ([{"name": "mine"}],),
    "config": ({"rocketmq.pull_hold_ms_max": 9000}, {"metaq.zk_root": "/other"}),
    "requests": ({"cpu": "2"},),
    "limits": ({"memory": "2Gi"},),
    "shardPools": ([{"shards": [0], "nodeSelector": {"pool": "a"}}],),
    "labels": ({"team": "a"},),
    "annotations": ({"team": "a"},),
    "nodeSelector": ({"pool": "a"},),
    "selector": ({"matchLabels": {"a": "b"}},),
    "affinity": ({"nodeAffinity": {}},),
    "tolerations": ([{"key": "a", "operator": "Exists"}],),
    "topologySpreadConstraints": (
        [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway"} | SELECTED],
    ),
    "securityContext": ({"runAsUser": 7},),
    "volumes": ([{"name": "more", "emptyDir": {}}],),
    "volumeMounts": ([{"name": "tmp", "mountPath": "/more"}],),
    "initContainers": ([{"name": "first", "image": "busybox"}],),
    "sidecars": ([{"name": "beside", "image": "busybox"}],),
    "env": ([{"name": "MORE", "value": "1"}],),
    "allowedPeers": ([], [{"podSelector": {"matchLabels": {"a": "b"}}}]),
    "servers": (["zk-0.zk:2181"],),
    "clientServers": (["zk-0.zk:2181"],),
    "listeners": ([{"name": "out", "type": "NodePort", "firstNodePort": 30900}],),
    "superUsers": (["root"],),
    "windows": ([{"schedule": "0 22 * * sat", "duration": "4h"}],),
}
"""What lists and maps are changed to, by the field's name."""
QUIET: Final = 130
"""Looks at which a cluster waits and nothing is done, until it stands still: a server of ZooKeeper
is given two minutes, a look takes a second."""
GROUPS: Final[dict[str, dict[str, Any]]] = {
    "spec.brokers.storage.autoGrow": {"spec.brokers.storage.autoGrow": {"max": "90Gi"}},
    "spec.zookeeper.external.tls": {
        "spec.zookeeper": {"external": {"servers": ["zk:2181"], "tls": {"secretName": "mine"}}}
    },
    "spec.zookeeper.external.auth": {
        "spec.zookeeper": {"external": {"servers": ["zk:2181"], "auth": {"secretName": "mine"}}}
    },
    "spec.zookeeper.external": {"spec.zookeeper": {"external": {"servers": ["zk:2181"]}}},
    "spec.tls.clientsCa": {"spec.tls": {"clientsCa": {}}},
    "spec.tls": {"spec.tls": {}},
}
"""Parts that a cluster need not have: those are changed in one that has them."""
STAND_STILL: Final = frozenset({"spec.version", "spec.hibernated"})
"""Leaves that a cluster does not follow, or follows by serving nobody; the status says so."""
SILENT: Final = frozenset(
    {
        "allowedNamespaces.from",
        "authorization.superUsers",
        "brokers.removeShards",
        "brokers.storage.autoGrow.above",
        "brokers.storage.autoGrow.coolDown",
        "brokers.storage.autoGrow.max",
        "brokers.storage.autoGrow.step",
        "brokers.storage.persistentVolumeClaimRetentionPolicy.whenScaled",
        "featureLevel",
        "scaleDown.drain",
        "scaleDown.timeout",
        "scaleUp.fill",
        "tls.ca.overlap",
        "tls.ca.renewBefore",
        "tls.ca.validity",
        "tls.clientsCa.overlap",
        "tls.clientsCa.renewBefore",
        "tls.renewBefore",
        "tls.validity",
        "updatePolicy.maxUnavailableShards",
        "updatePolicy.mode",
        "updatePolicy.onOperatorUpgrade",
        "updatePolicy.readyTimeout",
        "updatePolicy.windows",
        "zookeeper.external.clientServers",
    }
)
"""Leaves that no object depends on: they say what is done later, or who may, or how long."""
BY_LOOKS: Final = ("x-1", "7m", "2h", "1000h", "20Gi", "1Gi", "/x")
"""What texts are changed to: those that a field's form and rules let in."""


def leaves(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for name, part in schema.get("properties", {}).items():
        if part.get("properties"):
            yield from leaves(part, f"{path}.{name}")
        else:
            yield f"{path}.{name}", part


def base(path: str) -> dict[str, Any]:
    """Return the cluster in which a leaf is changed, as changes of the plain one."""
    return next((said for part, said in GROUPS.items() if path.startswith(f"{part}.")), {})


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return a cluster with one leaf changed."""
    found = resource(copy.deepcopy(base(path)))
    *parts, last = path.split(".")
    node = found
    for part in parts:
        node = node.setdefault(part, {})
    node[last] = value
    return found


def values(path: str, part: Schema) -> list[Any]:
    """Return what a leaf is changed to, one after the other."""
    name = path.rpartition(".")[2]
    if name in VALUES:
        return list(VALUES[name])
    if "enum" in part:
        return [one for one in part["enum"] if one != part.get("default")]
    match part["type"]:
        case "boolean":
            return [not part.get("default", False)]
        case "integer":
            ends = {part["minimum"], min(part["maximum"], 4)} - {part.get("default")}
            return sorted(ends)
        case "string":
            alone = [one for one in BY_LOOKS if one != part.get("default")]
            taken = [one for one in alone if not list(CLUSTER.problems(changed(path, one)))]
            return taken[:2] or alone[:1]
        case kind:
            raise AssertionError(f"{path}: say in VALUES what a {kind} is changed to")


LEAVES: Final = [
    pytest.param(path, value, id=f"{path.removeprefix('spec.')}={str(value)[:24]}")
    for path, part in leaves(CLUSTER.spec_schema, "spec")
    for value in values(path, part)
]


@dataclass
class LeafWorld(ClusterWorld):
    """A cluster whose claims may have a class of attributes."""

    def _classclaim(self, action: ClassClaim) -> None:
        claim = self.claims[action.name]
        self.claims[action.name] = replace(claim, attributes_class=action.attributes_class)


@cache
def _settled(group: str) -> ClusterWorld:
    world = LeafWorld(_read(resource(copy.deepcopy(GROUPS.get(group, {})))))
    world.settle()
    world.done.clear()
    return world


def settled(path: str) -> ClusterWorld:
    """Return a cluster that runs, to be changed."""
    group = next((part for part in GROUPS if path.startswith(f"{part}.")), "")
    return copy.deepcopy(_settled(group))


def _read(manifest: dict[str, Any]) -> Desired:
    found = desired_of(manifest, OPERATOR)
    assert isinstance(found, Desired), found
    return found


def live(world: ClusterWorld, desired: Desired) -> str:
    """Let a cluster become what it is to be; return what is in the way, in the status' words."""
    world.desired = desired
    quiet, found = 0, world.look()[1]
    while quiet < QUIET and not (quiet > 2 and found.wait is None):
        before = len(world.done)
        found = world.look()[1]
        world.turn()
        quiet = quiet + 1 if len(world.done) == before and not found.record else 0
        assert len(world.done) < 4000, found.explain()
    told = {c.type: c for c in world.status.conditions}
    if told["Ready"].status.value == "True" and found.wait is None:
        return ""
    said = "; ".join(c.message for c in world.status.conditions if c.message)
    assert said, f"it stands still without a word: {found.explain()}"
    return said


def outcome(path: str, value: Any) -> tuple[str, str]:
    """Change a leaf, and change it back; return what came of it, with the words."""
    before, after = resource(copy.deepcopy(base(path))), changed(path, value)
    if problems := list(CLUSTER.problems(after, before)):
        return "refused", str(problems[0])
    desired = desired_of(after, OPERATOR)
    if not isinstance(desired, Desired):
        return "refused", desired.problem
    world = settled(path)
    whole = {c.type: c.status for c in world.status.conditions}
    said = live(world, desired)
    did = ",".join(sorted({type(action).__name__ for action in world.done}))
    if said:
        return "stands still", said
    if list(CLUSTER.problems(before, after)):
        return "for good", did
    live(world, _read(before))
    told = {c.type: c.status for c in world.status.conditions}
    assert told == whole, "changed back it is not as it was"
    return "converges", did


@pytest.mark.parametrize(("path", "value"), LEAVES)
def test_a_leaf_changed_alone(path: str, value: Any) -> None:
    what, words = outcome(path, value)
    if what == "stands still":
        assert path in STAND_STILL, words
    elif what == "refused":
        assert words
    else:
        assert bool(words) is (path.removeprefix("spec.") not in SILENT), f"it did {words}"
