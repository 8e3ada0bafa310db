"""Where the sessions' questions arrive: one handler for followers, one for the leader.

Both answer out of the state machine; what moves every turn goes to its methods directly.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.shard.events import EpochHeard, Welcomed
from imago_broker.core.shard.values import Log
from imago_broker.replication.leader.buffer_pool import Lender
from imago_broker.replication.registry_view import log_of
from imago_wire.replication.frames import RefusalCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.core.shard.events import Event
    from imago_broker.core.shard.member import ShardMachine
    from imago_broker.model.registry.shard import Member
    from imago_broker.replication.follower.following import Following
    from imago_broker.replication.leader.leading import Leading
    from imago_broker.replication.leader.sending import SendCursor
    from imago_broker.replication.parts import ShardParts
    from imago_broker.replication.repair import Asker
    from imago_wire.replication.frames import Fetch, Refuse, Welcome

logger = logging.getLogger(__name__)

MOVES_ON = (
    RefusalCode.MEMBER,
    RefusalCode.NOT_LEADER,
    RefusalCode.STALE_EPOCH,
    RefusalCode.DIVERGED,
)
"""Refusals that pass by themselves: views of the registry differ for a moment."""


class FollowerHandler:
    """Answers the sessions of followers while this member leads; `leading.Followers`."""

    def __init__(
        self,
        parts: ShardParts,
        machine: ShardMachine,
        dispatch: Callable[[Event], None],
        watermark_moved: Callable[[], None],
    ) -> None:
        self.leading: Leading | None = None
        self._parts = parts
        self._lender = Lender(parts.store)
        self._machine = machine
        self._dispatch = dispatch
        self._watermark_moved = watermark_moved

    def greeting_problem(self, epoch_seen: int) -> str | None:
        """Return why a caller that has promised this epoch is not served now."""
        problem = self._machine.greeting_problem(epoch_seen)
        if problem is not None and self.leading is not None and epoch_seen > self.leading.epoch:
            self._dispatch(EpochHeard(epoch_seen))
        return problem

    def fetch_problem(self, member: Member, fetch: Fetch) -> str | None:
        """Return why a log does not continue ours; None: the follower has joined."""
        problem = self._machine.fetch_problem(
            member,
            fetch.epoch,
            fetch.offset,
            fetch.last_epoch,
            log_of(self._parts.store),
            self._parts.clock.monotonic_ms(),
        )
        self._watermark_moved()
        return problem

    def acked(self, member: Member, cursor: SendCursor) -> None:
        """Count what a follower has."""
        if self.leading is None:
            return
        self._machine.acked(
            member,
            self.leading.epoch,
            cursor.acked,
            cursor.durable,
            self._parts.clock.monotonic_ms(),
        )
        self._watermark_moved()

    def left(self, member: Member) -> None:
        """Note that a follower is connected no more."""
        self._machine.left(member, self._parts.clock.monotonic_ms())

    def wants_sync(self) -> bool:
        """Whether answers wait for the disks of other members."""
        return self._parts.messages.acknowledgements.waits_for(Acknowledgement.REPLICATED_FSYNC)

    def repair_bytes(self, offset: int, size: int) -> bytes | memoryview:
        """Return bytes of our log that are whole, or none."""
        return self._lender.lend(offset, size)

    def repaired(self, asker: Asker, offset: int, data: memoryview) -> None:
        """Take bytes that we had asked for."""
        parts = self._parts
        parts.repairs.answered(asker, offset, data, parts.clock.monotonic_ms())


class LeaderHandler:
    """Hears what the leader says while this member follows; `follower.Owner`."""

    def __init__(
        self,
        parts: ShardParts,
        machine: ShardMachine,
        dispatch: Callable[[Event], None],
        ended: Callable[[str], None],
    ) -> None:
        self.following: Following | None = None
        self.leader_end: int | None = None
        """End of the leader's log as it said last."""
        self._parts = parts
        self._lender = Lender(parts.store)
        self._machine = machine
        self._dispatch = dispatch
        self._ended = ended

    def welcomed(self, welcome: Welcome) -> None:
        """Have the two logs compared; what comes of it are effects."""
        self._dispatch(
            Welcomed(
                epoch=welcome.epoch,
                log=Log(welcome.log_start, welcome.log_end, welcome.epochs),
                own=log_of(self._parts.store),
            )
        )

    def takes_data(self, epoch: int) -> bool:
        """Whether log bytes of this leadership may be written."""
        return self._machine.takes_data(epoch)

    def grew(self, *, leader_end: int) -> None:
        """Note that the copy or the high watermark has moved; readers may see more."""
        self.leader_end = leader_end
        self._parts.messages.acknowledgements.progressed()

    def refused(self, refusal: Refuse) -> None:
        """Try again later, with a newer view if there is one."""
        if refusal.code not in MOVES_ON:
            reason = f"by the leader, code {refusal.code}"
            self._parts.refused.note("leader", reason, refusal.text)
        self._dispatch(EpochHeard(refusal.epoch))
        self._ended(f"refused: {refusal.text}")

    def repair_bytes(self, offset: int, size: int) -> bytes | memoryview:
        """Return bytes of our log that are whole, or none."""
        return self._lender.lend(offset, size)

    def repaired(self, asker: Asker, offset: int, data: memoryview) -> None:
        """Take bytes that we had asked for."""
        parts = self._parts
        parts.repairs.answered(asker, offset, data, parts.clock.monotonic_ms())

    def ended(self, reason: str) -> None:
        """Pass on that the connection is gone."""
        self._ended(reason)
