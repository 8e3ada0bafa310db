"""What the shell asks of the registry: proposals, fresh views, and what our record says."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from imago_broker.core.shard.events import ProposalDone, ProposalRefused, ProposalUnknown
from imago_broker.model.registry.shard import stamped
from imago_broker.ports import (
    CoordinatorConflictError,
    CoordinatorError,
    CoordinatorUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from imago_broker.core.shard.effects import Propose
    from imago_broker.core.shard.events import Event
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.ports import Clock, Registry, ShardStates

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2


class RegistryListener(Protocol):
    """Who receives the answers: the shell."""

    def dispatch(self, event: Event) -> None:
        """Take an event."""
        ...

    def view_read(self, ticket: int) -> None:
        """The coordinator's view is as fresh as the question of this ticket asked for."""
        ...


class RegistryLine:
    """Questions to the coordinator, each in a task of its own, answered as events."""

    def __init__(
        self,
        registry: Registry,
        shard_states: ShardStates,
        shard: int,
        listener: RegistryListener,
        clock: Clock,
    ) -> None:
        self._registry = registry
        self._shard_states = shard_states
        self._shard = shard
        self._listener = listener
        self._clock = clock
        self._record: BrokerRecord | None = None
        self._describing = False
        self._reading: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def propose(self, effect: Propose) -> None:
        """Try to change the shard's state; the answer comes as an event."""
        self._spawn(self._propose(effect))

    def read_view(self, ticket: int) -> None:
        """Read the shard's state and registrations again; a later ticket replaces this one."""
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self._spawn(self._read(ticket))

    def describe(self, record: BrokerRecord) -> None:
        """Have our registration say this; the incarnation stays."""
        self._record = record
        if not self._describing:
            self._describing = True
            self._spawn(self._describe())

    async def close(self) -> None:
        """End all tasks."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("registry_task_failed", exc_info=error)

    async def _propose(self, effect: Propose) -> None:
        state = replace(
            stamped(effect.shard, self._clock.epoch_ms()), version=effect.expected_version
        )
        try:
            written = await self._shard_states.change_shard(self._shard, state)
        except CoordinatorConflictError as error:
            self._listener.dispatch(ProposalRefused(effect.ticket, str(error)))
        except CoordinatorUnavailableError as error:
            logger.info("proposal_unanswered epoch=%d reason=%s", state.epoch, error)
            self._listener.dispatch(ProposalUnknown(effect.ticket))
        except CoordinatorError as error:
            # Neither written nor refused for good: only a fresh view can tell.
            logger.warning("proposal_failed epoch=%d reason=%s", state.epoch, error)
            self._listener.dispatch(ProposalUnknown(effect.ticket))
        except Exception:
            # A fault of ours: without an answer nothing would ever be proposed again.
            logger.exception("proposal_failed epoch=%d", state.epoch)
            self._listener.dispatch(ProposalUnknown(effect.ticket))
        else:
            self._listener.dispatch(ProposalDone(effect.ticket, written))

    async def _read(self, ticket: int) -> None:
        while True:
            try:
                await self._shard_states.read_shard(self._shard)
            except CoordinatorError as error:
                logger.info("shard_unreadable shard=%d reason=%s", self._shard, error)
            except Exception:
                # A fault of ours: without an answer nobody would ever be elected again.
                logger.exception("shard_unreadable shard=%d", self._shard)
            else:
                break
            await asyncio.sleep(RETRY_SECONDS)
        self._listener.view_read(ticket)

    async def _describe(self) -> None:
        try:
            while self._record is not None:
                record, self._record = self._record, None
                await self._registry.register(record)
        except CoordinatorError as error:
            # The coordinator keeps what is wanted and writes it when it can.
            logger.info("registration_delayed reason=%s", error)
        finally:
            self._describing = False
