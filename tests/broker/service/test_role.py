"""The role of a broker: who is told of a change, and what counts as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.model.registry.cluster import Role
from imago_broker.service.role import ALONE, RoleState, ShardRole

if TYPE_CHECKING:
    import pytest

SLAVE = ShardRole(role=Role.SLAVE, epoch=3)


def test_broker_without_replication_leads() -> None:
    state = RoleState()
    assert state.current is ALONE
    assert state.leads


def test_listeners_hear_each_change_once_in_their_order() -> None:
    state, heard = RoleState(), list[tuple[str, ShardRole]]()
    state.on_change.append(lambda role: heard.append(("first", role)))
    state.on_change.append(lambda role: heard.append(("second", role)))
    state.change(SLAVE)
    state.change(ShardRole(role=Role.SLAVE, epoch=3))
    assert heard == [("first", SLAVE), ("second", SLAVE)]
    assert not state.leads


def test_listener_that_fails_keeps_nobody_else_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: ShardRole) -> None:
        raise RuntimeError("a fault")

    state, heard = RoleState(), list[ShardRole]()
    state.on_change += [fail, heard.append]
    state.change(SLAVE)
    assert heard == [SLAVE]
    assert "role_listener_failed" in caplog.text
