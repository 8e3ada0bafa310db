"""Settings in force, for those who have to see each change at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Section = TypeVar("Section")


class LiveSettings(Generic[Section]):
    """One section of the settings. It is replaced as a whole: read `current` at each use."""

    __slots__ = ("_before_change", "current")

    def __init__(
        self, section: Section, before_change: Callable[[Section], None] | None = None
    ) -> None:
        """`before_change` gets what `change` brings, and raises ValueError where it cannot be."""
        self.current = section
        self._before_change = before_change

    def change(self, section: Section) -> None:
        """Put changed settings in force; ValueError, and nothing done, where they cannot be."""
        if self._before_change is not None:
            self._before_change(section)
        self.current = section
