"""The cases that a look at a cluster is compared with, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.model.actions import Action
    from imago_operator.model.state import ConditionFinding, PlanWait


class PlanRow(Enum):
    """The cases, in the order in which they are asked: number and name."""

    DELETING = (1, "Deleting")
    PAUSED = (2, "Paused")
    INVALID = (3, "InvalidSpec")
    READING = (4, "Reading")
    CHILDREN = (5, "ApplyingObjects")
    HIBERNATING = (6, "Hibernating")
    REGISTRY = (7, "RegistryUnavailable")
    BOOTSTRAP = (8, "Bootstrapping")
    REPLACE = (9, "ReplacingMember")
    FAILOVER = (10, "ShardWithoutMaster")
    STUCK = (11, "RepairingPods")
    ROLES = (12, "LabellingRoles")
    SETTINGS = (13, "ApplyingSettings")
    STORAGE = (14, "GrowingVolumes")
    SCALE_UP = (15, "ScalingUp")
    ROLLOUT = (16, "Restarting")
    CHANGE_MEMBERS = (17, "ChangingMembers")
    MOVE_MEMBERS = (18, "MovingMembers")
    SERVERS = (19, "ChangingServers")
    RESUME = (20, "TakingShardsBack")
    BLOCKED = (21, "ScaleDownBlocked")
    SCALE_DOWN = (22, "ScalingDown")
    FENCING = (23, "Fenced")
    MEMBERS = (24, "MembersMissing")
    SETTLED = (25, "Settled")

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def title(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """What one case asks for. Without actions and waits it only has something to say."""

    row: PlanRow
    actions: tuple[Action, ...] = ()
    wait: PlanWait | None = None
    next: str = ""
    findings: tuple[ConditionFinding, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the status that are the operator's memory; to be written before the next look."""

    @property
    def decides(self) -> bool:
        return bool(self.actions or self.wait or self.record)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcilePlan:
    """What is done now, what is waited for, and why."""

    row: PlanRow
    actions: tuple[Action, ...] = ()
    wait: PlanWait | None = None
    next: str = ""
    findings: tuple[ConditionFinding, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    late_s: float | None = None
    """How long a wait has been late, if it is."""

    def explain(self) -> str:
        """Return the case, what it waits for and what comes next, in one line."""
        parts = [f"{self.row.number} {self.row.title}"]
        if self.wait:
            parts.append(f"waits for {self.wait.message}")
        if self.next:
            parts.append(f"next: {self.next}")
        return "; ".join(parts)
