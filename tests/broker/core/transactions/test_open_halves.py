"""What is known of open half messages, and for how long of those that have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.transactions import transactions
from imago_broker.core.transactions.transactions import OpenHalves, Outcome, OutcomeVerdict
from imago_wire.hot import Half

if TYPE_CHECKING:
    import pytest


def opened(halves: OpenHalves, offset: int, group: str = "g") -> Half:
    half = Half(offset, 10 * offset, group, b"u")
    halves.count(group, "o", 1)
    half.owner = "o"
    assert halves.add(half)
    return half


def test_the_newest_outcomes_are_remembered_and_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "REMEMBERED_MAX", 3)
    halves, outcomes = OpenHalves(), [Outcome.COMMITTED, Outcome.ROLLED_BACK]
    for offset in range(20):
        half, outcome = opened(halves, offset), outcomes[offset % 2]
        half.ending = outcome
        if offset % 3:
            halves.end_all([half])
        else:
            halves.end(offset, outcome)
        known = [at for at in range(offset + 1) if halves.outcome_of(at) is outcomes[at % 2]]
        assert known == list(range(offset + 1))[-len(known) :], "the newest ones"
        assert min(3, offset + 1) <= len(known) <= 6
        assert halves.judge(offset, outcome) is OutcomeVerdict.REPEAT
        assert halves.judge(offset, outcomes[(offset + 1) % 2]) is OutcomeVerdict.CONTRADICTED
    assert halves.judge(0, Outcome.COMMITTED) is OutcomeVerdict.UNKNOWN
    assert (len(halves), halves.counted, halves.of_group("g"), halves.of_owner("o")) == (0, 0, 0, 0)


def test_what_came_in_before_the_log_was_read_is_not_taken_anew() -> None:
    halves = OpenHalves()
    half = opened(halves, 3)
    halves.restore(2, 1)
    halves.restore(3, 0)
    halves.known_end = 4
    assert halves.get(3) is half
    halves.recognise(Half(3, 30, "g", b"u"))
    half.ending = Outcome.COMMITTED
    halves.end_all([half])
    assert (len(halves), halves.counted, halves.of_group("g")) == (1, 0, 0)


def test_those_on_their_way_count_whenever_somebody_asks() -> None:
    halves = OpenHalves()
    first, second = halves.coming(), halves.coming()
    noted = [(0, "g", "o"), (1, "h", "")]
    first.noted, second.noted = noted, [(0, "g", "o")]
    assert (halves.of_group("g"), halves.of_group("h"), halves.counted) == (2, 1, 3)
    noted.append((2, "h", "o"))
    assert (halves.of_owner("o"), halves.of_group("h"), halves.counted) == (3, 2, 4)
    noted.append((3, "g", ""))
    halves.come(first)
    noted.append((4, "g", "o"))
    assert halves.counted == 5, "who has come counts no more"
    halves.come(second)
    for group, owner in (("g", "o"), ("g", "o"), ("g", ""), ("h", ""), ("h", "o")):
        halves.count(group, owner, -1)
    assert (halves.of_group("g"), halves.of_owner("o"), halves.counted) == (0, 0, 0)


def test_what_a_record_says_is_noted_without_losing_what_is_under_way() -> None:
    halves = OpenHalves()
    halves.restore(4, checks=2)
    known = halves.get(4)
    assert known is not None
    known.ending = Outcome.COMMITTED
    told: list[object] = []
    known.waiting = [told.append]
    assert halves.recognise(Half(4, 44, "g", b"u", 9, True))
    assert halves.get(4) is known
    assert (known.physical_offset, known.group, known.unique, known.limited) == (44, "g", b"u", 1)
    assert (known.immune_until_ms, known.checks, known.waiting) == (9, 2, [told.append])
    assert not halves.recognise(Half(4, 45, "other")), "it is known by now"
    assert not halves.recognise(Half(5, 45, "other")), "it is not open"
    assert halves.counted == 1
