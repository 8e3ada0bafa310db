"""RocketMQ's static topics: queues with numbers of their own, whatever broker has them. Pure.

A *global* queue of a static topic is made of runs, one after the other, each a queue of some
broker; the last run takes what is sent. Each run begins at a global offset, which is decided when
the run before has ended; until then it is -1. Every broker that has or had a run of a global queue
keeps all runs of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from imago_broker.model import names
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GLOBAL: Final = "__global__"
NAMESPACE: Final = "STATIC_TOPICS"
"""Of the registry's settings of name services: what each broker has of each topic."""
RUNS_MAX: Final = 256
"""Of one global queue."""


class QueueRun(NamedTuple):
    """A part of a global queue."""

    generation: int
    queue_id: int
    broker: str
    logic_offset: int
    """Where it begins in the global queue; -1: that is not decided."""
    start_offset: int = 0
    end_offset: int = -1
    """Behind its last message; -1: nobody has said."""

    @property
    def decided(self) -> bool:
        return self.logic_offset >= 0

    @property
    def delta(self) -> int:
        """What has to be added to an offset of the broker's own queue."""
        return self.logic_offset - self.start_offset

    def logical(self, offset: int) -> int:
        """Return the global offset of one in the broker's own queue."""
        return self.logic_offset + max(0, offset - self.start_offset)

    def logical_within(self, offset: int) -> int:
        """Return the same, no more than the run's end; -1: it is not decided."""
        if not self.decided:
            return -1
        if self.end_offset >= self.start_offset:
            offset = min(offset, self.end_offset)
        return self.logical(offset)

    def physical(self, offset: int) -> int:
        """Return the offset in the broker's own queue of a global one."""
        return offset - self.delta

    def to_json(self) -> dict[str, Any]:
        return {
            "bname": self.broker,
            "endOffset": self.end_offset,
            "gen": self.generation,
            "logicOffset": self.logic_offset,
            "queueId": self.queue_id,
            "startOffset": self.start_offset,
            "timeOfEnd": -1,
            "timeOfStart": -1,
        }

    @classmethod
    def from_json(cls, value: Any) -> QueueRun:
        """ValueError: it is none."""
        if not isinstance(value, dict):
            raise WrongError("hostedQueues: each part of a queue is an object")
        return cls(
            _number(value, "gen", 0),
            _number(value, "queueId", 0),
            _text(value, "bname", ""),
            _number(value, "logicOffset", 0),
            _number(value, "startOffset", 0),
            _number(value, "endOffset", -1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMapping:
    """What one broker knows of a static topic."""

    topic: str
    broker: str
    epoch: int
    total_queues: int
    scope: str
    hosted: Mapping[int, tuple[QueueRun, ...]]
    """By global queue: its runs, the oldest first."""

    @classmethod
    def from_json(cls, value: Any) -> StaticMapping:
        """ValueError: it is none."""
        if not isinstance(value, dict):
            raise WrongError("the body is no mapping of queues")
        hosted = value.get("hostedQueues") or {}
        if not isinstance(hosted, dict):
            raise WrongError("hostedQueues: an object is wanted")
        total = _number(value, "totalQueues", 0)
        if not 0 <= total <= names.PARTITIONS_MAX:
            raise WrongError(f"totalQueues: {total}, must be 0 to {names.PARTITIONS_MAX}")
        runs = {}
        for key, items in hosted.items():
            if not str(key).isdecimal() or int(key) >= total:
                raise WrongError(f"hostedQueues: {str(key)[:32]!r} is no queue of {total}")
            if not isinstance(items, list) or len(items) > RUNS_MAX:
                raise WrongError(f"hostedQueues: a queue has a list of at most {RUNS_MAX} parts")
            runs[int(key)] = _checked(tuple(map(QueueRun.from_json, items)))
        return cls(
            topic=_text(value, "topic", ""),
            broker=_text(value, "bname", ""),
            epoch=_number(value, "epoch", 0),
            total_queues=total,
            scope=_text(value, "scope", GLOBAL),
            hosted={queue: found for queue, found in sorted(runs.items()) if found},
        )

    def to_json(self) -> dict[str, Any]:
        """Return the form of the tools, which is the one that is stored."""
        hosted = {
            str(queue): [run.to_json() for run in runs] for queue, runs in self.hosted.items()
        }
        return {**self.info(), "hostedQueues": hosted}

    def info(self) -> dict[str, Any]:
        """Return what routes tell: which global queues the broker takes messages for."""
        led = {
            str(queue): runs[-1].queue_id
            for queue, runs in self.hosted.items()
            if runs[-1].broker == self.broker
        }
        return {
            "bname": self.broker,
            "currIdMap": led,
            "dirty": False,
            "epoch": self.epoch,
            "scope": self.scope,
            "topic": self.topic,
            "totalQueues": self.total_queues,
        }

    def leads(self, queue: int) -> bool:
        """Whether what is sent to a global queue goes to this broker."""
        runs = self.hosted.get(queue, ())
        return bool(runs) and runs[-1].broker == self.broker

    def after(self, old: StaticMapping | None, *, force: bool) -> StaticMapping:
        """Return what holds after a change from `old`. ValueError: it may not be changed so."""
        if old is None:
            return self
        kept = {**old.hosted, **self.hosted}
        if max(kept, default=-1) >= self.total_queues:
            # Not even by force: nobody could read it again.
            raise WrongError(
                f"totalQueues: {self.total_queues}, but this broker keeps global queue {max(kept)}"
            )
        if not force:
            self._check_after(old)
        return StaticMapping(
            topic=self.topic,
            broker=self.broker,
            epoch=self.epoch,
            total_queues=self.total_queues,
            scope=self.scope,
            hosted=dict(sorted(kept.items())),
        )

    def _check_after(self, old: StaticMapping) -> None:
        if self.epoch < old.epoch:
            raise WrongError(f"Can't accept data with small epoch {self.epoch} < {old.epoch}")
        if self.scope != old.scope:
            raise WrongError(f"Can't accept data with unmatched scope {self.scope} != {old.scope}")
        for queue, runs in old.hosted.items():
            if queue in self.hosted:
                _check_kept(runs, self.hosted[queue], same_epoch=self.epoch == old.epoch)
            elif self.epoch == old.epoch:
                raise WrongError("Cannot accept equal epoch with null data")


def key_of(topic: str, broker: str) -> str:
    """Return the name under which a broker's part of a topic is published."""
    return f"{topic}@{broker}"


def at(runs: Sequence[QueueRun], offset: int) -> QueueRun | None:
    """Return the run that has a global offset, of those that are decided; else the first one."""
    decided = [run for run in runs if run.decided]
    return next(
        (run for run in reversed(decided) if offset >= run.logic_offset),
        decided[0] if decided else None,
    )


def following(runs: Sequence[QueueRun], run: QueueRun) -> QueueRun | None:
    """Return the run after one, if there is any and its beginning is decided."""
    later = [one for one in runs if one.generation > run.generation]
    return later[0] if later and later[0].decided else None


def _checked(runs: tuple[QueueRun, ...]) -> tuple[QueueRun, ...]:
    """Return runs of one queue. ValueError in the words of the originals."""
    for run in runs:
        if run.start_offset < 0 or run.generation < 0 or run.queue_id < 0:
            raise WrongError("The field is illegal, should not be negative")
        if run.end_offset != -1 and run.end_offset < run.start_offset:
            raise WrongError("The endOffset is smaller than the start offset")
    for run, later in pairwise(runs):
        _check_order(run, later)
    return runs


def _check_order(run: QueueRun, later: QueueRun) -> None:
    if not run.decided:
        raise WrongError("The non-latest item has negative logic offset")
    if run.generation >= later.generation:
        raise WrongError("The gen does not increase monotonically")
    if not later.decided:
        return
    if run.logic_offset >= later.logic_offset:
        raise WrongError("The base logic offset does not increase monotonically")
    if run.logical_within(max(run.start_offset, run.end_offset)) >= later.logic_offset:
        raise WrongError("The max logic offset does not increase monotonically")


def _check_kept(old: Sequence[QueueRun], new: Sequence[QueueRun], *, same_epoch: bool) -> None:
    """Let no run become another one; ValueError says which rule is broken."""
    by_generation = {run.generation: run for run in new}
    for run in old:
        now = by_generation.get(run.generation)
        if now is None:
            continue
        if (run.broker, run.queue_id, run.start_offset) != (
            now.broker,
            now.queue_id,
            now.start_offset,
        ) or (run.decided and run.logic_offset != now.logic_offset):
            raise WrongError(f"generation {run.generation} of a queue is another one than before")
    if same_epoch and old[-1][:3] != new[-1][:3]:
        raise WrongError("The new leader is different but epoch equal")


def _number(value: Mapping[str, Any], name: str, default: int) -> int:
    found = value.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not -1 <= found < 1 << 62:
        raise WrongError(f"{name}: a number is wanted")
    return found


def _text(value: Mapping[str, Any], name: str, default: str) -> str:
    found = value.get(name, default)
    if not isinstance(found, str) or len(found) > 255:
        raise WrongError(f"{name}: a text of at most 255 characters is wanted")
    return found
