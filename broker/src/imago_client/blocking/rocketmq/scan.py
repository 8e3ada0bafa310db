"""Reads a range of one queue in large pieces, the next one on its way while one is worked on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from imago_client.core.consuming import pulling
from imago_client.core.consuming.subscriptions import ALL, subscribe
from imago_client.core.routing import MASTER_ID
from imago_client.errors import BrokerError, ClientError, TryAgainError
from imago_client.messages import PullStatus
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_client.blocking.rocketmq.driver import Ahead, BlockingDriver
    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.effects import Request
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.received import Pulled

MESSAGES_MAX: Final = 10_000
_PASSING_CODES: Final = frozenset({ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.GO_AWAY})
_BUSY_CODES: Final = frozenset({ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL})
_SMALL_BYTES: Final = 64 << 10
_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanLimits:
    """How large the pieces are, and how often a failed one is asked for again."""

    piece_bytes: int = 4 << 20
    retries: int = 7
    """Pauses between them grow: together they outlast a change of master."""
    busy_s: float = 300.0
    """For how long a broker may be busy, or a limit of somebody be used up: that is no failure."""


@dataclass(slots=True, eq=False)
class QueueScan:
    """One pass over a queue's offsets from `start` up to `end`.

    Iterate once. Pieces with messages come in order; the last one may reach beyond `end`. A piece
    whose status is OFFSET_ILLEGAL or NO_NEW_MESSAGE is the last: the queue does not hold what was
    asked for (any more, or yet), and the caller decides what that means.
    """

    state: ClientState
    driver: BlockingDriver
    group: str
    queue: MessageQueue
    start: int
    end: int
    limits: ScanLimits
    _offset: int = field(init=False)
    _piece_bytes: int = field(init=False)
    _subscription: Subscription = field(init=False)
    _read_from: int = field(default=MASTER_ID, init=False)
    _ahead: tuple[Request, Ahead] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._offset, self._piece_bytes = self.start, self.limits.piece_bytes
        self._subscription = subscribe(self.queue.topic, ALL, self.state.clock_ms())

    def __iter__(self) -> Iterator[Pulled]:
        try:
            while self._offset < self.end:
                piece = self._piece()
                self._offset, self._read_from = piece.next_offset, piece.read_from
                if piece.status in (PullStatus.OFFSET_ILLEGAL, PullStatus.NO_NEW_MESSAGE):
                    yield piece
                    return
                if self._offset < self.end:
                    self._send_ahead()
                if piece.status is PullStatus.FOUND:
                    yield piece
        finally:
            if self._ahead is not None:
                self._ahead[1].forget()

    def _piece(self) -> Pulled:
        tries = pauses = 0
        busy_s = 0.0
        while True:
            try:
                if self._ahead is None:
                    self._ask()
                return self._receive()
            except (TryAgainError, BrokerError) as error:
                self._read_from = MASTER_ID
                pauses += 1
                pause_s = min(_PAUSE_S_MAX, _PAUSE_S * 2.0**pauses)
                if isinstance(error, BrokerError) and error.code in _BUSY_CODES:
                    busy_s += pause_s
                    is_over = busy_s > self.limits.busy_s
                    # What an answer takes of a limit has to be paid before there is another one.
                    least = min(_SMALL_BYTES, self.limits.piece_bytes)
                    self._piece_bytes = max(least, self._piece_bytes // 2)
                else:
                    tries += 1
                    is_over = tries > self.limits.retries or not _may_pass(error)
                if is_over:
                    raise
                time.sleep(pause_s)

    def _send_ahead(self) -> None:
        try:
            self._ask()
        except ClientError:
            self._ahead = None  # asked for again, with patience, when it is wanted

    def _ask(self) -> None:
        asked = pulling.PullArguments(
            group=self.group,
            queue=self.queue,
            offset=self._offset,
            subscription=self._subscription,
            messages_max=min(MESSAGES_MAX, self.end - self._offset),
            bulk_bytes=self._piece_bytes,
            read_from=self._read_from,
        )
        request = self.driver.run(pulling.pull_request(self.state, asked))
        self._ahead = request, self.driver.send_ahead(request)

    def _receive(self) -> Pulled:
        assert self._ahead is not None, "the request was sent before"
        request, ahead = self._ahead
        self._ahead = None
        try:
            answer = ahead.receive()
        except TryAgainError:
            self.state.drop_route(self.queue.topic)
            raise
        return pulling.read_pulled(self.state, self.queue, request.address, answer)


def _may_pass(error: TryAgainError | BrokerError) -> bool:
    return isinstance(error, TryAgainError) or error.code in _PASSING_CODES
