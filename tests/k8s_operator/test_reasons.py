"""Every condition, reason and event has its entry, and the runbook shows them all."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path

import pytest

from imago_operator.model.actions import ADDITIVE, Action
from imago_operator.plan import PlanRow, plan
from imago_operator.reasons import EVENTS, REASONS, find
from imago_operator.reasons.cases import CASES
from imago_operator.reasons.page import PAGES, renewed
from imago_operator.reporting.happenings import events_of
from imago_operator.reporting.status import status_of
from imago_testing.operated.states import random_look
from imago_testing.operated.stories import by_row
from imago_testing.operated.things import START

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "operator/src/imago_operator"
TOLD_IN = (
    *(
        "plan",
        "reporting/status.py",
        "reconcilers/cluster.py",
        "events.py",
        "apply.py",
        "errors.py",
    ),
    *("model/desired.py", "reporting/service.py", "reporting/room.py"),
    "certificates/ends.py",
    "certificates/plan.py",
    "certificates/clients.py",
)
"""Modules that say why something is as it is."""
WORDS = re.compile(r"[A-Z][a-z]+([A-Z][a-z]+)*")
NO_REASONS = frozenset(
    {
        # roles, states and phases of members and shards
        *("CatchingUp", "Cordoned", "Degraded", "Drained", "InSync", "Master", "Offline"),
        *("Serving", "Slave", "Unknown", "Draining", "Accepted", "Refused"),
        "Gi",  # of a size
        # kinds and modes of resources
        *(
            "Bound",
            "ConfigMap",
            "Drain",
            "Ephemeral",
            "Event",
            "Fill",
            "ImagoRebalance",
            "Lost",
            "NetworkPolicy",
        ),
        *(
            "PersistentVolumeClaim",
            "PlanRow",
            "Pod",
            "PodDisruptionBudget",
            "Restart",
            "ReconcilePlan",
            "Seal",
            "Secret",
            "Service",
        ),
        # classes that a module exports
        *("PlanRow", "ReconcilePlan"),
        # why a member moves
        *("Ordered", "Placement", "Size", "StorageClass"),
        # of Kubernetes
        *("Apply", "FileSystemResizePending", "Normal", "Warning"),
    }
)


def words() -> set[str]:
    """Every text in those modules that looks like a type or a reason."""
    found = set()
    for name in TOLD_IN:
        path = SOURCES / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found |= {node.value} if WORDS.fullmatch(node.value) else set()
    return found


def test_every_reason_in_the_code_has_an_entry() -> None:
    known = {one.reason for one in REASONS} | {one.type for one in REASONS}
    known |= {row.title for row in PlanRow} | {one.reason for one in EVENTS}
    assert words() - known - NO_REASONS == set()


def test_every_entry_is_in_the_code() -> None:
    titles = {row.title for row in PlanRow}
    said = {one.reason for one in REASONS if one.kind == "ImagoCluster"}
    assert said - words() - titles == set()


def test_every_action_that_is_told_has_an_entry() -> None:
    taken = {kind.__name__ for kind in Action.__args__ if kind not in ADDITIVE}
    told = {one.reason for one in EVENTS if one.kind == "ImagoCluster"}
    # Of no action: that nothing is done, what was put back with an object, what brokers deleted.
    assert told - taken == {"OperatedByAnother", "DriftCorrected", "DeletedForRoom"}
    assert taken <= told


def test_each_entry_is_there_once() -> None:
    named = [(one.kind, one.type, one.reason) for one in REASONS]
    assert len(named) == len(set(named))
    assert all(one.means and one.cure for one in REASONS)


@pytest.mark.parametrize("seed", range(40))
def test_what_is_said_of_any_cluster_has_an_entry(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        desired, seen = random_look(rng)
        found = plan(desired, seen, START)
        status = status_of(desired, seen, found, START)
        for one in status.conditions:
            assert find("ImagoCluster", one.type, one.reason), (one.type, one.reason)
        told = {event.reason for event in events_of(seen.status, status, found)}
        assert told <= {one.reason for one in REASONS} | {one.reason for one in EVENTS}


def test_what_is_said_in_each_case_has_an_entry() -> None:
    for row, manifest in by_row().items():
        for one in manifest["status"]["conditions"]:
            assert find("ImagoCluster", one["type"], one["reason"]), (row, one)


@pytest.mark.parametrize("name", sorted(PAGES))
def test_pages_show_them(name: str) -> None:
    page = (ROOT / "docs" / name).read_text()
    assert renewed(name, page) == page, "make docs"


def test_every_case_has_its_line() -> None:
    assert [case.title for case in CASES] == [row.title for row in PlanRow]


def test_entries_refer_to_parts_of_the_runbook_that_are_there() -> None:
    page = (ROOT / "docs/runbook.md").read_text()
    referred = {part for one in REASONS for part in re.findall(r"[Ss]ee \*([^*]+)\*", one.cure)}
    titles = {line.removeprefix("### ").split(":")[0] for line in page.splitlines()}
    assert referred - titles == set()
