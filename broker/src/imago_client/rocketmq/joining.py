"""Sends to one queue that wait together leave as one request.

A send whose queue has nothing under way leaves at once, alone. Those that come while a request is
under way wait for the end of the loop's turn, and while `UNDER_WAY_MAX` are, for one of them to
end: so a crowd makes large requests by itself, and nobody waits for more messages to come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from imago_client.core.sending import idempotent, sending
from imago_client.core.sending.outgoing import join, share
from imago_client.core.sending.selection import queue_for_key
from imago_client.core.sending.sending import ELSEWHERE_CODES, Begun
from imago_client.errors import (
    BrokerError,
    ClientClosedError,
    NoRouteError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    TryAgainError,
)
from imago_client.message_queue import MessageQueue
from imago_client.messages import SendResult

if TYPE_CHECKING:
    from imago_client.config import ProducerConfig
    from imago_client.core.effects import Operation
    from imago_client.core.sending.lanes import ProducerLanes
    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.core.sending.sending import Rotations
    from imago_client.core.state import ClientState
    from imago_client.rocketmq.driver import Driver

    _Waiting: TypeAlias = tuple[Outgoing, asyncio.Future[SendResult | Begun]]

UNDER_WAY_MAX: Final = 2
"""Requests to one queue without an answer, while more of its messages wait."""
JOINED_BYTES_MAX: Final = 1 << 20
"""Bodies and properties of one request; a message that alone has more goes alone."""


class Joining:
    """The sends of one producer, by queue."""

    def __init__(
        self,
        state: ClientState,
        driver: Driver,
        config: ProducerConfig,
        rotations: Rotations,
        lanes: ProducerLanes,
    ) -> None:
        self.state, self.driver, self.config = state, driver, config
        self.rotations, self.lanes = rotations, lanes
        self.count_max = config.joined_max
        self._admission = driver.admission
        self._busy: dict[MessageQueue, _Queue] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        """The requests of more than one message; held so that they are not collected."""

    async def send(self, outgoing: Outgoing, queue: MessageQueue | None) -> SendResult:
        """Send one message or batch once there is room; raise what sending it alone would raise."""
        size = len(outgoing.body)
        admission = self._admission
        if not admission.try_enter(size):
            await admission.enter(size)
        told: asyncio.Future[SendResult | Begun] | None = None
        begun: Begun | None = None
        try:
            target = self._target(outgoing, queue)
            if target is not None:
                there = self._busy.get(target)
                if there is None:
                    begun = self._begin(target)
                else:
                    told = there.join(outgoing)
                    found = await told
                    if isinstance(found, SendResult):
                        return found
                    begun = found
            return await self.driver.run(self.alone(outgoing, queue, begun))
        except asyncio.CancelledError:
            if begun is None and told is not None:
                begun = _told_to_go(told)
            raise
        finally:
            if begun is not None:
                self._busy[begun.queue].ended()
            admission.leave(size)

    def _begin(self, target: MessageQueue) -> Begun:
        there = self._busy[target] = _Queue(self, target)
        there.under_way = 1
        return Begun(target)

    def alone(
        self, outgoing: Outgoing, queue: MessageQueue | None, begun: Begun | None
    ) -> Operation[SendResult]:
        """Return the operation that sends one message or batch by itself."""
        parts = (self.state, self.config, self.rotations)
        if self.config.idempotent:
            return idempotent.send(*parts, self.lanes, outgoing, begun.queue if begun else queue)
        return sending.send(*parts, outgoing, queue, begun)

    def together(
        self, outgoings: list[Outgoing], queue: MessageQueue, address: str
    ) -> Operation[SendResult]:
        """Return the operation that tries joined messages: once, what fails goes on by itself."""
        joined = join(outgoings, numbered=self.config.idempotent)
        if self.config.idempotent:  # all tries, under the numbers that they have
            return self.alone(joined, queue, None)
        parts = (self.state, self.config, joined, queue, address)
        return sending.send_to(*parts, self.config.send_timeout_s)

    def address_of(self, queue: MessageQueue) -> str | None:
        """Return who leads a queue as far as is known without asking."""
        route = self.state.cached_route(queue.topic)
        try:
            return None if route is None else route.master(queue.shard)
        except NoRouteError:
            return None

    def forget(self, queue: MessageQueue) -> None:
        """Nothing of a queue waits or is under way any more."""
        self._busy.pop(queue, None)

    def _target(self, outgoing: Outgoing, queue: MessageQueue | None) -> MessageQueue | None:
        """Return the queue of a message that may join others; None: it goes the plain way."""
        if not outgoing.may_join or self.count_max == 1:
            return None
        if queue is not None:
            is_usual = type(queue) is MessageQueue and queue.topic == outgoing.topic
            is_usual = is_usual and type(queue.shard) is str and type(queue.queue_id) is int
            return queue if is_usual else None
        route = self.state.cached_route(outgoing.topic)
        if route is None or not route.led_queues:
            return None
        if outgoing.ordering_key is not None:
            return queue_for_key(outgoing.ordering_key, route.write_queues)
        return self.rotations.of(outgoing.topic).pick(route.led_queues)


def _told_to_go(told: asyncio.Future[SendResult | Begun]) -> Begun | None:
    """Return the way to go on alone that was told in the moment that the sender was cancelled."""
    if told.cancelled() or not told.done() or told.exception() is not None:
        return None
    found = told.result()
    return found if isinstance(found, Begun) else None


class _Queue:
    """What is under way to one queue, and what waits."""

    __slots__ = ("_is_called", "_joining", "_queue", "_waiting", "under_way")

    def __init__(self, joining: Joining, queue: MessageQueue) -> None:
        self._joining, self._queue = joining, queue
        self.under_way = 0
        self._waiting: deque[_Waiting] = deque()
        self._is_called = False

    def join(self, outgoing: Outgoing) -> asyncio.Future[SendResult | Begun]:
        """Return what is told the result, or the way to go on alone, which `ended` ends."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[SendResult | Begun] = loop.create_future()
        self._waiting.append((outgoing, told))
        if not self._is_called:
            self._call(loop)
        return told

    def ended(self) -> None:
        """A request is not under way any more."""
        self.under_way -= 1
        if self._waiting:
            self._call(asyncio.get_running_loop())
        elif not self.under_way:
            self._joining.forget(self._queue)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_called and self.under_way < UNDER_WAY_MAX:
            self._is_called = True
            loop.call_soon(self._leave)

    def _leave(self) -> None:
        """Send what waits, as much as one request may hold."""
        self._is_called = False
        taken = self._take()
        if not taken:
            if not self.under_way:
                self._joining.forget(self._queue)
            return
        self.under_way += 1
        address = self._joining.address_of(self._queue)
        if len(taken) == 1:
            taken[0][1].set_result(Begun(self._queue))
        elif address is None:  # each finds its way by itself
            self._part(taken, Begun(self._queue))
        else:
            task = asyncio.create_task(self._send(taken, address), name=f"send to {self._queue}")
            self._joining.tasks.add(task)
            task.add_done_callback(self._joining.tasks.discard)
        if self._waiting:
            self._call(asyncio.get_running_loop())

    def _take(self) -> list[_Waiting]:
        taken: list[_Waiting] = []
        waiting, count_max, bytes_max = self._waiting, self._joining.count_max, self._bytes_max()
        size = 0
        while waiting and len(taken) < count_max:
            one = waiting.popleft()
            outgoing, told = one
            if told.done():
                continue
            size += len(outgoing.body) + len(outgoing.properties)
            if taken and (size > bytes_max or outgoing.wait_stored != taken[0][0].wait_stored):
                waiting.appendleft(one)
                break
            taken.append(one)
        return taken

    def _bytes_max(self) -> int:
        return min(JOINED_BYTES_MAX, self._joining.config.batch_bytes_max)

    async def _send(self, taken: list[_Waiting], address: str) -> None:
        outgoings = [outgoing for outgoing, _ in taken]
        began_s = self._joining.state.clock_s()
        try:
            together = self._joining.together(outgoings, self._queue, address)
        except Exception:  # one that cannot be written is told so where it goes alone
            self._part(taken, Begun(self._queue))
            return
        try:
            result = await self._joining.driver.run(together)
        except asyncio.CancelledError:
            self._fail(taken, ClientClosedError())
            raise
        except Exception as error:
            if (again := self._way_on(error, began_s, address)) is None:
                self._fail(taken, error)
            else:
                self._part(taken, again)
        else:
            for (_, told), one in zip(taken, share(outgoings, result), strict=True):
                if not told.done():
                    told.set_result(one)
            self.ended()

    def _way_on(self, error: Exception, began_s: float, address: str) -> Begun | None:
        """Return how each goes on after an error of all; None: it is an error of each."""
        if isinstance(error, ProducerFencedError | OutOfOrderSequenceError):
            return None
        if isinstance(error, BrokerError) and error.code not in ELSEWHERE_CODES:
            return Begun(self._queue)  # one may be refused because of another
        if self._joining.config.idempotent or not isinstance(error, TryAgainError | BrokerError):
            return None  # an idempotent producer has tried all that may be tried
        return Begun(self._queue, began_s, address, error)

    def _part(self, taken: list[_Waiting], begun: Begun) -> None:
        """Have each go on by itself, as one that was never joined."""
        if begun.error is not None:
            self._joining.state.drop_route(self._queue.topic)
        parted = [told for _, told in taken if not told.done()]
        self.under_way += len(parted)
        for told in parted:
            told.set_result(begun)
        self.ended()

    def _fail(
        self,
        taken: list[_Waiting],
        error: Exception,
    ) -> None:
        for _, told in taken:
            if not told.done():
                told.set_exception(error.with_traceback(None))
        self.ended()
