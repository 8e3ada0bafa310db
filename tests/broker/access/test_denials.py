"""The log of refusals: every reason of a peer once a minute, and none is lost uncounted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.service.access import denials
from imago_broker.service.access.denials import DenialLog
from imago_testing.virtual.clocks import ManualClock

if TYPE_CHECKING:
    import pytest

MINUTE_MS = 60_000


def test_each_reason_of_a_peer_is_told_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    log = DenialLog(clock, audit=True)
    for _ in range(3):
        log.note("10.0.0.1", "code=10", "no write to orders", served=True)
        log.note("10.0.0.1", "code=11", "no read of orders", served=True)
    log.note("10.0.0.2", "code=10", "no write to orders", served=True)
    assert [line.partition("peer=")[2] for line in caplog.messages] == [
        "10.0.0.1 code=10 reason=no write to orders",
        "10.0.0.1 code=11 reason=no read of orders",
        "10.0.0.2 code=10 reason=no write to orders",
    ]
    assert log.audited == 7
    clock.advance(MINUTE_MS)
    log.note("10.0.0.1", "code=11", "no read of orders", served=True)
    assert caplog.messages[3].endswith("peer=10.0.0.1 code=11 untold=4 reason=no read of orders")


def test_what_is_beyond_a_few_reasons_is_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denials, "LOGGED_REASONS_MAX", 2)
    clock = ManualClock()
    log = DenialLog(clock)
    for number in range(5):
        log.note("10.0.0.1", "code=10", f"no write to {number}")
    assert len(caplog.messages) == 2
    clock.advance(MINUTE_MS)
    log.note("10.0.0.1", "code=10", "no write to 7")
    assert "untold=3" in caplog.messages[2]
    assert log.count == 6


def test_peers_beyond_the_limit_are_told_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(denials, "LOGGED_PEERS_MAX", 2)
    log = DenialLog(ManualClock())
    for number in (1, 2, 3, 1):
        log.note(f"10.0.0.{number}", "code=10", "no")
    assert len(caplog.messages) == 4
