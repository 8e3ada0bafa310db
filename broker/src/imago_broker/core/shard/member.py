"""One member of a shard as its shell holds it: state, watermark, rules, in one object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard.effects import StepDown, WaitFor
from imago_broker.core.shard.events import HandoverAsked, Led, StopAsked, Tick
from imago_broker.core.shard.machine import step
from imago_broker.core.shard.state import RULES, Rules, State
from imago_broker.core.shard.values import MachineRole, ShardLimits
from imago_broker.core.shard.watermark import Watermark

if TYPE_CHECKING:
    from imago_broker.core.shard.effects import Effect
    from imago_broker.core.shard.events import Event
    from imago_broker.core.shard.values import Log
    from imago_broker.model.registry.shard import Member

LEADING_TICK_MS = 100
ELECTING_TICK_MS = 25
URGENT_TICK_MS = 5
IDLE_TICK_MS = 1000


class ShardMachine:
    """Decides for one member. `now_ms` is a monotonic clock; the object asks none itself.

    `handle` takes what happens now and then and returns the effects, which the shell carries
    out in their order. The other methods are for every loop turn: they cost microseconds and
    have no effects, except that `watermark.value` may have risen.
    """

    def __init__(
        self,
        uuid: str,
        limits: ShardLimits,
        *,
        epoch_seen: int = 0,
        unclean: bool = False,
        rules: Rules = RULES,
    ) -> None:
        self.limits = limits
        self.rules = rules
        self.state = State(uuid=uuid, epoch_seen=epoch_seen, unclean=unclean)
        self.watermark = Watermark()

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Take an event; return what is to be done, in order."""
        if type(event) is Led and event.epoch == self.state.epoch:
            self.watermark.lead(
                end=event.log.end, durable_end=event.durable, high_watermark=event.high_watermark
            )
        self.state, effects = step(self.state, event, now_ms, self.limits, self.rules)
        if isinstance(event, HandoverAsked | StopAsked):
            effects += self.tick(now_ms)
        return [effect for effect in effects if not self._own(effect)]

    def tick(self, now_ms: int) -> list[Effect]:
        """Let time pass; see `tick_after_ms`."""
        return self.handle(Tick(self.watermark.progress()), now_ms)

    def tick_after_ms(self) -> int:
        """After how long `tick` is due, unless an event comes before."""
        state = self.state
        if state.leadership.handover is not None or state.stopping_ms is not None:
            return URGENT_TICK_MS
        if state.role is MachineRole.LEADING:
            return LEADING_TICK_MS
        return ELECTING_TICK_MS if state.role is MachineRole.ELECTING else IDLE_TICK_MS

    def _own(self, effect: Effect) -> bool:
        """Carry out what needs no shell."""
        if isinstance(effect, WaitFor):
            self.watermark.wait_for(effect.members)
            return True
        if isinstance(effect, StepDown):
            self.watermark.stop()
        return False

    # ---- serving --------------------------------------------------------------------------

    def may_serve(self, now_ms: int) -> bool:
        """Whether we may take puts, answer reads and acknowledge: we lead, and the lease holds.

        Ask before each append, and again just before each acknowledgement is written.
        """
        return self.state.leadership.led and self.rules.leased(self.state.lease_until_ms, now_ms)

    # ---- leading: every turn ----------------------------------------------------------------

    def appended(self, end: int) -> int:
        """Our log has grown; return the high watermark."""
        return self.watermark.appended(end)

    def greeting_problem(self, epoch_seen: int) -> str | None:
        """Return why a follower that has promised itself to an epoch is not welcome, or None.

        The shell tells `EpochHeard` too when that epoch is above ours.
        """
        if not self.state.leadership.led:
            return "this member does not lead"
        if epoch_seen > self.state.epoch:
            return f"promised to epoch {epoch_seen}, this is {self.state.epoch}"
        return None

    def fetch_problem(
        self, member: Member, epoch: int, offset: int, offset_epoch: int, log: Log, now_ms: int
    ) -> str | None:
        """A follower asks for our log from an offset on; return why it gets nothing, or None.

        It has joined then, with what it has written; nothing of that counts as synced yet.
        """
        if not self.state.leadership.led or not self.rules.takes(epoch, self.state.epoch):
            return f"epoch {epoch}, this is {self.state.epoch}"
        if not self.rules.valid_fetch(log, offset, offset_epoch):
            return f"offset {offset} of epoch {offset_epoch} is not in this log"
        self.watermark.joined(member, offset, 0, now_ms)
        return None

    def acked(self, member: Member, epoch: int, end: int, durable: int, now_ms: int) -> int:
        """A follower has written and synced up to here; return the high watermark."""
        if self.state.leadership.led and self.rules.takes(epoch, self.state.epoch):
            return self.watermark.acked(member, end, durable, now_ms)
        return self.watermark.value

    def left(self, member: Member, now_ms: int) -> None:
        """The connection of a follower is gone."""
        self.watermark.left(member, now_ms)

    # ---- following: every frame -------------------------------------------------------------

    def takes_data(self, epoch: int) -> bool:
        """Whether data of a leader in this epoch may be appended: promised and reconciled."""
        state = self.state
        return state.reconciled and self.rules.takes(epoch, state.epoch)
