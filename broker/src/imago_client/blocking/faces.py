"""Methods of the asyncio faces, run to their end in the caller's thread.

Those faces await nothing but what they are given: a driver, or connections. Given one whose
coroutines never suspend, a method is over after its first step, and no event loop is there. So a
blocking face names the methods that it has, with their types, and writes none of them again.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

A = TypeVar("A")
P = ParamSpec("P")
T = TypeVar("T")


class Faced(Protocol[A]):
    """A blocking face of an asyncio one."""

    _face: A


def completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waits for an event loop")


def completed_each(items: AsyncIterator[T]) -> Iterator[T]:
    """Yield what an asynchronous iterator yields that never suspends."""
    while True:
        try:
            yield completed(anext(items))  # type: ignore[arg-type]
        except StopAsyncIteration:
            return


def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Faced[A], P], T]:
    """Return the same method of a blocking face."""

    @functools.wraps(method)
    def call(self: Faced[A], /, *args: P.args, **named: P.kwargs) -> T:
        return completed(method(self._face, *args, **named))

    return call
