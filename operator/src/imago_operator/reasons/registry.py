"""Who brokers are to ZooKeeper, as conditions of an ImagoCluster."""

from __future__ import annotations

from functools import partial
from typing import Final

from imago_operator.reasons.model import Reason

USER_LOST: Final = Reason(
    "ImagoCluster",
    "Degraded",
    "RegistryUserLost",
    "The Secret of the brokers' user in ZooKeeper is gone. Those that run serve; no pod of them"
    " can start, and nothing is restarted.",
    "Restore `CLUSTER-zookeeper-user` with the same `password`. If nobody has it:"
    " [another user](operator.md#who-brokers-are-to-zookeeper).",
)
_open = partial(Reason, "ImagoCluster", "RegistryOpen")
OPEN: Final = (
    _open(
        "AsSpecified",
        "The spec lets everybody who reaches ZooKeeper change the brokers' nodes: who does so can"
        " take a shard's mastership away.",
        "Leave `spec.zookeeper.managed.authentication` out, or set `spec.zookeeper.external.auth`;"
        " until then let only brokers and MetaQ's clients reach ZooKeeper (`allowedPeers`).",
    ),
    _open(
        "VersionTooOld",
        "Brokers of `spec.version` can be no user of ZooKeeper: its nodes are everybody's.",
        "Raise `spec.version` to 0.2.0 or newer.",
    ),
    _open(
        "SecretRefused",
        "The operator may not read the Secret of the brokers' user, so brokers have none in"
        " ZooKeeper, whose nodes are everybody's.",
        "Name `CLUSTER-zookeeper-user` in the chart's `rbac.secrets`, or say that open is meant:"
        " `spec.zookeeper.managed.authentication: None`.",
    ),
    _open(
        "RestartsPending",
        "Brokers become a user of ZooKeeper in two rounds of restarts, one member at a time. Until"
        " all have closed their nodes, everybody who reaches ZooKeeper may change them.",
        "Nothing where *Updating* is there. With *UpdatePending*: `kubectl imago approve CLUSTER`,"
        " once for both rounds.",
    ),
)
