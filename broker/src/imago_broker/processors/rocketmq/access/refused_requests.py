"""Requests that their header alone refuses, while their bodies still come.

A header tells whose a request is said to be and, for most codes, what it needs. Where that user may
not have it, what is left of the body is hashed for its signature as it comes, and nobody keeps it:
the answer is the one to a request that was read whole, a wrong signature before a missing right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.processors.rocketmq.exchange import Exchange, Reply, RequestError
    from imago_wire.remoting.command import RemotingCommand


class BodyAskedError(Exception):
    """What a request needs is in its body, which has not come."""


class _HeaderOnly:
    """A request of which the header has come."""

    def __init__(self, command: RemotingCommand) -> None:
        self._command = command

    def __getattr__(self, name: str) -> Any:
        if name == "body":
            raise BodyAskedError
        return getattr(self._command, name)


def header_only(command: RemotingCommand) -> RemotingCommand:
    """Return the request as rights see it: BodyAskedError where they look at its body."""
    return cast("RemotingCommand", _HeaderOnly(command))


class Signatures(Protocol):
    """What a signature is held against."""

    def update(self, body: bytes | bytearray | memoryview) -> None: ...
    def is_right(self) -> bool: ...


class RefusedRequest:
    """A request that is refused once its body is over."""

    __slots__ = ("_exchange", "_refusal", "_signatures", "_unsigned", "left")

    def __init__(
        self,
        exchange: Exchange,
        refusal: Callable[[], RequestError],
        signatures: Signatures | None = None,
        unsigned: Callable[[], RequestError] | None = None,
    ) -> None:
        """`unsigned` makes the answer where the signature is wrong; without it nobody looks."""
        self._exchange, self._refusal = exchange, refusal
        self._signatures, self._unsigned = signatures, unsigned
        self.left = 0
        """Bytes of the body that have not come."""

    def take(self, body: bytes | bytearray | memoryview) -> None:
        """Look at a piece of the body, in order."""
        if self._signatures is not None:
            self._signatures.update(body)

    def answer(self) -> None:
        """Refuse it. What signs it counts only once its body is over."""
        exchange, refusal = self._exchange, self._refusal
        if not self.left and self._signatures is not None and not self._signatures.is_right():
            assert self._unsigned is not None, "there is one where signatures are looked at"
            refusal = self._unsigned
        reply: Reply = refusal().reply
        if not exchange.command.is_oneway:
            exchange.channel.reply(exchange.command, reply)
