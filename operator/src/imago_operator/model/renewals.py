"""Whether a lease is over, by the watcher's own clock: clocks of machines need not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DURATION_S: Final = 15


class Renewals:
    """What is seen of one lease."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: seconds that never go back."""
        self._clock = clock
        self._seen: tuple[Any, float] = (None, 0.0)
        """What the lease said when it changed last, and when that was seen."""

    def over(self, spec: Mapping[str, Any]) -> bool:
        """Whether nobody holds it: it was given back, or not renewed for as long as it lasts."""
        holder = spec.get("holderIdentity")
        if not holder:
            return True
        said = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if said != self._seen[0]:
            self._seen = (said, self._clock())
        lasts = spec.get("leaseDurationSeconds") or DURATION_S
        return self._clock() - self._seen[1] > lasts
