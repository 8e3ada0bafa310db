"""What a member does: the effects of the state machine, carried out one after the other."""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imago_broker.core.shard import effects as do
from imago_broker.core.shard import events
from imago_broker.model.registry.cluster import Role
from imago_broker.replication.follower.following import Following
from imago_broker.replication.leader.leading import Leading
from imago_broker.replication.peer_handlers import FollowerHandler, LeaderHandler
from imago_broker.replication.registry_view import log_of
from imago_broker.service.metaq_transactions.staged_marks import cut_unpublished
from imago_broker.service.puts.put_status import PutStatus
from imago_broker.service.role import ShardRole
from imago_log.errors import (
    DiskFullError,
    LogIOError,
    NoSpaceError,
    StaleEpochError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from imago_broker.core.shard.member import ShardMachine
    from imago_broker.replication.failures import Failure
    from imago_broker.replication.parts import Host, ShardParts
    from imago_broker.replication.registry_line import RegistryLine

logger = logging.getLogger(__name__)

NOTES_MAX = 50
COPYING = frozenset({"Truncate", "Reset", "FetchFrom", "Follow", "Mark"})
"""Effects of a follower that concern its own log: an empty one has no trouble with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectListeners:
    """What the shell hears of effects, and of the members that they connect."""

    dispatch: Callable[[events.Event], None]
    watermark_moved: Callable[[], None]
    answered: Callable[[do.Answer], None]
    """What became of a request."""
    left: Callable[[], None]
    """An orderly stop is done."""


class EffectExecutor:
    """Carries out effects; knows what this member leads or follows at the moment."""

    def __init__(
        self,
        parts: ShardParts,
        host: Host,
        machine: ShardMachine,
        line: RegistryLine,
        listeners: EffectListeners,
    ) -> None:
        dispatch = listeners.dispatch
        self.leading: Leading | None = None
        self.following: Following | None = None
        self.followers = FollowerHandler(parts, machine, dispatch, listeners.watermark_moved)
        self.leader = LeaderHandler(parts, machine, dispatch, self._connection_ended)
        self.left = False
        """Whether an orderly stop is done as far as the shard goes."""
        self.failed = False
        """Whether an effect failed: none is carried out any more."""
        self.stuck: Failure | None = None
        """What failed so often that this member tries it no more."""
        self.notes: deque[tuple[int, str]] = deque(maxlen=NOTES_MAX)
        """(epoch ms, sentence): what happened to this member lately."""
        self._parts = parts
        self._host = host
        self._machine = machine
        self._line = line
        self._dispatch = dispatch
        self._tell_left = listeners.left
        self._no_room = ""
        """Why our log is not in line with the leader's yet: it is tried again with each connection
        to the leader."""
        self._served_epoch = 0
        """The epoch in which the host was last told to lead."""
        self._table: dict[type, Callable[[Any], None]] = {
            do.Propose: line.propose,
            do.ReadView: lambda effect: line.read_view(effect.ticket),
            do.Promise: lambda effect: parts.store.follow(effect.epoch),
            do.Lead: self._lead,
            do.StepDown: self._step_down,
            do.Follow: self._follow,
            do.Unfollow: self._unfollow,
            do.Truncate: self._truncate,
            do.Reset: self._reset,
            do.FetchFrom: self._fetch,
            do.Hangup: self._hang_up,
            do.AcceptPuts: self._accept_puts,
            do.HoldPuts: self._hold_puts,
            do.Mark: self._mark,
            do.Describe: self._describe,
            do.Leave: self._leave,
            do.Answer: listeners.answered,
            do.Note: lambda effect: self.note(effect.text),
        }

    def carry_out(self, effect: do.Effect) -> None:
        """Carry out one effect. What the disk refuses ends the process.

        Nothing is done after that: each effect counts on those before it.
        """
        if self.failed:
            return
        try:
            self._table[type(effect)](effect)
        except StaleEpochError as error:
            # A promise that the machine did not know of: it hears of it and looks again.
            self.note(f"{type(effect).__name__}: {error}")
            self._dispatch(events.EpochHeard(error.promised, own=True))
        except (StoreError, OSError, ValueError) as error:
            self.fail(error, disk=True, effect=type(effect).__name__)

    def fail(self, error: Exception, *, disk: bool, effect: str = "change of role") -> None:
        """Acknowledge nothing more, and have the process end."""
        failure = self._parts.failures.add(effect, error, self._parts.clock.epoch_ms())
        logger.error("effect_failed effect=%s times=%d", effect, failure.count, exc_info=error)
        self.failed = True
        self._parts.gate.close()
        if failure.lasts and effect in COPYING and not isinstance(error, (OSError, LogIOError)):
            # One more start would end the same way. It stays, says so, and looks for a way out.
            self.stuck = failure
            self.note(f"stands still: {failure}")
            self._unfollow()
            self.announce()
            return
        self._host.fail(f"{effect}: {type(error).__name__}: {error}", disk=disk)

    def note(self, text: str) -> None:
        """Keep a sentence for people."""
        logger.info("shard_note shard=%d %s", self._parts.identity.shard, text)
        self.notes.append((self._parts.clock.epoch_ms(), text))

    def close(self) -> None:
        """Lead and follow nobody any more."""
        if self.leading is not None:
            self._step_down(do.StepDown("the broker stops"))
        self._unfollow()

    def show_role(self) -> None:
        """Have everybody know what this member is now."""
        parts, state = self._parts, self._machine.state
        role = parts.role.current
        if self._served_epoch:
            shown = ShardRole(role=Role.MASTER, epoch=self._served_epoch)
        elif self.following is not None:
            leader = parts.identity.live(self.following.leader.uuid)
            shown = ShardRole(
                role=Role.SLAVE, epoch=state.epoch, leader=leader, reason="a slave takes no puts"
            )
        else:
            shown = ShardRole(
                role=Role.ELECTING, epoch=state.shard.epoch, reason="the shard has no master"
            )
        if shown == role:
            return
        parts.role.change(shown)
        if shown.role is Role.SLAVE and shown.leader is not None:
            self._host.follow(shown.leader)
        if shown.role is not role.role:
            self.announce()

    # Leading

    def _lead(self, effect: do.Lead) -> None:
        parts = self._parts
        store = parts.store
        high_watermark = store.high_watermark
        cut_at = cut_unpublished(store)
        if cut_at is not None:
            self.note(f"cuts a micro-batch that it has in part, at log offset {cut_at}")
        try:
            store.lead(effect.epoch)
        except NoSpaceError as error:
            self.note(f"does not lead epoch {effect.epoch}: {error}")
            self._dispatch(events.NotLed(effect.epoch, store.epoch_seen))
            return
        self.leading = Leading(
            effect.epoch,
            parts.this,
            self.followers,
            parts.port,
            parts.addresses,
            catch_up_bytes_per_second=parts.catch_up_bytes_per_second,
        )
        self.followers.leading = self.leading
        self.note(f"leads epoch {effect.epoch} from log offset {store.log_end}")
        self._dispatch(events.Led(effect.epoch, log_of(store), store.durable_end, high_watermark))

    def _accept_puts(self, effect: do.AcceptPuts) -> None:
        if self.leading is None:
            return
        enough_again = effect.replicated and not self._parts.gate.replicated
        self._parts.gate.accept(replicated=effect.replicated)
        self._parts.messages.held = False
        if enough_again:
            # Puts that were taken before too few were left: no watermark need move for them.
            self._parts.messages.acknowledgements.progressed()
        if self._served_epoch != self.leading.epoch:
            self._served_epoch = self.leading.epoch
            self._host.lead(self.leading.epoch)
            self.show_role()
        self._host.release()

    def _hold_puts(self, effect: do.HoldPuts) -> None:
        gate = self._parts.gate
        enough_again = effect.replicated and not gate.replicated
        alone_again = effect.alone and not gate.alone
        gate.count(replicated=effect.replicated)
        gate.alone = effect.alone
        if enough_again or alone_again:
            self._parts.messages.acknowledgements.progressed()
        if not self._parts.messages.held:
            self._host.hold()
            self._parts.messages.held = True

    def _step_down(self, effect: do.StepDown) -> None:
        parts = self._parts
        parts.gate.close()
        parts.messages.held = False
        parts.store.follow(parts.store.epoch_seen)
        if self.leading is not None:
            self.leading.close()
            self.leading = self.followers.leading = None
        served, self._served_epoch = self._served_epoch, 0
        self.note(f"steps down: {effect.why}")
        # Whatever was appended and not confirmed may be cut: its producers try again.
        parts.messages.acknowledgements.release_all(PutStatus.NOT_WRITABLE)
        if served:
            self._host.step_down(effect.why)
        self.show_role()

    # Following

    def _follow(self, effect: do.Follow) -> None:
        parts = self._parts
        self._unfollow()
        self._no_room = ""
        parts.store.follow(effect.epoch)
        self.following = Following(
            effect.leader,
            effect.epoch,
            parts.this,
            self.leader,
            tls=parts.port.tls,
            rng=parts.rng,
        )
        self.leader.following = self.following
        self.note(f"follows {effect.leader.uuid} in epoch {effect.epoch}")
        self.show_role()

    def _unfollow(self, _: do.Unfollow | None = None) -> None:
        if self.following is not None:
            self.following.close()
            self.following = self.leader.following = None

    def _truncate(self, effect: do.Truncate) -> None:
        store = self._parts.store
        what = f"cuts the log from {store.log_end} to {effect.end}"
        self._realign(what, lambda: store.truncate(effect.end))

    def _reset(self, effect: do.Reset) -> None:
        store = self._parts.store
        what = f"begins an empty log at {effect.start}; it had {store.log_start} to {store.log_end}"
        self._realign(what, lambda: store.reset(effect.start))
        self.announce()

    def _realign(self, what: str, realign: Callable[[], None]) -> None:
        """Bring our log in line with the leader's; without room for that, wait for some."""
        try:
            realign()
        except DiskFullError as error:
            if not self._no_room:
                self.note(f"waits for room: {what}: {error}")
            self._no_room = str(error)
        else:
            self._no_room = ""
            self.note(what)

    def _mark(self, effect: do.Mark) -> None:
        # Others keep in the set of the next leadership whom the registry calls clean.
        self._parts.store.mark_unclean(effect.unclean)
        self.announce()

    def _fetch(self, effect: do.FetchFrom) -> None:
        if self.following is None:
            return
        if self._no_room:
            self.following.hang_up(f"DiskFullError: no room to cut the log: {self._no_room}")
        else:
            self.following.fetch(effect.offset, effect.epoch)

    def _hang_up(self, effect: do.Hangup) -> None:
        if self.following is not None:
            self.following.hang_up(effect.why)

    def _connection_ended(self, reason: str) -> None:
        if self.following is not None:
            self.following.connection_ended(reason)

    # The rest

    def _describe(self, effect: do.Describe) -> None:
        record = self._parts.record()
        self._line.describe(
            replace(
                record,
                unclean=effect.unclean,
                log_epoch=effect.log_epoch,
                log_end=effect.log_end,
            )
        )

    def announce(self) -> None:
        """Have our registration say what we are and have now.

        Nobody decides by the role; by the log those do who look for its highest end.
        """
        if self._machine.state.member is not None and not self.left:
            self._line.describe(self._parts.record())

    def _leave(self, _: do.Leave) -> None:
        self.left = True
        self.note("has left the shard in order")
        self._tell_left()
