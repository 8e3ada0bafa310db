"""What becomes of a member that cannot do its part, and of a leader that another should replace.

Another one should where the leader's log stays damaged, or its disk full.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.core.shard.election import leader_lives
from imago_broker.core.shard.events import HandoverAsked
from imago_broker.core.shard.expendable import has_room_elsewhere, needed_for
from imago_broker.ports import CoordinatorError
from imago_broker.replication.registry_view import log_of, view_seen
from imago_log.disk.pressure import DiskLevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.core.shard.events import Event
    from imago_broker.core.shard.member import ShardMachine
    from imago_broker.replication.effect_executor import EffectExecutor
    from imago_broker.replication.parts import Host, ShardParts
    from imago_log.lifecycle.forced import ForcedRange

STUCK_LOOK_SECONDS = 1.0
"""How often a member that stands still looks whether it may begin again."""
DAMAGE = "damage"
"""The request of a leader with damage, for whose answer nobody waits."""
DAMAGED_LEADS_MS = 10_000
"""How long a leader tries to have its log healed before it gives leadership away."""
DAMAGED_AGAIN_MS = 30_000
"""How long until it tries again."""
NO_ROOM = "no-room"
"""The request of a leader without room, for whose answer nobody waits."""
CROWDED_LEADS_MS = 10_000
"""How long a leader has too little room before it gives leadership to a member that has more."""


class Troubles:
    """Checked with every tick."""

    def __init__(
        self,
        parts: ShardParts,
        host: Host,
        machine: ShardMachine,
        executor: EffectExecutor,
        dispatch: Callable[[Event], None],
    ) -> None:
        self.needed_for = ""
        """What keeps a member that stands still from throwing its log away."""
        self._parts = parts
        self._host = host
        self._machine = machine
        self._executor = executor
        self._dispatch = dispatch
        self._way_out: asyncio.Task[None] | None = None
        self._damaged = parts.store.damaged
        self._damage_due_ms = parts.clock.monotonic_ms() + DAMAGED_LEADS_MS
        self._crowded = self._crowding()
        self._crowded_since_ms = parts.clock.monotonic_ms()

    async def close(self) -> None:
        """Look no more."""
        if self._way_out is not None:
            self._way_out.cancel()
            await asyncio.gather(self._way_out, return_exceptions=True)

    def look_at_failures(self, *, in_sync: bool) -> None:
        """Forget them when this member does its part; find a way out where it cannot."""
        failures, executor = self._parts.failures, self._executor
        if executor.stuck is None:
            if failures.last is not None and not executor.failed and in_sync:
                failures.clear()
                executor.announce()
        elif self._way_out is None or self._way_out.done():
            self._way_out = asyncio.get_running_loop().create_task(
                self._find_way_out(str(executor.stuck))
            )

    def look_at_damage(self, now_ms: int) -> None:
        """Have the others know of damage; give leadership to a whole log if ours stays so."""
        store, executor = self._parts.store, self._executor
        if store.damaged != self._damaged:
            self._damaged = store.damaged
            self._damage_due_ms = now_ms + DAMAGED_LEADS_MS
            executor.announce()
        if self._damaged and executor.leading is not None and now_ms >= self._damage_due_ms:
            self._damage_due_ms = now_ms + DAMAGED_AGAIN_MS
            self._dispatch(HandoverAsked(DAMAGE))

    def look_at_room(self, now_ms: int) -> None:
        """Have the others know how full the disk is; give leadership to a member with more room.

        Old messages go for new ones only where no member has room: see `may_force`.
        """
        executor, crowding = self._executor, self._crowding()
        if crowding != self._crowded:
            self._crowded, self._crowded_since_ms = crowding, now_ms
            executor.announce()
        leading = crowding and executor.leading is not None
        if leading and now_ms - self._crowded_since_ms >= CROWDED_LEADS_MS:
            self._crowded_since_ms = now_ms
            state = self._machine.state
            if has_room_elsewhere(state.shard, state.live, state.uuid, crowding):
                self._dispatch(HandoverAsked(NO_ROOM))

    def may_force(self) -> bool:
        """Whether the log's oldest files may go for want of room: no in-sync member has any."""
        state = self._machine.state
        if not self._machine.may_serve(self._parts.clock.monotonic_ms()):
            return False
        return not has_room_elsewhere(state.shard, state.live, state.uuid)

    def note_forced(self, went: ForcedRange, messages: int) -> None:
        """Have people know what went for want of room."""
        self._executor.note(
            f"log offsets {went.start} to {went.end} went for want of room before they had expired:"
            f" {messages} messages"
        )

    def _crowding(self) -> int:
        """How little room our disk has, as `MemberInfo` counts it."""
        level = self._parts.store.disk_level
        return 2 if level is DiskLevel.FULL else int(level is DiskLevel.FORCE)

    async def _find_way_out(self, failure: str) -> None:
        """Begin again where the shard has all that it acknowledged elsewhere."""
        parts, shard = self._parts, self._parts.identity.shard
        await asyncio.sleep(STUCK_LOOK_SECONDS)
        try:
            await parts.shard_states.read_shard(shard)
        except CoordinatorError as error:
            self.needed_for = f"the registry does not answer: {error}"
            return
        seen = view_seen(parts.registry.view(), shard, log_of(parts.store), ticket=0)
        if not leader_lives(seen.shard, seen.live):
            # Whoever is needed must be able to lead, or to follow another.
            self._host.fail(f"{failure}; the leader is gone", disk=True)
            return
        least = self._machine.limits.min_in_sync
        self.needed_for = needed_for(seen.shard, seen.live, parts.identity.uuid, least)
        if not self.needed_for:
            self._host.reset_member(failure)
