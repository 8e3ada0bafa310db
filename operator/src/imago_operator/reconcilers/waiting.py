"""Objects whose cluster does not answer: it answers one of them, and all are looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_operator.contents.belonging import Place
    from imago_operator.reconcile import ObjectKey


class WaitingObjects:
    """Those of one kind, by cluster; each asks seldom by itself where there are many."""

    def __init__(self, enqueue: Callable[[ObjectKey], None]) -> None:
        self._enqueue = enqueue
        self._places: dict[ObjectKey, Place] = {}
        self._keys: dict[Place, set[ObjectKey]] = {}

    def forget(self, key: ObjectKey) -> None:
        """A look at it begins: whether it waits is seen then."""
        place = self._places.pop(key, None)
        if place is None:
            return
        keys = self._keys[place]
        keys.discard(key)
        if not keys:
            del self._keys[place]

    def note(self, place: Place, key: ObjectKey, *, answered: bool) -> None:
        """Whether the object's cluster answered."""
        if not answered:
            self._places[key] = place
            self._keys.setdefault(place, set()).add(key)
            return
        for other in self._keys.pop(place, ()):
            del self._places[other]
            self._enqueue(other)
