"""Sending so that each message is stored once: the operation of an idempotent producer.

The queue is chosen once. All tries go to it, to whichever broker leads its shard by then, under the
same number; the broker answers a repeat with where the original is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_client.checks import check_queue
from imago_client.core.effects import Operation, Pause, Wait
from imago_client.core.lookup import find_publish_route
from imago_client.core.sending.sending import (
    ELSEWHERE_CODES,
    PAUSES,
    choose_queue,
    give_up_or_note,
    send_to,
)
from imago_client.errors import (
    BrokerError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    SendFailedError,
    TryAgainError,
)
from imago_client.messages import SendStatus
from imago_wire.record_format.properties import PROPERTIES_BYTES_MAX
from imago_wire.record_format.sequences import number_borders, wire_numbers, wire_properties
from imago_wire.remoting.batches import encode_batch
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.sent_twins import extend_batch

if TYPE_CHECKING:
    from imago_client.config import ProducerConfig
    from imago_client.core.sending.lanes import ProducerLane, ProducerLanes, Slot
    from imago_client.core.sending.outgoing import Outgoing
    from imago_client.core.sending.sending import Rotations
    from imago_client.core.state import ClientState
    from imago_client.message_queue import MessageQueue
    from imago_client.messages import SendResult
    from imago_wire.record_format.sequences import Sequence

_REFUSALS = frozenset(
    {ResponseCode.IMAGO_OUT_OF_ORDER_SEQUENCE, ResponseCode.IMAGO_PRODUCER_FENCED}
)


def send(
    state: ClientState,
    config: ProducerConfig,
    rotations: Rotations,
    lanes: ProducerLanes,
    outgoing: Outgoing,
    queue: MessageQueue | None = None,
) -> Operation[SendResult]:
    """Send until the broker acknowledges, within `delivery_timeout_s`."""
    delivery = _Delivery(state, config, outgoing)
    if queue is None:
        queue = yield from delivery.choose(rotations)
    check_queue(queue, outgoing.topic)
    lane = lanes.of(queue)
    slot = lane.enter(outgoing.messages, state.clock_s())
    try:
        yield Wait(slot.entered)
        result = yield from delivery.run(lane, slot, queue)
        lane.stored(slot)
    finally:
        lane.given_up(slot)  # does nothing to one that is stored
    return result


class _Delivery:
    """The tries of one request."""

    def __init__(self, state: ClientState, config: ProducerConfig, outgoing: Outgoing) -> None:
        self._state, self._config, self._outgoing = state, config, outgoing
        self._deadline = state.clock_s() + config.delivery_timeout_s
        self._causes: list[Exception] = []

    def choose(self, rotations: Rotations) -> Operation[MessageQueue]:
        """Return the queue that the message will go to whatever happens."""
        while True:
            self._left_s()
            try:
                queue, _ = yield from choose_queue(
                    self._state, self._config, rotations, self._outgoing, None
                )
            except (TryAgainError, BrokerError) as error:
                yield from self._note(error)
            else:
                return queue

    def run(self, lane: ProducerLane, slot: Slot, queue: MessageQueue) -> Operation[SendResult]:
        """Return the acknowledgement. What was not stored and cannot be raises."""
        late: SendResult | None = None
        while True:
            if late is not None and self._deadline <= self._state.clock_s():
                return late
            left_s = self._left_s()
            sent_as = slot.sequence
            try:
                result = yield from self._try(slot, queue, left_s)
            except BrokerError as error:
                if error.code in _REFUSALS:
                    yield from self._refused(error, lane, slot, sent_as)
                else:
                    yield from self._note(error)
            except TryAgainError as error:
                yield from self._note(error)
            else:
                if result.status is SendStatus.OK or not self._config.retry_when_not_stored_ok:
                    return result
                late = result
                self._causes.append(BrokerError(str(queue), 0, result.status.value))
                yield self._pause()

    def _try(self, slot: Slot, queue: MessageQueue, left_s: float) -> Operation[SendResult]:
        topic = self._outgoing.topic
        route = yield from find_publish_route(self._state, topic, self._config.queues_by_default)
        address = route.master(queue.shard)
        numbered = _numbered(self._outgoing, slot.sequence)
        certain, slot.uncertain = not slot.uncertain, True
        timeout_s = min(left_s, self._config.send_timeout_s)
        try:
            result = yield from send_to(
                self._state, self._config, numbered, queue, address, timeout_s
            )
        except BrokerError as error:
            if error.code not in ELSEWHERE_CODES:
                slot.uncertain = not certain  # this try has left nothing behind
            raise
        return result

    def _refused(
        self, error: BrokerError, lane: ProducerLane, slot: Slot, sent_as: Sequence
    ) -> Operation[None]:
        """Find out whether and under which number to go on."""
        if not slot.first.is_open:
            yield Wait(slot.first)  # what is before it may not be stored yet
            return
        if slot.sequence != sent_as:
            return  # the lane has closed a gap meanwhile
        fenced = error.code == ResponseCode.IMAGO_PRODUCER_FENCED
        if not fenced and lane.renumber(slot):
            return
        kind = ProducerFencedError if fenced else OutOfOrderSequenceError
        raise kind(error.address, error.code, error.remark)

    def _left_s(self) -> float:
        left_s = self._deadline - self._state.clock_s()
        if left_s <= 0:
            raise SendFailedError(self._outgoing.topic, self._causes)
        return left_s

    def _note(self, error: TryAgainError | BrokerError) -> Operation[None]:
        give_up_or_note(self._state, self._outgoing.topic, error, self._causes)
        yield self._pause()

    def _pause(self) -> Pause:
        pause_s = PAUSES[min(len(self._causes), len(PAUSES)) - 1]
        return Pause(min(pause_s, max(0.0, self._deadline - self._state.clock_s())))


def _numbered(outgoing: Outgoing, first: Sequence) -> Outgoing:
    """Return the request with its messages' numbers in their properties."""
    if not outgoing.is_batch:
        return outgoing._replace(properties=outgoing.properties + wire_properties(first))
    if not outgoing.entries:  # it was packed
        head, end = number_borders(first)
        numbered = extend_batch(
            outgoing.body, head, first.number, end, hexadecimal=False, size_max=PROPERTIES_BYTES_MAX
        )
        return outgoing._replace(body=numbered)
    numbers = wire_numbers(first, len(outgoing.entries))
    entries = [
        (body, properties + number, flag)
        for (body, properties, flag), number in zip(outgoing.entries, numbers, strict=True)
    ]
    return outgoing._replace(body=encode_batch(entries))
