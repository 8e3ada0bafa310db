"""Putting messages, whatever the protocol: one append for all that arrived in a loop turn.

The life of a put: `put` or `put_one` during a turn → at the turn's end one `store.append` for all
connections → at level LEADER its `done` at once, at other levels when their progress has passed
the append's end → the `on_completed` listeners, so that each session writes its answers once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from imago_broker.core.acknowledgement import Acknowledgement
from imago_broker.core.pending import AcknowledgementQueue
from imago_broker.service.arrivals import Arrivals
from imago_broker.service.levels import Levels
from imago_broker.service.put_status import APPENDED, PutStatus
from imago_log.errors import DiskFullError, LogIOError, StoreClosedError, StoreError
from imago_wire.errors import LimitExceededError
from imago_wire.record import Entry, Placed

if TYPE_CHECKING:
    import asyncio

    from imago_broker.ports import Clock
    from imago_broker.service.gate import ShardGate
    from imago_log.store import MessageStore
    from imago_wire.record import QueueTail

__all__ = ["APPENDED", "Done", "MessageService", "PutStatus"]

logger = logging.getLogger(__name__)

Done = Callable[[Any, "PutStatus", Sequence[Placed]], None]
"""(token, status, where each entry was placed; empty unless it was appended)."""

_tail_of = itemgetter(0)
_Answer = tuple[Done, object, Sequence[Placed]]
_Job = tuple[list[Entry], Acknowledgement | None, Done, object]
"""The entries, the level asked for, whom to tell, with which token."""


class MessageService:
    """The one writer of messages. All methods belong to the event loop's thread."""

    def __init__(
        self,
        store: MessageStore,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        level_of: Callable[[bytes], Acknowledgement],
        timeout_ms: int = 5000,
        waiting_bytes_max: int = 256 << 20,
        gate: ShardGate | None = None,
    ) -> None:
        """`level_of` gives the level of a topic for puts that name none.

        `gate` says what the other members of the shard allow; None: there are none.
        """
        self.store = store
        self.timeout_ms = timeout_ms
        self.appended = 0
        """Messages appended since the start."""
        self.timeouts = 0
        """Puts whose level was not reached in time."""
        self.turn = 0
        """Number of the turn that is being gathered."""
        self.newest: list[Entry] | None = None
        """The list of this turn's newest `put`: it may grow."""
        self.appends = 0
        """Calls of the store, each for all messages of a turn."""
        self.held = False
        """Whether puts are asked to come again soon: leadership is being handed over."""
        self.sequenced = False
        """Whether this turn has messages of idempotent producers."""
        self._loop, self._clock = loop, clock
        self._level_of = level_of
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting: AcknowledgementQueue[list[_Answer]] = AcknowledgementQueue()
        self._jobs: list[_Job] = []
        self._arrivals = Arrivals(store, alone=gate is None)
        self._completed: list[Callable[[], None]] = []
        self._durable: list[Callable[[], None]] = []
        self._gate = gate
        self._levels = Levels(store, gate)
        self._expiry: asyncio.TimerHandle | None = None
        self._refusal: PutStatus | None = None
        store.on_durable.add(self._durable_in_other_thread)

    def put_one(
        self, entry: Entry, level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put one message; `done(token, status, placed)` is called exactly once, later.

        Puts of one level complete in the order they were made. None stands for the level of the
        topic, or the cluster's.
        """
        if not self._jobs:
            self._loop.call_soon(self.flush_turn)
        self._jobs.append(([entry], level, done, token))
        self.newest = None

    def put(
        self, entries: list[Entry], level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put several messages that are placed one behind the other and answered together.

        The list is taken over. Entries may be added to it for as long as it is the `newest`.
        """
        if not self._jobs:
            self._loop.call_soon(self.flush_turn)
        self._jobs.append((entries, level, done, token))
        self.newest = entries

    def confirm(
        self,
        topic: bytes,
        placed: Sequence[Placed],
        level: Acknowledgement | None,
        done: Done,
        token: object,
    ) -> None:
        """Answer a put whose messages are in the log already, as if they had come just now.

        `done` is called once all that is in the log has reached the level; at LEADER, or where
        nothing may be put, before this returns.
        """
        wanted = level or self._level_of(topic)
        status = self._admission()
        if status is not None or wanted is Acknowledgement.LEADER:
            _tell(done, token, status or PutStatus.OK, placed)
            self._loop.call_soon(self._tell_completed)
        else:
            self._wait({wanted: [(done, token, placed)]})

    def when_replicated(self, done: Done, token: object) -> None:
        """Call `done(token, status, ())` once every in-sync member has all of the log so far.

        Where too few are in sync it waits as well, as long as a put does: after an election, or
        when a member starts anew, the others are about to join. SLAVE_UNAVAILABLE, at once, where
        they have had that time already; NOT_WRITABLE, at once, where this member does not lead.
        """
        gate = self._gate
        safe = gate is None or gate.safe
        if safe and self._levels.end(Acknowledgement.REPLICATED) >= self.store.log_end:
            _tell(done, token, PutStatus.OK, ())
        elif gate is not None and not gate.open:
            _tell(done, token, PutStatus.NOT_WRITABLE, ())
        elif gate is not None and gate.short_for(self.timeout_ms):
            _tell(done, token, PutStatus.SLAVE_UNAVAILABLE, ())
        else:
            self._wait({Acknowledgement.REPLICATED: [(done, token, ())]})

    def on_arrival(self, listener: Callable[[Iterable[QueueTail]], None]) -> None:
        """Tell the listener, once a turn, the queues that have grown for readers."""
        self._arrivals.listeners.append(listener)

    def when_visible(self, log_offset: int, then: Callable[[], None]) -> None:
        """Call `then` once, when the high watermark has reached a log offset; now if it has."""
        self._arrivals.when_visible(log_offset, then)

    def on_durable(self, listener: Callable[[], None]) -> None:
        """Call the listener, in the loop's thread, when more of the log is on disk."""
        self._durable.append(listener)

    def on_completed(self, listener: Callable[[], None]) -> None:
        """Call the listener after each round of `done` calls: the time to write answers."""
        self._completed.append(listener)

    def refuse(self, status: PutStatus | None) -> None:
        """Answer every put from now on with this status; None: accept again."""
        self._refusal = status

    @property
    def in_flight(self) -> bool:
        """Whether any put is gathered or waits for its level."""
        return bool(self._jobs) or len(self._waiting) > 0

    @property
    def bytes_waiting(self) -> int:
        """Bytes in the log whose producers have no answer yet."""
        return self._waiting.bytes_waiting

    def waits_for(self, level: Acknowledgement) -> bool:
        """Whether any put waits for this level."""
        return self._waiting.waits_for(level)

    def flush_turn(self) -> None:
        """Append now what this turn has gathered, for whoever is about to change a topic."""
        if not self._jobs:
            return
        jobs, self._jobs = self._jobs, []
        self.newest = None
        self.turn += 1
        if self._gate is not None and self._gate.short:
            jobs = self._without_replicated(jobs)
        sequenced, self.sequenced = self.sequenced, False
        status = self._admission() or (self._append(jobs, sequenced) if jobs else None)
        if status is not None:
            for _, _, done, token in jobs:
                _tell(done, token, status, ())
        self._tell_completed()

    def release_all(self, status: PutStatus) -> None:
        """Answer everything that still waits for its level: the broker serves puts no more."""
        self._arrivals.forget()
        for _, answers in self._waiting.drain():
            for done, token, placed in answers:
                _tell(done, token, status, placed)
        self._tell_completed()

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
                    _tell(done, token, PutStatus.OK, placed)
        if released:
            self._tell_completed()

    def close(self) -> None:
        """Stop listening to the store. Nothing may be put afterwards."""
        self.store.on_durable.remove(self._durable_in_other_thread)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _admission(self) -> PutStatus | None:
        if self._refusal is not None:
            return self._refusal
        if self._gate is not None and not self._gate.safe:
            return PutStatus.NOT_WRITABLE
        if self.held or self._waiting.bytes_waiting > self._waiting_bytes_max:
            return PutStatus.BUSY
        return None

    def _append(self, jobs: list[_Job], sequenced: bool) -> PutStatus | None:
        """Append and answer; or answer nobody and return why, with nothing appended."""
        entries = jobs[0][0] if len(jobs) == 1 else [entry for job in jobs for entry in job[0]]
        try:
            placed = self.store.append(entries, sequenced=sequenced)
        except LogIOError:
            # What was written is unknown, so nobody is answered: the store has told the
            # application, which ends the process.
            return None
        except (StoreError, LimitExceededError) as error:
            return self._refused(jobs, error, sequenced)
        except Exception:
            # A fault of ours. Producers that hear nothing would hold their connections up.
            logger.exception("append_failed entries=%d", len(entries))
            return PutStatus.BUSY
        self.appended += len(entries)
        self.appends += 1
        # Arrivals first: a long poll may then be answered in the same write as the put.
        tails = set(map(_tail_of, entries))
        self._arrivals.grown(tails)
        self._appended(jobs, placed)
        return None

    def _without_replicated(self, jobs: list[_Job]) -> list[_Job]:
        """Refuse the puts that too few members could keep; return the others."""
        kept = []
        for job in jobs:
            entries, level, done, token = job
            if (level or self._level_of(entries[0][0].topic)).needs_replicas:
                _tell(done, token, PutStatus.TOO_FEW_IN_SYNC, ())
            else:
                kept.append(job)
        return kept

    def _refused(self, jobs: list[_Job], error: Exception, sequenced: bool) -> PutStatus | None:
        """Return everybody's status, or find the put that cannot be kept and keep the others."""
        if isinstance(error, DiskFullError):
            return PutStatus.DISK_FULL
        if isinstance(error, StoreClosedError):
            return PutStatus.STOPPING
        if len(jobs) > 1:
            return self._append_each(jobs, sequenced)
        if isinstance(error, LimitExceededError):
            return PutStatus.TOO_LARGE
        logger.warning("append_refused entries=%d error=%s", len(jobs[0][0]), error)
        return PutStatus.BUSY

    def _append_each(self, jobs: list[_Job], sequenced: bool) -> PutStatus | None:
        for job in jobs:
            status = self._append([job], sequenced)
            if status is not None:
                _, _, done, token = job
                _tell(done, token, status, ())
        return None

    def _appended(self, jobs: list[_Job], placed: list[Placed]) -> None:
        # Writing may have taken long: whoever is answered at once needs a lease that holds now.
        safe = self._gate is None or self._gate.safe
        leader = Acknowledgement.LEADER if safe else None
        waiting: dict[Acknowledgement, list[_Answer]] = {}
        at = 0
        for entries, level, done, token in jobs:
            end = at + len(entries)
            places = placed[at:end]
            wanted = level or self._level_of(entries[0][0].topic)
            if wanted is leader:
                _tell(done, token, PutStatus.OK, places)
            else:
                waiting.setdefault(wanted, []).append((done, token, places))
            at = end
        if waiting:
            self._wait(waiting)

    def _wait(self, waiting: dict[Acknowledgement, list[_Answer]]) -> None:
        end_offset = self.store.log_end
        now_ms = self._clock.monotonic_ms()
        for level, answers in waiting.items():
            self._waiting.add(
                level,
                end_offset=end_offset,
                deadline_ms=now_ms + self.timeout_ms,
                size=sum(place[2] for _, _, placed in answers for place in placed),
                item=answers,
            )
        if any(level.needs_sync for level in waiting):
            self.store.request_sync()
        self.progressed()
        self._arm_expiry(now_ms)

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
                _tell(done, token, status, placed)
        if expired:
            self._tell_completed()
        self._arm_expiry(now_ms)

    def _tell_completed(self) -> None:
        for listener in self._completed:
            try:
                listener()
            except Exception:
                logger.exception("completion_listener_failed listener=%s", listener)


def _tell(done: Done, token: object, status: PutStatus, placed: Sequence[Placed]) -> None:
    """Answer one put. Where that fails, everybody else of the turn gets an answer all the same."""
    try:
        done(token, status, placed)
    except Exception:
        logger.exception("put_answer_failed status=%s", status.value)
