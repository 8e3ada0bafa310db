"""Guard of the limits: each is crossed by a test, or it is said why not."""

from __future__ import annotations

from imago_testing.limits import UNTESTED, is_met, kept, limits

UNTESTED_MAX = 103
"""It only falls: take a limit out of `UNTESTED` with the test that crosses it."""


def test_every_limit_is_lowered_by_a_test_or_said_to_stay() -> None:
    """A new limit: lower it in a test, so that its border is crossed (`imago_testing.limits`)."""
    found = {(limit.module, limit.name): limit for limit in limits()}
    unmet = {place for place, limit in found.items() if not is_met(limit)}
    assert unmet - kept() == set()
    assert kept() - found.keys() == set(), "gone: take them out of the tables"
    assert kept() - unmet == set(), "tests lower them now: take them out of the tables"
    assert sum(len(names.split()) for names in UNTESTED.values()) <= UNTESTED_MAX
