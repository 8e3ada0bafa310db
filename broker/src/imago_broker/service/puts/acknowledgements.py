"""Answering puts that are in the log and wait for their acknowledgement level.

Whatever brings a level further, more on disk or more on other members, calls `progressed`; what is
not reached in time is answered as timed out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.puts.pending import AcknowledgementQueue
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.record_format.entries import PLACED_SIZE, Placed

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from imago_broker.ports import Clock
    from imago_broker.service.puts.arrivals import Arrivals
    from imago_broker.service.puts.gate import ShardGate
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)
Done = Callable[[Any, PutStatus, Sequence[Placed]], None]
"""(token, status, where each entry was placed; empty unless it was appended)."""
Answer = tuple[Done, object, Sequence[Placed]]


def tell(done: Done, token: object, status: PutStatus, placed: Sequence[Placed]) -> None:
    """Answer one put. Where that fails, everybody else of the turn gets an answer all the same."""
    try:
        done(token, status, placed)
    except Exception:
        logger.exception("put_answer_failed status=%s", status.value)


class Acknowledgements:
    """The answers of one broker that wait. All methods belong to the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        arrivals: Arrivals,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timeout_ms: int,
        gate: ShardGate | None,
    ) -> None:
        """`arrivals` hear, before anybody is answered, that more may be visible."""
        self.timeout_ms = timeout_ms
        self.timeouts = 0
        """Puts whose level was not reached in time."""
        self._store, self._arrivals = store, arrivals
        self._loop, self._clock, self._gate = loop, clock, gate
        self._levels = Levels(store, gate)
        self._waiting: AcknowledgementQueue[list[Answer]] = AcknowledgementQueue()
        self._completed: list[Callable[[], None]] = []
        self._durable: list[Callable[[], None]] = []
        self._expiry: asyncio.TimerHandle | None = None
        store.on_durable.add(self._durable_in_other_thread)

    def on_durable(self, listener: Callable[[], None]) -> None:
        """Call the listener, in the loop's thread, when more of the log is on disk."""
        self._durable.append(listener)

    def on_completed(self, listener: Callable[[], None]) -> None:
        """Call the listener after each round of `done` calls: the time to write answers."""
        self._completed.append(listener)

    @property
    def waiting(self) -> bool:
        """Whether any put waits for its level."""
        return len(self._waiting) > 0

    @property
    def bytes_waiting(self) -> int:
        """Bytes in the log whose producers have no answer yet."""
        return self._waiting.bytes_waiting

    def waits_for(self, level: Acknowledgement) -> bool:
        """Whether any put waits for this level."""
        return self._waiting.waits_for(level)

    def wait(self, waiting: Mapping[Acknowledgement, list[Answer]]) -> None:
        """Answer these once all that is in the log by now has reached their level."""
        end_offset = self._store.log_end
        now_ms = self._clock.monotonic_ms()
        for level, answers in waiting.items():
            self._waiting.add(
                level,
                end_offset=end_offset,
                deadline_ms=now_ms + self.timeout_ms,
                size=sum(place[PLACED_SIZE] for _, _, placed in answers for place in placed),
                item=answers,
            )
        if any(level.needs_sync for level in waiting):
            self._store.request_sync()
        self.progressed()
        self._arm_expiry(now_ms)

    def when_replicated(self, done: Done, token: object) -> None:
        """Call `done(token, status, ())` once every in-sync member has all of the log so far.

        Where too few are in sync it waits as well, as long as a put does: after an election, or
        when a member starts again, the others are about to join. SLAVE_UNAVAILABLE, at once, where
        they have had that time already; NOT_WRITABLE, at once, where this member does not lead.
        """
        gate = self._gate
        safe = gate is None or gate.safe
        if safe and self._levels.end(Acknowledgement.REPLICATED) >= self._store.log_end:
            tell(done, token, PutStatus.OK, ())
        elif gate is not None and not gate.open:
            tell(done, token, PutStatus.NOT_WRITABLE, ())
        elif gate is not None and gate.short_for(self.timeout_ms):
            tell(done, token, PutStatus.SLAVE_UNAVAILABLE, ())
        else:
            self.wait({Acknowledgement.REPLICATED: [(done, token, ())]})

    def progressed(self) -> None:
        """Answer what the store's durable end and high watermark now allow."""
        self._arrivals.visible()
        if self._gate is not None and not self._gate.safe:
            return  # another may lead by now: answers wait until that is known
        released = False
        for level in Acknowledgement:
            for answers in self._waiting.advance(level, self._levels.end(level)):
                released = True
                for done, token, placed in answers:
                    tell(done, token, PutStatus.OK, placed)
        if released:
            self.completed()

    def release_all(self, status: PutStatus) -> None:
        """Answer everything that still waits for its level: the broker serves puts no more."""
        self._arrivals.forget()
        for _, answers in self._waiting.drain():
            for done, token, placed in answers:
                tell(done, token, status, placed)
        self.completed()

    def completed(self) -> None:
        """Have the answers of a round of `done` calls written."""
        for listener in self._completed:
            try:
                listener()
            except Exception:
                logger.exception("completion_listener_failed listener=%s", listener)

    def close(self) -> None:
        """Stop listening to the store. Nothing may wait afterwards."""
        self._store.on_durable.remove(self._durable_in_other_thread)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _durable_in_other_thread(self, _end: int) -> None:
        # The flusher's thread: nothing of ours may be touched here.
        self._loop.call_soon_threadsafe(self._more_is_durable)

    def _more_is_durable(self) -> None:
        for listener in self._durable:
            listener()
        self.progressed()

    def _arm_expiry(self, now_ms: int) -> None:
        deadline_ms = self._waiting.next_deadline_ms
        if self._expiry is None and deadline_ms is not None:
            delay = max(1, deadline_ms - now_ms) / 1000
            self._expiry = self._loop.call_later(delay, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        now_ms = self._clock.monotonic_ms()
        expired = self._waiting.expire(now_ms)
        for level, answers in expired:
            status = self._levels.lack(level)
            self.timeouts += len(answers)
            logger.warning("acknowledgement_timeout level=%s puts=%d", level.value, len(answers))
            for done, token, placed in answers:
                tell(done, token, status, placed)
        if expired:
            self.completed()
        self._arm_expiry(now_ms)


# How far the log has come by each acknowledgement level, and what a put that waits is short of.


class Levels:
    """Of a store, behind the gate of its shard where there are other members."""

    __slots__ = ("_gate", "_store")

    def __init__(self, store: MessageStore, gate: ShardGate | None) -> None:
        self._store = store
        self._gate = gate

    def end(self, level: Acknowledgement) -> int:
        """Log offset below which everything has reached the level."""
        store, gate = self._store, self._gate
        if gate is not None and not gate.alone and not level.needs_replicas:
            return 0
        if level is Acknowledgement.LEADER:
            return store.log_end
        if level is Acknowledgement.LEADER_FSYNC:
            return store.durable_end
        if gate is not None:
            if level is Acknowledgement.REPLICATED:
                return gate.replicated_end
            return min(gate.replicated_durable_end, store.durable_end)
        if level is Acknowledgement.REPLICATED:
            return store.high_watermark
        return min(store.high_watermark, store.durable_end)

    def lack(self, level: Acknowledgement) -> PutStatus:
        """What a put of this level was short of when its time was up."""
        gate = self._gate
        if gate is not None and not gate.safe:
            return PutStatus.NOT_WRITABLE
        if gate is not None and not gate.alone and not level.needs_replicas:
            return PutStatus.NOT_WRITABLE
        if level.needs_replicas:
            if gate is not None and not gate.replicated:
                return PutStatus.SLAVE_UNAVAILABLE
            if level is Acknowledgement.REPLICATED or gate is not None:
                return PutStatus.SLAVE_TIMEOUT
        return PutStatus.FLUSH_TIMEOUT
