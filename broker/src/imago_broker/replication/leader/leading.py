"""The side that leads: all followers' connections of one epoch, pushed to once a loop turn."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from imago_broker.core.repeated_lines import RepeatedLines
from imago_broker.model import feature_level
from imago_broker.replication.leader.leader_session import (
    LeaderSession,
    SessionRefusedError,
    SessionStage,
)
from imago_broker.replication.leader.sending import Allowance, SendCursor
from imago_log.errors import StoreError
from imago_wire.replication.frames import EPOCHS_MAX, RefusalCode, Welcome

if TYPE_CHECKING:
    from imago_broker.model.registry.shard import Member
    from imago_broker.replication.links.addresses import Addresses
    from imago_broker.replication.links.link import Link
    from imago_broker.replication.links.member import ThisMember
    from imago_broker.replication.links.port import ReplicationPort
    from imago_broker.replication.repair import Asker
    from imago_wire.replication.frames import Fetch, Hello, Refuse, Repair, RepairAsk

logger = logging.getLogger(__name__)

BEAT_MS = 250
"""Silence after which a follower gets a sign of life; it expects one within 500 ms."""
HELD_MS = 1000
"""A follower that has said anything for so long keeps its connection: it answers every beat."""
WATERMARK_SECONDS = 0.002
"""How long a risen high watermark may wait for log bytes to travel with."""


class Followers(Protocol):
    """Who decides about followers, and hears what they have: the shell."""

    def greeting_problem(self, epoch_seen: int) -> str | None:
        """Return why a caller that has promised this epoch is not served now."""
        ...

    def fetch_problem(self, member: Member, fetch: Fetch) -> str | None:
        """Return why a log does not continue ours; None: the follower has joined."""
        ...

    def acked(self, member: Member, cursor: SendCursor) -> None:
        """A follower has more, or more on its disk."""
        ...

    def left(self, member: Member) -> None:
        """A follower that had joined is connected no more."""
        ...

    def wants_sync(self) -> bool:
        """Whether answers wait for the disks of other members."""
        ...

    def repair_bytes(self, offset: int, size: int) -> bytes | memoryview:
        """Return bytes of our log that are whole, or none."""
        ...

    def repaired(self, asker: Asker, offset: int, data: memoryview) -> None:
        """Bytes that this side had asked for have come, or none."""
        ...


class Refused(NamedTuple):
    """What a follower did not take."""

    offset: int
    reason: str


class Leading:
    """One leadership of this member. Made when it begins, closed when it ends."""

    def __init__(
        self,
        epoch: int,
        this: ThisMember,
        followers: Followers,
        port: ReplicationPort,
        addresses: Addresses,
        *,
        catch_up_bytes_per_second: int,
    ) -> None:
        self.epoch = epoch
        self.sessions: set[LeaderSession] = set()
        self.refusals: dict[str, Refused] = {}
        """Why members did not take what they were sent, by uuid, until they have taken it."""
        self._store, self._identity = this.store, this.identity
        self._counters, self._clock = this.counters, this.clock
        self._followers, self._addresses = followers, addresses
        self._refused, self._link_ended = port.refused, port.gone
        self._loop = asyncio.get_running_loop()
        self._rate = catch_up_bytes_per_second
        self._lines = RepeatedLines(this.clock.monotonic_ms)
        self._closed = False
        self._turn: asyncio.Handle | None = None
        self._watermark: asyncio.TimerHandle | None = None

    def take(self, link: Link) -> None:
        """Serve a connection."""
        session = LeaderSession(link, self, now_ms=self._clock.monotonic_ms())
        self.sessions.add(session)

    def close(self) -> None:
        """End the leadership: every follower looks for the next leader."""
        for handle in (self._turn, self._watermark):
            if handle is not None:
                handle.cancel()
        self._closed = True
        self._store.keep_from(None)
        for session in tuple(self.sessions):
            session.refuse(SessionRefusedError(RefusalCode.NOT_LEADER, "the leadership has ended"))

    def copying(self) -> list[LeaderSession]:
        """Return the followers whose logs continue ours."""
        return [session for session in self.sessions if session.stage is SessionStage.COPYING]

    # Pushing

    def appended(self) -> None:
        """The log has grown, or a follower can take more: push once this turn has ended."""
        if self._turn is None and self.sessions:
            self._turn = self._loop.call_soon(self._push)

    def watermark_rose(self) -> None:
        """Tell the followers soon, with the next log bytes or without."""
        if self._watermark is None and self.sessions:
            self._watermark = self._loop.call_later(WATERMARK_SECONDS, self._tell_watermark)

    def tick(self) -> None:
        """Show signs of life and end what hangs; a few times a second."""
        now_ms = self._clock.monotonic_ms()
        for session in tuple(self.sessions):
            session.check_time(now_ms)
            cursor = session.cursor
            if cursor is not None and now_ms - cursor.sent_ms >= BEAT_MS:
                self._beat(session, cursor, now_ms)
        self._keep_what_is_read()
        self.appended()  # a follower whose rate was used up may go on

    def _keep_what_is_read(self) -> None:
        """Have retention wait for connected followers: else they would begin again."""
        cursors = [session.cursor for session in self.sessions if session.cursor is not None]
        self._store.keep_from(min((cursor.acked for cursor in cursors), default=None))

    def _push(self) -> None:
        self._turn = None
        now_ms, sync, more = self._clock.monotonic_ms(), self._followers.wants_sync(), False
        for session in tuple(self.sessions):
            cursor = session.cursor
            if cursor is not None:
                more |= self._push_one(session, cursor, now_ms, sync=sync)
        if more:
            self.appended()

    def _push_one(
        self, session: LeaderSession, cursor: SendCursor, now_ms: int, *, sync: bool
    ) -> bool:
        try:
            return cursor.push(now_ms, sync=sync)
        except (StoreError, LookupError) as error:
            # Retention has taken what it needs, or the range is damaged: it compares again.
            session.refuse(SessionRefusedError(RefusalCode.DIVERGED, str(error)))
            return False

    def _tell_watermark(self) -> None:
        self._watermark = None
        now_ms, high_watermark = self._clock.monotonic_ms(), self._store.high_watermark
        for session in tuple(self.sessions):
            cursor = session.cursor
            if cursor is not None and cursor.high_watermark < high_watermark:
                self._beat(session, cursor, now_ms)

    def _beat(self, session: LeaderSession, cursor: SendCursor, now_ms: int) -> None:
        try:
            cursor.beat(now_ms, sync=self._followers.wants_sync())
        except LookupError as error:
            session.refuse(SessionRefusedError(RefusalCode.DIVERGED, str(error)))

    # What sessions ask

    def welcome(self, session: LeaderSession, hello: Hello) -> Welcome:
        """Look the caller up; `Leadership.welcome`."""
        identity, store = self._identity, self._store
        self._check_caller(session, hello)
        for other in tuple(self.sessions):
            if other is not session and other.member.uuid == hello.uuid:
                self._check_displaced(other, hello)
                other.close()
                self.ended(other, None)
        session.link.known()
        return Welcome(
            epoch=self.epoch,
            uuid=identity.uuid,
            incarnation=identity.incarnation(),
            epochs=store.epochs[-EPOCHS_MAX:],
            log_start=store.log_start,
            log_end=store.log_end,
            high_watermark=store.high_watermark,
        )

    def _check_displaced(self, other: LeaderSession, hello: Hello) -> None:
        """One connection a life: a second one takes the place of the first when that is silent."""
        silent_ms = self._clock.monotonic_ms() - other.heard_ms
        if other.member.incarnation == hello.incarnation and silent_ms < HELD_MS:
            raise SessionRefusedError(
                RefusalCode.MEMBER, "this life of the member is connected already"
            )

    def _check_caller(self, session: LeaderSession, hello: Hello) -> None:
        identity = self._identity
        if hello.cluster_id != identity.cluster_id:
            raise SessionRefusedError(
                RefusalCode.CLUSTER, f"cluster {hello.cluster_id!r} is not ours"
            )
        if hello.shard != identity.shard:
            raise SessionRefusedError(
                RefusalCode.SHARD, f"shard {hello.shard}, this is {identity.shard}"
            )
        live = identity.live(hello.uuid)
        if live is None or live.incarnation != hello.incarnation or live.uuid == identity.uuid:
            raise SessionRefusedError(
                RefusalCode.MEMBER, f"member {hello.uuid!r} is not registered so"
            )
        problem = self._addresses.problem(session.link.peer, live.host, live.addresses)
        if problem is not None:
            raise SessionRefusedError(RefusalCode.MEMBER, f"member {hello.uuid!r} {problem}")
        # It may have come between the look at all members and the rise of the level.
        problem = feature_level.too_old(identity.view().feature_level, own=hello.feature_level)
        if problem is not None:
            raise SessionRefusedError(RefusalCode.PROTOCOL, problem)
        problem = self._followers.greeting_problem(hello.epoch)
        if problem is not None:
            raise SessionRefusedError(RefusalCode.STALE_EPOCH, problem)

    def begin(self, session: LeaderSession, fetch: Fetch) -> SendCursor:
        """Check where the caller wants to go on; `Leadership.begin`."""
        problem = self._followers.fetch_problem(session.member, fetch)
        if problem is not None:
            raise SessionRefusedError(RefusalCode.DIVERGED, problem)
        cursor = SendCursor(
            self._store,
            session.link,
            epoch=self.epoch,
            offset=fetch.offset,
            allowance=Allowance(self._rate),
            counters=self._counters,
        )
        self.appended()
        return cursor

    def acked(self, session: LeaderSession) -> None:
        """Pass on what a follower has; `Leadership.acked`."""
        cursor = session.cursor
        if cursor is None:
            return
        self._followers.acked(session.member, cursor)
        refused = self.refusals.get(session.member.uuid) if self.refusals else None
        if refused is not None and cursor.acked > refused.offset:
            del self.refusals[session.member.uuid]
        if cursor.next < self._store.log_end:
            self.appended()  # the window may have opened

    def metadata_snapshot(self) -> bytes:
        """Return what a log lacks that begins behind it; `Leadership.metadata_snapshot`."""
        return self._store.metadata_snapshot()

    def repair_bytes(self, ask: RepairAsk) -> bytes | memoryview:
        """Return the bytes that a follower lacks; `Leadership.repair_bytes`."""
        return self._followers.repair_bytes(ask.offset, ask.size)

    def repaired(self, session: LeaderSession, repair: Repair) -> None:
        """Pass on bytes that were asked for; `Leadership.repaired`."""
        self._followers.repaired(session, repair.offset, repair.data)

    def distrusted(self, session: LeaderSession, cursor: SendCursor, refuse: Refuse) -> None:
        """Check at once what a follower could not take; `Leadership.distrusted`."""
        reason = "".join(each if each.isprintable() else "?" for each in refuse.text)
        self.refusals[session.member.uuid] = Refused(cursor.acked, reason)
        known = refuse.code == RefusalCode.DAMAGED and self._store.verify(cursor.acked, cursor.next)
        if times := self._lines.due(session.member.uuid, reason):
            logger.warning(
                "replication_distrusted peer=%s from=%d to=%d damage_known_here=%s times=%d"
                " reason=%s",
                session.link.peer,
                cursor.acked,
                cursor.next,
                known,
                times,
                reason,
            )

    def ended(self, session: LeaderSession, refusal: SessionRefusedError | None) -> None:
        """Forget a session; `Leadership.ended`."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        if refusal is not None and not self._closed:
            self._refused.note(session.link.peer, refusal.code.name.lower(), refusal.reason)
        self._link_ended(session.link)
        if session.cursor is not None:
            self._followers.left(session.member)
