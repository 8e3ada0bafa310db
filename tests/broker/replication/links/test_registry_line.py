"""Questions to the registry get an answer, whatever becomes of them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from imago_broker.core.shard import events as ev
from imago_broker.core.shard.effects import Propose
from imago_broker.model.registry.shard import ShardState
from imago_broker.ports import (
    CoordinatorConflictError,
    CoordinatorError,
    CoordinatorUnavailableError,
    Registry,
)
from imago_broker.replication import registry_line
from imago_broker.replication.registry_line import RegistryLine
from imago_testing.virtual.clocks import ManualClock


class States:
    """Answers with what the test has laid ready; without that, as asked."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    async def change_shard(self, _: int, state: ShardState) -> ShardState:
        self._fail()
        return state

    async def read_shard(self, _: int) -> None:
        self._fail()

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop()


class Told:
    """The line's listener."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[Any] = asyncio.Queue()

    def dispatch(self, event: ev.Event) -> None:
        self.events.put_nowait(event)

    def view_read(self, ticket: int) -> None:
        self.events.put_nowait(ticket)

    async def next(self) -> Any:
        return await asyncio.wait_for(self.events.get(), 50)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (None, ev.ProposalDone),
        (CoordinatorConflictError("taken"), ev.ProposalRefused),
        (CoordinatorUnavailableError("gone"), ev.ProposalUnknown),
        (CoordinatorError("odd"), ev.ProposalUnknown),
        (KeyError("a fault of ours"), ev.ProposalUnknown),
    ],
)
async def test_every_proposal_is_answered(error: Exception | None, answer: type) -> None:
    states, told = States(), Told()
    line = RegistryLine(cast("Registry", states), states, 0, told, ManualClock())
    states.errors = [] if error is None else [error]
    line.propose(Propose(ShardState(), -1, 7))
    event = await told.next()
    assert (type(event), event.ticket) == (answer, 7)
    await line.close()


@pytest.mark.parametrize("error", [CoordinatorError("odd"), KeyError("a fault of ours")])
async def test_a_view_is_read_again_until_it_was(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_line, "RETRY_SECONDS", 0.001)
    states, told = States(), Told()
    states.errors = [error, error]
    line = RegistryLine(cast("Registry", states), states, 0, told, ManualClock())
    line.read_view(3)
    assert await told.next() == 3
    assert states.errors == []
    await line.close()
