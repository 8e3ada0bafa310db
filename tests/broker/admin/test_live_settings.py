"""Settings that change while a broker runs, and what they change in it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from imago_broker.app import Broker
    from imago_testing.peers.admin import Admin


async def test_levels_of_the_log_and_what_is_kept_change_at_once(
    admin: Admin, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    wanted = {"log.level": "error", "store.retention_ms": 5_000, "store.retention_bytes_max": 99}
    status, answer = await admin.call("PATCH", "/admin/v1/config", wanted)
    assert (status, answer["changed"]) == (200, sorted(wanted))
    assert logging.getLogger().level == logging.ERROR
    limits = broker.store.components.deleter.limits
    assert (limits.retention_ms, limits.retention_bytes) == (5_000, 99)
