"""Warnings about what fails again and again: said once, then once a minute with a count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_S: Final = 60.0
SUBJECTS_MAX: Final = 1024
"""Above it the subject that was said longest ago is forgotten."""


class WarningPace:
    """Which warnings are due, by what they are about."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._said: dict[tuple[object, ...], tuple[float, int]] = {}
        """When each was said last, and how often it was not said since."""

    def due(self, *subject: object) -> int:
        """Return for how many times a warning counts that is to be given now; 0: give none."""
        now_s = self._clock_s()
        said_s, unsaid = self._said.get(subject, (float("-inf"), 0))
        if now_s - said_s < AGAIN_S:
            self._said[subject] = (said_s, unsaid + 1)
            return 0
        self._said.pop(subject, None)
        if len(self._said) >= SUBJECTS_MAX:
            del self._said[next(iter(self._said))]
        self._said[subject] = (now_s, 0)
        return unsaid + 1
