"""Asking a shard's current master: after a failure the route is read again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from imago_client.core.effects import Operation, Pause
from imago_client.errors import BrokerError, ConnectionLostError, NoMasterError
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_client.core.state import ClientState

T = TypeVar("T")

_NOT_THE_MASTER: Final = (
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.GO_AWAY,
)
"""The second, of a member that is asked to end a transaction or to take a message back; the third
of a broker that stops."""
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0


def is_failover(error: Exception) -> bool:
    """Whether an error may come of a change of master: another broker may serve the same soon."""
    if isinstance(error, BrokerError):
        return error.code in _NOT_THE_MASTER
    return isinstance(error, ConnectionLostError | NoMasterError)


def through_failover(
    state: ClientState, topic: str, attempt: Callable[[], Operation[T]]
) -> Operation[T]:
    """Return what an attempt does, made again by new routes while a master is being sought.

    The attempt must be one that may be made twice. The time is the state's `patience_s`, counted
    from the first failure; then the last error is raised, as is at once any error of another kind.
    """
    deadline: float | None = None
    pause_s = _PAUSE_S
    while True:
        try:
            return (yield from attempt())
        except (BrokerError, ConnectionLostError, NoMasterError) as error:
            state.drop_route(topic)
            now = state.clock_s()
            if not is_failover(error) or (deadline is not None and now >= deadline):
                raise
        if deadline is None:
            # The first time at once: the route may only have been an old one.
            deadline = now + state.patience_s
            continue
        yield Pause(pause_s)
        pause_s = min(_PAUSE_S_MAX, 2 * pause_s)
