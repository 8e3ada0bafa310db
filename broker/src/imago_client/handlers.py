"""What handlers have to be, and the errors for others."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, NoReturn

from imago_client.errors import UsageError
from imago_client.received import ReceivedMessage

_PLAIN_KINDS = (inspect.isfunction, inspect.ismethod, inspect.isbuiltin, inspect.isclass)


def check_handler(handler: object, name: str = "handler") -> None:
    """Refuse what is not `async def`: it would run, and then fail where it is awaited.

    Callables of kinds that do not tell (compiled ones) pass; they must return an awaitable.
    """
    called = handler
    while isinstance(called, functools.partial):
        called = called.func
    if callable(called) and not any(is_kind(called) for is_kind in _PLAIN_KINDS):
        called = type(called).__call__
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(called):
        return
    if not callable(handler) or any(is_kind(called) for is_kind in _PLAIN_KINDS):
        raise UsageError(
            f"{name}: {handler!r} is not an `async def`; have blocking work run by"
            " `await asyncio.to_thread(…)` in one, or use imago_client.blocking"
        )


def check_listener(name: str, listener: object) -> None:
    """UsageError: it cannot be called, or is `async def` where nobody awaits it."""
    if listener is None:
        return
    if not callable(listener) or inspect.iscoroutinefunction(listener):
        raise UsageError(f"{name}: {listener!r} is no plain function: nobody awaits it here")


class Batch(list[ReceivedMessage]):
    """The messages of one call; taking it for one message raises an error that says so."""

    __slots__ = ()

    if not TYPE_CHECKING:  # a type checker refuses such a handler where it is given

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"{name!r}: this handler is called with a list of messages:"
                f" `for message in messages: message.{name}`"
            )
