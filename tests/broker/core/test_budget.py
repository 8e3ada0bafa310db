"""Memory of unread answers."""

from __future__ import annotations

import pytest

from imago_broker.core.budget import SMALL_ANSWER_BYTES, OutputBudget


def test_answers_shrink_and_then_stop_while_peers_do_not_read() -> None:
    budget = OutputBudget(1 << 20)
    assert budget.allowance(4 << 20) == 4 << 20
    budget.hold(1 << 20)
    assert budget.allowance(4 << 20) == SMALL_ANSWER_BYTES
    assert budget.allowance(100) == 100
    budget.hold(1 << 20)
    assert budget.allowance(100) == 0
    budget.release(1 << 20)
    budget.release(1)
    assert budget.allowance(4 << 20) == 4 << 20


def test_releasing_what_was_not_held_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="releases what it holds"):
        OutputBudget(1).release(1)
