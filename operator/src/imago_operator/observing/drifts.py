"""Which fields are not put back now: those that never stay, and those that somebody fights for.

It is kept in memory alone; an operator that has just begun tries once more.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from imago_operator.plan.drift import drifted, managed_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_operator.model.actions import Apply, Drift
    from imago_operator.model.state import OwnedObject

LEAST: Final = timedelta(seconds=30)
MOST: Final = timedelta(seconds=300)
"""Between two corrections of one object: it doubles as long as somebody undoes them."""
QUIET: Final = timedelta(minutes=30)
"""After this a change is no part of a fight any more."""
OBJECTS_MAX: Final = 20_000


@dataclass(slots=True)
class _Record:
    never: frozenset[str] = frozenset()
    """Fields that were not ours right after we had applied them."""
    times: int = 0
    at: datetime | None = None
    contested: frozenset[str] = field(default_factory=frozenset)


class Drifts:
    """What came of corrections, by the objects' uids."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def spared(self, uid: str) -> frozenset[str]:
        """Return the fields of an object that are left as they are for now."""
        record = self._records.get(uid)
        if record is None:
            return frozenset()
        return record.never | (record.contested if self._waits(record) else frozenset())

    def contested(self, uid: str) -> frozenset[str]:
        """Return the fields of an object that were put back not long ago."""
        record = self._records.get(uid)
        if record is None or record.at is None or self._now() - record.at >= QUIET:
            return frozenset()
        return record.contested

    def applied(
        self, action: Apply, before: OwnedObject | None, answer: Mapping[str, Any]
    ) -> tuple[Drift, ...]:
        """Take note of what came of a correction; return what is as it was to be again."""
        if before is None or not action.drift:
            return ()
        after = replace(before, managed=managed_of(answer), live=answer, spared=frozenset())
        left = frozenset(drift.path for drift in drifted(action.manifest, after))
        corrected = tuple(drift for drift in action.drift if drift.path not in left)
        record = self._records.setdefault(before.uid, _Record())
        self._records.move_to_end(before.uid)
        while len(self._records) > OBJECTS_MAX:
            self._records.popitem(last=False)
        record.never = left
        if corrected:
            again = record.at is not None and self._now() - record.at < QUIET
            record.times = record.times + 1 if again else 1
            record.contested = frozenset(drift.path for drift in corrected)
            record.at = self._now()
        return corrected

    def _waits(self, record: _Record) -> bool:
        """Whether the next correction is not due yet: the first that is undone waits, too."""
        if record.at is None:
            return False
        pause: timedelta = LEAST * 2.0 ** min(record.times - 1, 10)
        return self._now() - record.at < min(MOST, pause)
