"""Lines of the log about what comes again and again: said once, then once a minute with a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_MS: Final = 60_000
SUBJECTS_MAX: Final = 64
"""Lines that are distinguished; above it the one logged longest ago is forgotten."""


class RepeatedLines:
    """Which lines are due, by what they are about."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms`: never goes back."""
        self._now_ms = now_ms
        self._said: dict[tuple[str, ...], tuple[int, int]] = {}
        """When each was said last, and how often it was due and not said since."""

    def due(self, *subject: str) -> int:
        """Return for how many times a line stands that is to be said now; 0: say nothing."""
        now_ms = self._now_ms()
        said = self._said.get(subject)
        if said is not None and now_ms - said[0] < AGAIN_MS:
            self._said[subject] = (said[0], said[1] + 1)
            return 0
        self._said.pop(subject, None)
        if len(self._said) >= SUBJECTS_MAX:
            del self._said[next(iter(self._said))]
        self._said[subject] = (now_ms, 0)
        return 1 if said is None else said[1] + 1
