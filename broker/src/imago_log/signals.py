"""Events of a store, and their listeners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, ParamSpec

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")


class Signal(Generic[P]):
    """Listeners that are called in order. Add and remove in one thread; call in any."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, object], ...] = ()

    def add(self, listener: Callable[P, object]) -> None:
        """Call a listener from now on."""
        self._listeners = (*self._listeners, listener)

    def remove(self, listener: Callable[P, object]) -> None:
        """Stop calling a listener; one that is not registered is no error."""
        self._listeners = tuple(each for each in self._listeners if each != listener)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)
