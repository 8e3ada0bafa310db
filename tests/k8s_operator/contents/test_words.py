"""Every reason that is said of topics, groups and rebalances has its entry in the runbook."""

from __future__ import annotations

import ast
from pathlib import Path

from imago_operator.reasons import EVENTS, REASONS
from imago_operator.reasons.contents import KINDS
from imago_operator.reasons.mirror import KIND, TOLD

SOURCES = Path(__file__).parents[3] / "operator/src/imago_operator"
SAY = {"ContentRefusal": 0, "_refused": 0, "ready": 0, "Leaving": 0, "holds": 1, "failed": 1}
"""Calls that say a reason, and which argument it is."""


def said() -> set[str]:
    """Return every reason that stands in the code."""
    found = set()
    for path in (*(SOURCES / "contents").rglob("*.py"), *(SOURCES / "reconcilers").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func).rpartition(".")[2]
                reason = node.args[SAY[name]] if name in SAY else None
                if isinstance(reason, ast.Constant):
                    found.add(str(reason.value))
    return found


def test_every_reason_in_the_code_has_an_entry_and_every_entry_is_in_the_code() -> None:
    known = {one.reason for one in REASONS if one.kind in (*KINDS, KIND)}
    known |= {one.reason for one in EVENTS if one.kind in KINDS}
    refused = {"PermissionDenied", "QuotaExceeded", "InternalError"}
    computed = {"GroupActive", "ShardMissing", "Copying", *TOLD} | refused
    assert said() | computed == known
