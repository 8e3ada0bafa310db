"""What push consumers work on is kept for them, and given back when they are gone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.consuming import renewals
from imago_broker.processors.grpc.consuming.renewals import PushRenewals
from imago_testing.virtual.clocks import ManualClock
from imago_wire.grpc.codes import SdkCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.processors.grpc.consuming.receipts import Handle

CLIENT = ("", "client")
GIVEN = "0 1000 60000 0 0 shard-0 1 7 4096"


class Hidden:
    """Notes for how long messages are to be out; answers as it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.fails = False

    def hide(
        self,
        call: Any,
        group: str,
        topic: str,
        handle: Handle,
        invisible_ms: int,
        done: Callable[[Any], None] = lambda _: None,
    ) -> None:
        del call, group, topic
        self.asked.append((str(handle), invisible_ms))
        failed = CallError(SdkCode.INTERNAL_SERVER_ERROR, "no")
        done(failed if self.fails else handle.postponed(handle.due_ms, invisible_ms))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(epoch_ms=1000)


@pytest.fixture
def hidden() -> Hidden:
    return Hidden()


@pytest.fixture
def kept(clock: ManualClock, hidden: Hidden) -> PushRenewals:
    made = PushRenewals(clock)
    made.hiding = hidden
    made.only_for({CLIENT})
    made.add(call(), "group", "topic", [GIVEN])
    return made


def call() -> Any:
    return SimpleNamespace(key=CLIENT)


def test_nothing_is_kept_out_for_who_is_not_there(kept: PushRenewals, hidden: Hidden) -> None:
    """It never said what it is, or left while it waited for messages."""
    kept.only_for(())
    kept.gone(CLIENT)
    hidden.asked.clear()
    kept.add(call(), "group", "topic", [GIVEN])
    assert len(kept) == 0
    kept.tick()
    assert hidden.asked == []


def test_nearly_over_is_prolonged_by_more_each_time(
    kept: PushRenewals, clock: ManualClock, hidden: Hidden
) -> None:
    kept.tick()
    assert hidden.asked == []
    clock.advance(50_000)
    kept.tick()
    newest = kept.newest(CLIENT, "group", GIVEN)
    assert newest is not None
    assert (newest.due_ms, hidden.asked) == (61_000 + 60_000, [(GIVEN, 60_000)])
    clock.advance(60_000)
    kept.tick()
    assert [ms for _, ms in hidden.asked] == [60_000, 180_000]


def test_nothing_is_kept_for_longer_than_three_hours(
    kept: PushRenewals, clock: ManualClock
) -> None:
    clock.advance(renewals.LONGEST_MS + 1)
    kept.tick()
    assert len(kept) == 0


def test_what_is_acknowledged_is_kept_no_more(
    kept: PushRenewals, clock: ManualClock, hidden: Hidden
) -> None:
    kept.drop(CLIENT, "group", GIVEN)
    kept.drop(CLIENT, "group", GIVEN)
    clock.advance(100_000)
    kept.tick()
    assert (len(kept), hidden.asked) == (0, [])


def test_others_get_soon_what_a_client_had_that_is_gone(kept: PushRenewals, hidden: Hidden) -> None:
    kept.gone(("", "another"))
    assert hidden.asked == []
    kept.gone(CLIENT)
    assert hidden.asked == [(GIVEN, renewals.LEFT_BEHIND_MS)]
    assert len(kept) == 0


def test_what_cannot_be_prolonged_is_tried_a_few_times(
    kept: PushRenewals, clock: ManualClock, hidden: Hidden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "FAILURES_MAX", 2)
    hidden.fails = True
    clock.advance(55_000)
    for left in (1, 0, 0):
        kept.tick()
        assert len(kept) == left
    assert len(hidden.asked) == 2


def test_no_more_is_kept_than_allowed(kept: PushRenewals, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewals, "HANDLES_MAX", 2)
    for offset in (8, 9):
        kept.add(call(), "group", "topic", [GIVEN.replace(" 7 ", f" {offset} ")])
    assert len(kept) == 2
