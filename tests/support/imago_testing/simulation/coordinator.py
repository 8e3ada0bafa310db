"""A model of the coordinator: sessions, registrations, one state node, compare-and-set.

Requests of one client are carried out in their order. When its connection is lost, what was not
carried out never will be, and what was not answered is in doubt. Watches only wake.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.model.registry.shard import NOT_CREATED, Member, ShardState

if TYPE_CHECKING:
    from imago_broker.core.shard.values import MemberInfo


class Session:
    """What the coordinator knows of one client process."""

    __slots__ = ("alive", "closed", "connection", "heard_ms", "next_request", "number", "uuid")

    def __init__(self, number: int, uuid: str, now_ms: int) -> None:
        self.number, self.uuid, self.heard_ms = number, uuid, now_ms
        self.alive = True
        self.closed = False
        """Whether it was ended by force, so that no lease holds any more."""
        self.next_request = 1
        self.connection = 0
        """Number of the client's connection; requests of an earlier one are refused."""


class Coordinator:
    """The registry of one shard."""

    def __init__(self) -> None:
        self.zxid = 100
        self.state = ShardState()
        self.registered: dict[str, tuple[MemberInfo, Session]] = {}
        self.known: frozenset[str] = frozenset()
        self.last = ShardState()
        """The state as it was before somebody deleted its node."""
        self.forgets_next = False
        """Whether the node is deleted as soon as another leadership is written."""

    def open(self, uuid: str, now_ms: int) -> Session:
        self.zxid += 1
        return Session(self.zxid, uuid, now_ms)

    def expire(self, session: Session) -> bool:
        """End a session; return whether a registration went with it."""
        session.alive = False
        entry = self.registered.get(session.uuid)
        if entry is not None and entry[1] is session:
            del self.registered[session.uuid]
            self.zxid += 1
            return True
        return False

    def register(self, session: Session, info: MemberInfo) -> Member | None:
        """Register a member, in the place of an earlier life of it and of no later one."""
        entry = self.registered.get(session.uuid)
        if not session.alive or (entry is not None and entry[1].number > session.number):
            return None
        self.zxid += 1
        self.registered[session.uuid] = (info._replace(incarnation=self.zxid), session)
        self.known |= {session.uuid}
        return Member(session.uuid, self.zxid)

    def describe(self, session: Session, info: MemberInfo) -> bool:
        entry = self.registered.get(session.uuid)
        if entry is None or entry[1] is not session:
            return False
        self.registered[session.uuid] = (
            info._replace(incarnation=entry[0].incarnation, replica=entry[0].replica),
            session,
        )
        return True

    def live(self) -> dict[str, MemberInfo]:
        return {uuid: info for uuid, (info, _) in self.registered.items()}

    @property
    def told(self) -> ShardState:
        """The state as it was told last, though its node may be deleted."""
        return self.last if self.state.version == NOT_CREATED else self.state

    def forget(self) -> None:
        """Somebody deletes the state's node."""
        self.zxid += 1
        self.last = self.told
        self.forgets_next = False
        self.state = ShardState()

    def change(
        self, session: Session, writer: Member, shard: ShardState, expected: int
    ) -> ShardState | str:
        """Compare-and-set; return the new state, or why not."""
        entry = self.registered.get(writer.uuid)
        if not session.alive or entry is None or entry[1] is not session:
            return "the writer is not registered"
        if entry[0].incarnation != writer.incarnation:
            return "another life of the writer is registered"
        if self.state.version != expected:
            return f"version {self.state.version}, expected {expected}"
        self.zxid += 1
        if shard.leads(writer):
            info = entry[0]._replace(standing=False, leads=True, epoch_seen=shard.epoch)
            self.registered[writer.uuid] = (info, session)
        self.state = replace(shard, version=expected + 1)
        return self.state
