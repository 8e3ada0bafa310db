"""Putting messages, whatever the protocol: one append for all that arrived in a loop turn.

The life of a put: `put` or `put_one` during a turn → at the turn's end one `store.append` for all
connections → at level LEADER its `done` at once, at other levels when their progress has passed
the append's end → the `on_completed` listeners, so that each session writes its answers once.
"""

from __future__ import annotations

import logging
from operator import itemgetter
from time import perf_counter_ns
from typing import TYPE_CHECKING, cast

from imago_broker.core.figures.latencies import Latencies
from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.service.puts.acknowledgements import Acknowledgements, Answer, Done, tell
from imago_broker.service.puts.arrivals import Arrivals
from imago_broker.service.puts.light_puts import count_light, expand, sections
from imago_broker.service.puts.light_queues import LightQueues
from imago_broker.service.puts.put_jobs import (
    COPY,
    JOB_ENTRIES,
    JOB_KIND,
    JOB_LEVEL,
    PLAIN,
    RUNS,
    SEQUENCED,
    WHOLE,
    entries_of,
    grown,
    whole_extents,
)
from imago_broker.service.puts.put_status import PutStatus
from imago_log.errors import DiskFullError, LogIOError, StoreClosedError, StoreError
from imago_wire.errors import LimitExceededError
from imago_wire.record_format.entries import ENTRY_TAIL

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Sequence

    from imago_broker.ports import Clock
    from imago_broker.service.puts.gate import ShardGate
    from imago_broker.service.puts.pair import Pair
    from imago_broker.service.puts.put_jobs import PutJob
    from imago_log.store import MessageStore
    from imago_wire.hot import EntryRun
    from imago_wire.records.record import Entry, Placed, QueueTail


logger = logging.getLogger(__name__)

_tail_of = itemgetter(ENTRY_TAIL)


class MessageService:
    """The one writer of messages. All methods belong to the event loop's thread."""

    pair: Pair | None = None
    """A slave outside of the shard that has each message before its put is answered."""
    copied_from = ""
    """The master outside of the shard whose messages alone are taken; empty: there is none."""

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
        self.appended = 0
        """Messages appended since the start."""
        self.turn = 0
        """Number of the turn that is being gathered."""
        self.newest: list[Entry] | None = None
        """The list of this turn's newest `put`: it may grow."""
        self.appends = 0
        """Calls of the store, each for all messages of a turn."""
        self.failed = 0
        """Messages that were refused or could not be appended since the start."""
        self.appended_bytes = 0
        self.append_times = Latencies()
        """How long the store took; each message of a turn took as long as all of them."""
        self.held = False
        """Whether puts are asked to come again soon: leadership is being handed over."""
        self.kinds = PLAIN
        """All kinds of puts that are gathered."""
        self.light = LightQueues(store)
        self._loop = loop
        self._level_of = level_of
        self._waiting_bytes_max = waiting_bytes_max
        self._jobs: list[PutJob] = []
        self._arrivals = Arrivals(store, alone=gate is None)
        self._gate = gate
        self._refusal: PutStatus | None = None
        self.acknowledgements = Acknowledgements(
            store, self._arrivals, loop=loop, clock=clock, timeout_ms=timeout_ms, gate=gate
        )

    def put_one(
        self, entry: Entry, level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put one message; `done(token, status, placed)` is called exactly once, later.

        Puts of one level complete in the order they were made. None stands for the level of the
        topic, or the cluster's.
        """
        if not self._jobs:
            self._loop.call_soon(self.flush_turn)
        self._jobs.append(([entry], level, done, token, PLAIN))
        self.newest = None

    def put(
        self, entries: list[Entry], level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put several messages that are placed one behind the other and answered together.

        The list is taken over. Entries may be added to it for as long as it is the `newest`.
        """
        if not self._jobs:
            self._loop.call_soon(self.flush_turn)
        self._jobs.append((entries, level, done, token, PLAIN))
        self.newest = entries

    def put_whole(
        self, entries: list[Entry], level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put messages that readers see at once: all of them, or none."""
        self._put_apart((entries, level, done, token, WHOLE))

    def put_copies(
        self, entries: list[Entry], level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put messages of `copied_from`, with the ids that it gave them."""
        self._put_apart((entries, level, done, token, COPY))

    def put_sequenced(
        self, entries: list[Entry], level: Acknowledgement | None, done: Done, token: object
    ) -> None:
        """Put messages of an idempotent producer, whose numbers the store notes with them."""
        self.kinds |= SEQUENCED
        self.put(entries, level, done, token)

    def put_runs(self, entries: list[Entry | EntryRun], done: Done, token: object) -> None:
        """Put messages that waited, runs of them among others; nobody asks where each one is.

        Their producers were answered long ago, so no level is waited for.
        """
        # Who looks at each entry of such a put looks at its kind first.
        alike = cast("list[Entry]", entries)
        self._put_apart((alike, Acknowledgement.LEADER, done, token, RUNS))

    def _put_apart(self, job: PutJob) -> None:
        """Gather a put to whose entries none is added."""
        if not self._jobs:
            self._loop.call_soon(self.flush_turn)
        self._jobs.append(job)
        self.kinds |= job[JOB_KIND]
        self.newest = None

    @property
    def takes_runs(self) -> bool:
        """Whether `put_runs` does: a slave outside of the shard is told each message."""
        return self.pair is None

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
        status = self.admission()
        if status is not None or wanted is Acknowledgement.LEADER:
            tell(done, token, status or PutStatus.OK, placed)
            self._loop.call_soon(self.acknowledgements.completed)
        else:
            self.acknowledgements.wait({wanted: [(done, token, placed)]})

    def on_arrival(self, listener: Callable[[Iterable[QueueTail]], None]) -> None:
        """Tell the listener, once a turn, the queues that have grown for readers."""
        self._arrivals.listeners.append(listener)

    def when_visible(self, log_offset: int, then: Callable[[], None]) -> None:
        """Call `then` once, when the high watermark has reached a log offset; now if it has."""
        self._arrivals.when_visible(log_offset, then)

    def refuse(self, status: PutStatus | None) -> None:
        """Answer every put from now on with this status; None: accept again."""
        self._refusal = status

    @property
    def in_flight(self) -> bool:
        """Whether any put is gathered or waits for its level."""
        return bool(self._jobs) or self.acknowledgements.waiting

    def flush_turn(self) -> None:
        """Append now what this turn has gathered: a topic is about to change."""
        if not self._jobs:
            return
        jobs, self._jobs = self._jobs, []
        kinds, self.kinds = self.kinds, PLAIN
        self.newest = None
        self.turn += 1
        append: Callable[[list[PutJob], int], PutStatus | None] = self._append
        if self.light.pending:
            self.light.pending -= sum([count_light(job[JOB_ENTRIES]) for job in jobs])
            append = self._append_sections
        # Whoever is refused below hears it at once, and may put more: that is the next turn's.
        if self.copied_from:
            jobs = self._without(jobs, lambda job: job[JOB_KIND] != COPY, PutStatus.NOT_WRITABLE)
        if self._gate is not None and self._gate.short:
            jobs = self._without_replicated(jobs)
        status = self.admission() or (append(jobs, kinds) if jobs else None)
        if status is not None:
            self._tell_refused(jobs, status)
        self.acknowledgements.completed()

    def _tell_refused(self, jobs: list[PutJob], status: PutStatus) -> None:
        self.failed += grown(jobs)[0]
        for _, _, done, token, _ in jobs:
            tell(done, token, status, ())

    def admission(self) -> PutStatus | None:
        """Return how every put is refused at this moment; None: it is appended."""
        if self._refusal is not None:
            return self._refusal
        if self._gate is not None and not self._gate.safe:
            return PutStatus.NOT_WRITABLE
        if self.pair is not None and self.pair.refusal is not None:
            return self.pair.refusal
        if self.held or self.acknowledgements.bytes_waiting > self._waiting_bytes_max:
            return PutStatus.BUSY
        return None

    def _append_sections(self, jobs: list[PutJob], kinds: int) -> PutStatus | None:
        """Append puts for light queues and others apart, in their order; answer everybody."""
        for light, section in sections(jobs):
            status = (self._append_light if light else self._append)(section, kinds)
            if status is not None:
                self._tell_refused(section, status)
        return None

    def _append_light(self, jobs: list[PutJob], kinds: int) -> PutStatus | None:
        """Append puts for light queues; readers see a message and its references at once."""
        try:
            expanded = expand(jobs, self.store, self._level_of)
        except Exception:
            logger.exception("light_queues_failed puts=%d", len(jobs))
            return PutStatus.BUSY
        status = self._append(expanded.jobs, kinds, together=True)
        if status in (PutStatus.TOO_LARGE, PutStatus.BUSY) and len(jobs) > 1:
            # Each has other offsets where one before it is left out.
            self._append_each(jobs, kinds, self._append_light)
            return None
        if status is PutStatus.TOO_LARGE:  # for one file, perhaps, with all its references
            status = self._append(expanded.jobs, kinds, together=True, one_file=False)
        if status is None:
            self.appended -= expanded.references
        return status

    def _append(
        self, jobs: list[PutJob], kinds: int, *, together: bool = False, one_file: bool = True
    ) -> PutStatus | None:
        """Append and answer; or answer nobody and return why, with nothing appended.

        `kinds`: those of these puts, and of others perhaps. `together`: readers see all of it at
        once, retention takes all of it at once unless it may be in several files, and what is
        refused is not tried put by put.
        """
        entries = entries_of(jobs)
        store, began_ns = self.store, perf_counter_ns()
        end = store.log_end
        try:
            sequenced = kinds & SEQUENCED != 0
            placed = store.append(entries, sequenced=sequenced, whole=together and one_file)
        except LogIOError:
            # What was written is unknown, so nobody is answered: the store has told the
            # application, which ends the process.
            return None
        except (StoreError, LimitExceededError) as error:
            return self._refused(jobs, error, kinds, each=not together)
        except Exception:
            # A fault of ours. Producers that hear nothing would hold their connections up.
            logger.exception("append_failed entries=%d", len(entries))
            return PutStatus.BUSY
        if kinds & RUNS:
            count, tails = grown(jobs)
        else:
            count, tails = len(entries), set(map(_tail_of, entries))
        self.append_times.note(perf_counter_ns() - began_ns, count)
        self.appended_bytes += store.log_end - end
        self.appended += count
        self.appends += 1
        # Arrivals first: a long poll may then be answered in the same write as the put.
        if together or kinds & WHOLE:
            for start, end in whole_extents(jobs, placed, together=together):
                store.keep_whole(start, end)
        self._arrivals.grown(tails)
        if self.pair is not None:
            jobs = self.pair.forward(jobs, placed)
        self._appended(jobs, placed)
        return None

    def _without_replicated(self, jobs: list[PutJob]) -> list[PutJob]:
        """Refuse the puts that too few members could keep; return the others."""

        def refused(job: PutJob) -> bool:
            level = job[JOB_LEVEL] or self._level_of(job[JOB_ENTRIES][0][ENTRY_TAIL].topic)
            return level.needs_replicas

        return self._without(jobs, refused, PutStatus.TOO_FEW_IN_SYNC)

    def _without(
        self, jobs: list[PutJob], refused: Callable[[PutJob], bool], status: PutStatus
    ) -> list[PutJob]:
        """Answer some jobs with a status; return the others."""
        kept = []
        for job in jobs:
            if refused(job):
                self._tell_refused([job], status)
            else:
                kept.append(job)
        return kept

    def _refused(
        self, jobs: list[PutJob], error: Exception, kinds: int, *, each: bool
    ) -> PutStatus | None:
        """Return everybody's status, or find the put that cannot be kept and keep the others."""
        if isinstance(error, DiskFullError):
            return PutStatus.DISK_FULL
        if isinstance(error, StoreClosedError):
            return PutStatus.STOPPING
        if each and len(jobs) > 1:
            self._append_each(jobs, kinds, self._append)
            return None
        if isinstance(error, LimitExceededError):
            return PutStatus.TOO_LARGE
        logger.warning("append_refused entries=%d error=%s", len(jobs[0][JOB_ENTRIES]), error)
        return PutStatus.BUSY

    def _append_each(
        self,
        jobs: list[PutJob],
        kinds: int,
        append: Callable[[list[PutJob], int], PutStatus | None],
    ) -> None:
        for job in jobs:
            status = append([job], kinds)
            if status is not None:
                self._tell_refused([job], status)

    def _appended(self, jobs: list[PutJob], placed: list[Placed]) -> None:
        # Writing may have taken long: whoever is answered at once needs a lease that holds now.
        safe = self._gate is None or (self._gate.safe and self._gate.alone)
        leader = Acknowledgement.LEADER if safe else None
        waiting: dict[Acknowledgement, list[Answer]] = {}
        at = 0
        for entries, level, done, token, _ in jobs:
            end = at + len(entries)
            places = placed[at:end]
            wanted = level or self._level_of(entries[0][ENTRY_TAIL].topic)
            if wanted is leader:
                tell(done, token, PutStatus.OK, places)
            else:
                waiting.setdefault(wanted, []).append((done, token, places))
            at = end
        if waiting:
            self.acknowledgements.wait(waiting)
