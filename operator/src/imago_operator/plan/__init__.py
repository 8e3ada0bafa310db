"""What is to be done about a cluster: a function of what is wanted, what is there, and when."""

from imago_operator.plan.planner import plan
from imago_operator.plan.rows import PlanRow, ReconcilePlan

__all__ = ["PlanRow", "ReconcilePlan", "plan"]
