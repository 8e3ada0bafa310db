"""How an operation talks to the world: it yields effects, its driver sends the answers back.

An operation is a generator and knows no socket, so the asyncio and the blocking client run the
same ones. A driver performs each effect in turn; an error of the effect is thrown into the
generator where it was yielded, so an operation retries with plain `try`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from imago_client.errors import BrokerError
from imago_wire.remoting.command import RemotingCommand

if TYPE_CHECKING:
    from imago_client.core.gate import Gate
    from imago_wire.remoting.fields import Header


@dataclass(frozen=True, slots=True)
class Request:
    """Ask one server one thing; the answer is its response, whatever its code."""

    address: str
    code: int
    header: Header | None = None
    body: bytes = b""
    timeout_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Oneway:
    """Tell one server something; there is no answer and no word of failure after the write."""

    address: str
    code: int
    header: Header | None = None
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for another operation of the same client."""

    gate: Gate


Effect: TypeAlias = Request | Oneway | Pause | Wait
T = TypeVar("T")
Operation: TypeAlias = Generator[Effect, RemotingCommand | None, T]


class Runner(Protocol):
    """What faces need of a driver."""

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation to its end and return what it returns."""


def ask(request: Request) -> Operation[RemotingCommand]:
    """Yield the request; return the response, whatever its code."""
    answer = yield request
    if answer is None:
        raise AssertionError("the driver answers a request with a response")
    return answer


def ask_ok(request: Request, *accepted: int) -> Operation[RemotingCommand]:
    """Like `ask`, but raise BrokerError on a code other than 0 and `accepted`."""
    answer = yield from ask(request)
    if answer.code != 0 and answer.code not in accepted:
        raise BrokerError(request.address, answer.code, answer.remark or "")
    return answer
