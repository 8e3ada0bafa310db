"""What may change about the disks of a cluster, and about ZooKeeper's servers."""

from __future__ import annotations

from typing import Any, Final

from imago_operator.spec.schema.rule import Rule, immutable, not_smaller

BROKERS: Final = "spec.brokers"
STORAGE: Final = "spec.brokers.storage"
SERVERS: Final = "spec.zookeeper.managed"


def _moves_one_at_a_time(node: Any, old: Any) -> bool:
    wanted = node["storage"].get("storageClassName")
    if wanted in (None, old["storage"].get("storageClassName")):
        return True
    members = node["replicasPerShard"]
    return bool(members > node.get("minInSync", 2 if members > 1 else 1))


def _servers_stay_asleep(node: Any, old: Any) -> bool:
    now, before = (each["zookeeper"].get("managed") for each in (node, old))
    many = (now or {}).get("replicas"), (before or {}).get("replicas")
    return not old["hibernated"] or None in (now, before) or many[0] == many[1]


RULES: Final[tuple[Rule, ...]] = (
    not_smaller(STORAGE),
    immutable(STORAGE, "type"),
    Rule(
        path=BROKERS,
        cel="!has(self.storage.storageClassName) || (has(oldSelf.storage.storageClassName)"
        " && self.storage.storageClassName == oldSelf.storage.storageClassName)"
        " || self.replicasPerShard > (has(self.minInSync) ? self.minInSync"
        " : (self.replicasPerShard > 1 ? 2 : 1))",
        holds_after=_moves_one_at_a_time,
        message="storageClassName changes one member at a time, while puts need the others:"
        " replicasPerShard must be above minInSync, 3 unless that is given",
    ),
    Rule(
        path=SERVERS,
        cel="self.replicas % 2 == 1",
        holds=lambda node: node["replicas"] % 2 == 1,
        message="ZooKeeper needs an odd number of servers: 1, 3 or 5",
    ),
    Rule(
        path="spec",
        cel="!oldSelf.hibernated || !has(self.zookeeper.managed) || !has(oldSelf.zookeeper.managed)"
        " || self.zookeeper.managed.replicas == oldSelf.zookeeper.managed.replicas",
        holds_after=_servers_stay_asleep,
        message="replicas of ZooKeeper stay while the cluster hibernates: set hibernated to false"
        " first, by itself",
    ),
    immutable(f"{SERVERS}.storage", "storageClassName"),
    not_smaller(f"{SERVERS}.storage"),
)
