"""A member's session with the coordinator, as a client library would keep it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.core.shard import events as ev
from imago_broker.core.shard.leader_lease import lease_until

if TYPE_CHECKING:
    from imago_broker.core.shard.values import Live
    from imago_broker.model.registry.shard import ShardState
    from imago_testing.simulation.coordinator import Session
    from imago_testing.simulation.member import Process
    from imago_testing.simulation.world import SimulatedRun


RESEND_MS = 50
Act = Callable[[], object]
Done = Callable[[object], None]


class View(NamedTuple):
    """What a reading found."""

    shard: ShardState
    live: Live
    known: frozenset[str]


class Call(NamedTuple):
    """A request on its way."""

    number: int
    connection: int
    act: Act
    done: Done


class SessionClient:
    """Requests in order; their answers, or the news that the connection is lost."""

    def __init__(self, world: SimulatedRun, process: Process) -> None:
        self.world, self.process = world, process
        self.session: Session | None = None
        self.connected = False
        self.suspended = False
        self.answered_ms = 0
        self.outstanding: dict[int, Callable[[], None]] = {}
        """What to do when the connection is lost before the answer, by request."""
        self.unread = 0
        """Ticket of a view that is still to be read."""
        self.request = 0
        self.sent_order_ms = 0
        self.ping_ms = world.session_ms // 4

    # ---- the connection --------------------------------------------------------------------

    def open(self) -> None:
        """Begin a session; when the coordinator cannot be reached, try again."""
        world = self.world
        if world.reaches_coordinator(self.process.index):
            self.session = world.coordinator.open(self.process.uuid, world.now)
            world.watch_session(self.session)
            self.connect()
            self.register()
        world.later(self.process, self.ping_ms, self.ping)

    def connect(self) -> None:
        assert self.session is not None
        self.connected, self.suspended = True, False
        self.session.connection += 1
        self.session.next_request = self.request + 1
        self.session.heard_ms = self.world.now
        self.answered_ms = self.process.now()

    def ping(self) -> None:
        """Keep the session alive and the lease with it; notice when it cannot be."""
        world, process = self.world, self.process
        world.later(process, self.ping_ms, self.ping)
        if self.session is None or not self.connected:
            self.reconnect()
            return
        there, back = world.ways_to_coordinator(process.index)
        sent_ms = process.now()
        if there and self.session.alive:
            self.session.heard_ms = world.now
            if back:
                self.answered_ms = sent_ms
                until = lease_until(sent_ms - world.rng.randint(0, 20), world.session_ms)
                process.tell(ev.LeaseRenewed(until))
                return
        if not self.session.alive or sent_ms > lease_until(self.answered_ms, world.session_ms):
            self.lose_connection()

    def lose_connection(self) -> None:
        """The client library gives the connection up."""
        if not self.connected:
            return
        self.connected = False
        self.suspended = True
        lost, self.outstanding = list(self.outstanding.values()), {}
        self.process.tell(ev.SessionSuspended())
        for tell in lost:
            tell()

    def reconnect(self) -> None:
        world, process = self.world, self.process
        if not world.reaches_coordinator(process.index):
            return
        if self.session is not None and self.session.alive:
            self.connect()
            process.tell(ev.SessionResumed())
            if process.machine.state.member is None:
                self.register()
            return
        if self.session is not None:
            self.suspended = False
            process.tell(ev.SessionLost())
        self.session = world.coordinator.open(process.uuid, world.now)
        world.watch_session(self.session)
        self.connect()
        self.register()

    # ---- requests --------------------------------------------------------------------------

    def call(self, act: Act, done: Done, lost: Callable[[], None]) -> None:
        """Carry `act` out at the coordinator and give its result to `done`, or tell `lost`.

        Requests and answers of one connection keep their order; what a cut way holds back comes
        later, unless the connection is given up before.
        """
        world, process = self.world, self.process
        session = self.session
        if session is None or not self.connected:
            world.later(process, 1, lost)
            return
        self.request += 1
        call = Call(self.request, session.connection, act, done)
        self.outstanding[call.number] = lost
        self.sent_order_ms = max(self.sent_order_ms, world.now + world.delay())
        world.at(self.sent_order_ms, self.arrive, session, call)

    def arrive(self, session: Session, call: Call) -> None:
        """The request is at the coordinator, or waits on its way."""
        world = self.world
        if not session.alive or session.connection != call.connection:
            return
        there, _ = world.ways_to_coordinator(self.process.index)
        if not there or call.number != session.next_request:
            world.at(world.now + (1 if there else RESEND_MS), self.arrive, session, call)
            return
        session.next_request += 1
        session.heard_ms = world.now
        world.at(world.now + world.delay(), self.back, call, call.act())

    def back(self, call: Call, result: object) -> None:
        """The answer is here, or waits on its way."""
        world = self.world
        _, way = world.ways_to_coordinator(self.process.index)
        if way and call.number in self.outstanding:
            if call.number == min(self.outstanding):
                world.deliver(self.process, self.answer, call, result)
            else:
                world.at(world.now + 1, self.back, call, result)
        elif call.number in self.outstanding:
            world.at(world.now + RESEND_MS, self.back, call, result)

    def answer(self, call: Call, result: object) -> None:
        if self.outstanding.pop(call.number, None) is not None:
            self.answered_ms = self.process.now()
            call.done(result)

    def register(self) -> None:
        process, world = self.process, self.world
        session = self.session
        assert session is not None

        def act() -> object:
            member = world.coordinator.register(session, process.info())
            world.hinder(process.index)
            world.wake_watchers()
            return member

        def done(member: object) -> None:
            if member is not None:
                process.disk.incarnation = member.incarnation  # type: ignore[attr-defined]  # a Member
                process.tell(ev.Registered(member))  # type: ignore[arg-type]  # a Member

        self.call(act, done, lambda: None)

    def describe(self) -> None:
        """Have the registration say how the member is now."""
        session = self.session
        if session is None:
            return
        coordinator, world = self.world.coordinator, self.world
        info = self.process.info()

        def act() -> object:
            if coordinator.describe(session, info):
                world.wake_watchers()
            return None

        self.call(act, lambda _: None, lambda: None)

    def propose(self, shard: ShardState, expected: int, ticket: int) -> None:
        process, world = self.process, self.world
        session, member = self.session, process.machine.state.member
        assert session is not None
        assert member is not None

        def act() -> object:
            return world.change_state(process, session, member, shard, expected)

        def done(result: object) -> None:
            if isinstance(result, str):
                process.tell(ev.ProposalRefused(ticket, result))
            else:
                process.tell(ev.ProposalDone(ticket, result))  # type: ignore[arg-type]  # a state

        self.call(act, done, lambda: process.tell(ev.ProposalUnknown(ticket)))

    def read(self, ticket: int) -> None:
        """Read the state, then the registrations: with a ticket until it succeeds."""
        if ticket:
            self.unread = ticket
        coordinator = self.world.coordinator
        early: list[ShardState] = []
        if self.world.rng.random() < 0.1:  # time passes between the two
            self.call(lambda: early.append(coordinator.state), lambda _: None, lambda: None)

        def look() -> View:
            state = early[0] if early else coordinator.state
            return View(state, coordinator.live(), coordinator.known)

        self.call(look, partial(self.seen, ticket), partial(self.read_later, ticket))

    def read_later(self, ticket: int) -> None:
        if ticket and self.unread == ticket:
            self.world.later(self.process, 50, self.read_again, ticket)

    def read_again(self, ticket: int) -> None:
        if self.unread == ticket:
            self.read(ticket)

    def seen(self, ticket: int, view: object) -> None:
        assert isinstance(view, View)
        if ticket and ticket == self.unread:
            self.unread = 0
        log = self.process.disk.log()
        self.process.tell(ev.ViewSeen(view.shard, view.live, view.known, log, ticket))
