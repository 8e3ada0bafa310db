"""The plan for a cluster: a function of desired state, actual state, and time."""

from imago_operator.plan.planner import plan
from imago_operator.plan.rows import PlanRow, ReconcilePlan

__all__ = ["PlanRow", "ReconcilePlan", "plan"]
