"""Which versions of brokers an operator runs: those of its own minor line and of the one before.

It knows their settings and their HTTP, and has been tried with them. A version that is newer than
the operator may need what it has never heard of; one that is older still may lack what it asks for.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBERS: Final = re.compile(r"([0-9]+)\.([0-9]+)\.([0-9]+)")
LINES: Final = 2
"""Minor lines that are run: the operator's own, and those before it."""
UNDERSTOOD: Final[Mapping[tuple[int, int], int]] = MappingProxyType({(0, 1): 1, (0, 2): 2})
"""The feature level that a minor line of brokers understands."""
REGISTRY_USER_SINCE: Final = (0, 2, 0)
"""From this version on brokers can be a user of ZooKeeper, and reach it over TLS.

Earlier ones refuse the settings."""


def numbers(version: str) -> tuple[int, int, int]:
    """Return major, minor and patch; ValueError for what is no version."""
    found = NUMBERS.match(version)
    if found is None:
        raise ValueError(f"{version!r} is no version: major.minor.patch")
    return int(found[1]), int(found[2]), int(found[3])


def refusal(version: str, operator: str) -> str | None:
    """Return why an operator does not run brokers of a version; None: it does."""
    if version == operator:
        return None
    asked, own = numbers(version), numbers(operator)
    if asked > own:
        return f"{version} is newer than the operator, {operator}: upgrade the operator first"
    if asked[0] != own[0] or asked[1] <= own[1] - LINES:
        return f"{version} is too old for operator {operator}, which runs {lines(operator)}"
    return None


def step_problem(running: str | None, wanted: str, level: int | None) -> str | None:
    """Return why brokers cannot get a version; None: they can.

    One minor step up; one down while the cluster's feature level is none that this lacks.
    `running`: the version that all of them have; None: not known. `level`: None: not known.
    """
    if running is None:
        return None
    now, then = numbers(running), numbers(wanted)
    if then[:2] < now[:2]:
        text = f"spec.version: {wanted} is older than {running}, which brokers have"
        if then[0] != now[0] or then[1] < now[1] - 1:
            return f"{text}, by more than one minor step"
        if level is None or level > UNDERSTOOD.get(then[:2], 0):
            return f"{text}, and does not understand the cluster's feature level {level or '?'}"
        return None
    if then[0] != now[0] or then[1] > now[1] + 1:
        text = f"spec.version: from {running} to {wanted} is more than one minor step"
        return f"{text}; set {now[0]}.{now[1] + 1} first, with an operator that runs it"
    return None


def has_registry_user(version: str) -> bool:
    """Whether brokers of a version can be a user of ZooKeeper, and reach it over TLS."""
    return numbers(version) >= REGISTRY_USER_SINCE


def lines(operator: str) -> str:
    """Return the minor lines that an operator runs, in words."""
    major, minor, _ = numbers(operator)
    known = range(max(0, minor - LINES + 1), minor + 1)
    return " and ".join(f"{major}.{number}" for number in known)
