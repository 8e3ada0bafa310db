"""What each condition, reason and event means, and what a person does about it.

One source: `docs/runbook.md` is made from it, `kubectl imago explain` prints it, and a test finds
every reason in the code that is missing here.
"""

from imago_operator.reasons.model import Happening, Reason
from imago_operator.reasons.table import EVENTS, REASONS, find

__all__ = ["EVENTS", "REASONS", "Happening", "Reason", "find"]
