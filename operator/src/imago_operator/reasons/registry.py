"""What ZooKeeper says of its users, as conditions of an ImagoCluster."""

from __future__ import annotations

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
