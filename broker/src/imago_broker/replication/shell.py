"""One member of a shard, with sockets and disk around the decisions of `core.shard`.

What happens outside (the registry, connections, the log, time) becomes an event or a call of the
state machine; the effects that it returns are carried out in their order, each finished before the
next. Everything belongs to the event loop's thread, so the machine sees one thing at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from imago_broker.core.shard import effects as do
from imago_broker.core.shard import events
from imago_broker.core.shard.member import ShardMachine
from imago_broker.model.registry.cluster import RegistryConnection
from imago_broker.model.registry.shard import NOT_CREATED, Member, told
from imago_broker.replication.effect_executor import EffectExecutor, EffectListeners
from imago_broker.replication.failover_policy import Troubles
from imago_broker.replication.registry_line import RegistryLine
from imago_broker.replication.registry_view import log_of, view_seen

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.core.shard.values import ShardLimits
    from imago_broker.model.registry.cluster import ClusterView
    from imago_broker.replication.links.link import Link
    from imago_broker.replication.parts import Host, ShardParts
    from imago_broker.replication.repair import Asker

logger = logging.getLogger(__name__)
TICK_MS = 100
"""Connections are looked after this often, whatever the machine asks for."""
STOP_SECONDS_MAX = 4.0


class ShardShell:
    """Takes part in a shard from `start`, with our registration standing, to `stop`."""

    def __init__(self, parts: ShardParts, limits: ShardLimits, host: Host) -> None:
        self.machine = ShardMachine(
            parts.identity.uuid,
            limits,
            epoch_seen=parts.store.epoch_seen,
            unclean=parts.store.unclean,
        )
        self._parts = parts
        self._store = parts.store
        self._host = host
        self._read_to = 0
        self._version = NOT_CREATED
        """Of the newest state of the shard that the log of this process tells of."""
        self._loop = asyncio.get_running_loop()
        self._line = RegistryLine(
            parts.registry, parts.shard_states, parts.identity.shard, self, parts.clock
        )
        self._requests = Requests()
        self._left = asyncio.Event()
        self.executor = EffectExecutor(
            parts,
            host,
            self.machine,
            self._line,
            EffectListeners(
                dispatch=self.dispatch,
                watermark_moved=self._watermark_moved,
                answered=self._requests.answered,
                left=self._left.set,
            ),
        )
        self.troubles = Troubles(parts, host, self.machine, self.executor, self.dispatch)
        self._events: deque[events.Event] = deque()
        self._busy = self._started = self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0

    @property
    def in_sync(self) -> bool:
        """Whether this life of the member is in the in-sync set."""
        state = self.machine.state
        return state.member in state.shard.in_sync

    @property
    def obstacle(self) -> str:
        """What keeps this member from copying its leader's log; "" while nothing is known."""
        return "" if self.executor.following is None else self.executor.following.obstacle

    @property
    def needed_for(self) -> str:
        """What keeps a member that stands still from throwing its log away."""
        return self.troubles.needed_for

    @property
    def leader_end(self) -> int | None:
        """End of the leader's log as told last; our own while we lead."""
        if self.executor.leading is not None:
            return self._store.log_end
        return self.executor.leader.leader_end

    # Beginning and end

    def start(self) -> None:
        """Take part from now on."""
        parts = self._parts
        self._started = True
        parts.registry.on_change(self._view_changed)
        parts.registry.on_state(self._session_changed)
        parts.messages.acknowledgements.on_durable(self._durable_moved)
        self._store.on_append.add(self._appended)
        self._store.on_forced.add(self.troubles.note_forced)
        self._look()
        self._set_timer()

    async def stop(self) -> None:
        """Hand over, or leave the in-sync set, as far as that can be had in time."""
        if not self._started or self._closed:
            return
        self.dispatch(events.StopAsked())
        if not self.executor.failed:
            try:
                async with asyncio.timeout(STOP_SECONDS_MAX):
                    await self._left.wait()
            except TimeoutError:
                logger.warning("shard_not_left seconds=%g", STOP_SECONDS_MAX)
        await self.close()

    async def close(self) -> None:
        """Take part no more, whatever the others think. May be called again."""
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.executor.close()
        self._parts.addresses.close()
        self._store.on_append.remove(self._appended)
        self._store.on_forced.remove(self.troubles.note_forced)
        self._requests.close()
        await self.troubles.close()
        await self._line.close()

    async def hand_over(self, target: str | None, request: str) -> tuple[bool, str]:
        """Give leadership to the member of this uuid, or to the best; tell how that went.

        The same request again is the same handover.
        """
        return await self._ask(events.HandoverAsked(request, target), request)

    async def elect(self, request: str, *, allow_data_loss: bool) -> tuple[bool, str]:
        """Lead a shard that has no leader, as a person asks; tell how that went."""
        return await self._ask(events.ElectAsked(request, allow_data_loss), request)

    async def _ask(self, event: events.Event, request: str) -> tuple[bool, str]:
        stopped = self._closed or self.executor.failed or self.executor.left
        return await self._requests.ask(request, lambda: self.dispatch(event), stopped=stopped)

    # Events

    def dispatch(self, event: events.Event) -> None:
        """Take an event; one that an effect brings about waits until its effects are done."""
        if self._closed or self.executor.failed:
            return
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events and not self._closed:
                for effect in self.machine.handle(
                    self._events.popleft(), self._parts.clock.monotonic_ms()
                ):
                    self.executor.carry_out(effect)
            self.executor.show_role()
        except Exception as error:
            # Half a change of role must not serve: the process ends, and begins again as follower.
            self.executor.fail(error, disk=False)
        finally:
            self._busy = False
        self._watermark_moved()
        self._set_timer()

    def view_read(self, ticket: int) -> None:
        """Tell the machine a view as fresh as it asked for."""
        self._tell_view(self._parts.registry.view(), ticket)

    def _view_changed(self, view: ClusterView) -> None:
        if not self._closed:
            self._look()
            self._tell_view(view, 0)

    def _tell_view(self, view: ClusterView, ticket: int) -> None:
        seen = view_seen(view, self._parts.identity.shard, log_of(self._store), ticket)
        self._parts.counters.saw(seen.shard)
        if seen.shard.version > self._version:
            self._version = seen.shard.version
            logger.info(
                "shard_state version=%d epoch=%d leader=%s in_sync=%s cause=%r", *told(seen.shard)
            )
        self.dispatch(seen)

    def _session_changed(self, state: RegistryConnection) -> None:
        if self._closed:
            return
        if state is RegistryConnection.SUSPENDED:
            self.dispatch(events.SessionSuspended())
        elif state is RegistryConnection.CONNECTED:
            self.dispatch(events.SessionResumed())
        else:
            self.dispatch(events.SessionLost())
        self._look()

    def _look(self) -> None:
        """See whether our registration is another one, and how long the lease lasts."""
        registry, gate = self._parts.registry, self._parts.gate
        registered, known = registry.registered, self.machine.state.member
        if registry.state is RegistryConnection.CONNECTED and registered is not None:
            member = Member(registered.uuid, registered.incarnation)
            if member != known:
                if known is not None:
                    self.dispatch(events.SessionLost())
                self.dispatch(events.Registered(member))
        until_ms = registry.lease_end_ms
        if until_ms != gate.lease_end_ms:
            gate.lease_end_ms = until_ms
            self.dispatch(events.LeaseRenewed(until_ms))
            self._parts.messages.acknowledgements.progressed()

    def take_link(self, link: Link) -> None:
        """Serve a connection: as the leader, or by telling that we are none."""
        leading = self.executor.leading
        if leading is None or self._closed:
            self._parts.port.refuse(link, self.machine.state.epoch_seen)
        else:
            leading.take(link)

    def is_member(self, address: str) -> bool:
        """Whether a member of our shard may call from this address."""
        identity = self._parts.identity
        return self._parts.addresses.includes(address, identity.view().members(identity.shard))

    # Time

    def _set_timer(self) -> None:
        if self._closed or not self._started:
            return
        due = self._loop.time() + min(self.machine.tick_after_ms(), TICK_MS) / 1000
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        # Kept here: what uvloop returns for a moment that has come knows no time.
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._look()
            self.dispatch(events.Tick(self.machine.watermark.progress()))
            self._look_after_connections()
            self.troubles.look_at_failures(in_sync=self.in_sync)
        finally:
            self._set_timer()

    def _look_after_connections(self) -> None:
        now_ms, executor = self._parts.clock.monotonic_ms(), self.executor
        askers: list[Asker] = []
        if executor.leading is not None:
            executor.leading.tick()
            askers += executor.leading.copying()
        if executor.following is not None:
            executor.following.tick()
            # The in-sync set takes members whose copy is on disk only.
            if not self.in_sync and self._store.durable_end < self._store.log_end:
                self._store.request_sync()
            if self._read_to != self._store.high_watermark:
                self._read_to = self._store.high_watermark
                self._host.readable()
            if executor.following.session is not None and executor.following.session.copying:
                askers.append(executor.following.session)
        self._parts.repairs.tick(now_ms, askers)
        self.troubles.look_at_damage(now_ms)
        self.troubles.look_at_room(now_ms)

    # What moves every turn

    def _appended(self) -> None:
        """Follow an append; the message service looks by itself at what is visible then."""
        store = self._store
        high_watermark = self.machine.appended(store.log_end)
        if high_watermark > store.high_watermark:
            store.set_high_watermark(high_watermark)
        if self.executor.leading is not None:
            self.executor.leading.appended()

    def _durable_moved(self) -> None:
        if self.executor.leading is not None:
            self.machine.watermark.synced(self._store.durable_end)
            self._watermark_moved()
        elif self.executor.following is not None:
            self.executor.following.durable_moved()

    def _watermark_moved(self) -> None:
        """Let readers and producers have what the in-sync members have."""
        leading, gate, store = self.executor.leading, self._parts.gate, self._store
        if leading is None or self._busy:
            return  # while effects are carried out: afterwards
        watermark = self.machine.watermark
        risen = watermark.value > store.high_watermark
        if risen:
            store.set_high_watermark(watermark.value)
            leading.watermark_rose()
        if risen or watermark.durable != gate.durable_end:
            gate.durable_end = watermark.durable
            self._parts.messages.acknowledgements.progressed()


# What administrators ask of the member: each request is carried out once, however often asked.


REQUESTS_MAX = 100
"""Requests of administrators that are remembered."""
STOPS = "this broker stops"


class Requests:
    """The answers by request; those that are done are kept for who asks again."""

    def __init__(self) -> None:
        self._answers: dict[str, asyncio.Future[do.Answer]] = {}

    async def ask(
        self, request: str, begin: Callable[[], None], *, stopped: bool
    ) -> tuple[bool, str]:
        """Return the answer; `begin` is called for a request that is not known."""
        answer = self._answers.get(request)
        if answer is None:
            if stopped:
                return False, STOPS
            if len(self._answers) >= REQUESTS_MAX:
                oldest, text = next(iter(self._answers)), "too many requests came after it"
                self.answered(do.Answer(oldest, done=False, text=text))
                del self._answers[oldest]
            answer = self._answers[request] = asyncio.get_running_loop().create_future()
            begin()
        found = await asyncio.shield(answer)
        return found.done, found.text

    def answered(self, answer: do.Answer) -> None:
        """Give who waits the state machine's answer."""
        waiting = self._answers.get(answer.request)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def close(self) -> None:
        """Answer all who still wait."""
        for request in self._answers:
            self.answered(do.Answer(request, done=False, text=STOPS))
