"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from imago_broker.processors.grpc.calls import CallError, status
from imago_broker.processors.grpc.checks import group_name, lite_topic_name, topic_name
from imago_broker.processors.grpc.consuming.receipts import parse_handle
from imago_broker.processors.grpc.sending import common
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import make, milliseconds
from imago_wire.record_format.references import lite_parent, lite_queue
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.ports import Clock
    from imago_broker.processors.grpc.asking import AskedResult, TableAsker
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.processors.grpc.consuming.receipts import Handle

log = logging.getLogger(__name__)

ENTRIES_MAX = 1024
"""Acknowledgements of one request; clients send one, or what a receive gave."""
HIDDEN_MS_MAX = 12 * 3600 * 1000
_DEAD = "-1"


class KeptReceipts(Protocol):
    """What knows what is out, and until when."""

    def is_kept(self, key: tuple[str, str, int], offset: int, stamp: int, now_ms: int) -> bool:
        """Whether a message is out by a receipt, and its time is not up, whatever that says."""
        ...


class AckCalls:
    """What consumers say of what they got."""

    def __init__(
        self, asker: TableAsker, clock: Clock, *, broker_name: str, out: KeptReceipts
    ) -> None:
        self.asker, self.clock = asker, clock
        self.broker_name, self._out = broker_name, out

    def acknowledge(self, call: Call, request: Any) -> None:
        """AckMessage: each entry by itself."""
        topic, group = topic_name(request.topic), group_name(request.group)
        if not request.entries:
            raise CallError(SdkCode.INTERNAL_SERVER_ERROR, "the request names no message")
        if len(request.entries) > ENTRIES_MAX:
            raise CallError(
                SdkCode.BAD_REQUEST, f"{len(request.entries)} entries, at most {ENTRIES_MAX}"
            )
        acks = Acks(call, [(one.message_id, one.receipt_handle) for one in request.entries])
        for index, entry in enumerate(request.entries):
            place = queue_of(topic, entry.lite_topic)
            self._acknowledge(call, place, group, entry.receipt_handle, acks.taking(index))

    def _acknowledge(
        self,
        call: Call,
        topic: str,
        group: str,
        told: str,
        done: Callable[[CallError | None], None],
    ) -> None:
        try:
            handle = self._valid(group, topic, told)
        except CallError as error:
            done(error)
            return

        def acknowledged(outcome: AskedResult) -> None:
            done(None if outcome.done or _is_void(outcome) else outcome.error())

        ext = self._naming(group, topic, handle)
        self.asker.ask(call, RequestCode.ACK_MESSAGE, ext, acknowledged)

    def change(self, call: Call, request: Any) -> None:
        """ChangeInvisibleDuration: a new handle counts from then on."""
        group = group_name(request.group)
        topic = queue_of(topic_name(request.topic), request.lite_topic)
        invisible_ms = milliseconds(request.invisible_duration)
        if not 0 <= invisible_ms <= HIDDEN_MS_MAX:
            raise CallError(
                SdkCode.ILLEGAL_INVISIBLE_TIME, f"invisible for {invisible_ms} ms: at most 12 hours"
            )
        handle = self._valid(group, topic, request.receipt_handle)

        def done(changed: Handle | CallError) -> None:
            if isinstance(changed, CallError):
                call.refuse(changed)
            else:
                call.answer(receipt_handle=str(changed))

        self.hide(call, group, topic, handle, invisible_ms, done, counted=not request.suspend)

    def hide(
        self,
        call: Call,
        group: str,
        topic: str,
        handle: Handle,
        invisible_ms: int,
        done: Callable[[Handle | CallError], None] = lambda _: None,
        *,
        counted: bool = True,
    ) -> None:
        """Have a message out for as long from now on; `counted`: it is another try then."""
        ext = {**self._naming(group, topic, handle), "invisibleTime": str(invisible_ms)}
        if not counted:
            ext["suspend"] = "true"

        def changed(outcome: AskedResult) -> None:
            if outcome.done:
                at_ms = int(outcome.ext["popTime"])
                done(handle.postponed(at_ms, invisible_ms))
            elif _is_void(outcome):
                done(CallError(SdkCode.INVALID_RECEIPT_HANDLE, outcome.text))
            else:
                done(outcome.error())

        self.asker.ask(call, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext, changed)

    def forward(self, call: Call, request: Any) -> None:
        """ForwardMessageToDeadLetterQueue: nobody of the group is to try it again."""
        group = group_name(request.group)
        topic = queue_of(topic_name(request.topic), request.lite_topic)
        handle = self._valid(group, topic, request.receipt_handle)

        def done(error: CallError | None) -> None:
            if error is None:
                call.answer()
            else:
                call.refuse(error)

        self._to_dead_letters(call, group, topic, handle, done)

    def give_up(self, call: Call, group: str, topic: str, handle: Handle) -> None:
        """Put a message that was tried often enough to the dead letters."""

        def done(error: CallError | None) -> None:
            if error is not None:  # it comes again, and is given up then
                log.warning("not_given_up topic=%s group=%s reason=%s", topic, group, error)

        self._to_dead_letters(call, group, topic, handle, done)

    def _to_dead_letters(
        self,
        call: Call,
        group: str,
        topic: str,
        handle: Handle,
        done: Callable[[CallError | None], None],
    ) -> None:
        ext = {
            "offset": str(handle.log_offset),
            "group": group,
            "delayLevel": _DEAD,
            "originTopic": lite_parent(topic) or topic,
            "maxReconsumeTimes": "0",
        }

        def acknowledged(outcome: AskedResult) -> None:
            done(None if outcome.done or _is_void(outcome) else outcome.error())

        def stored(outcome: AskedResult) -> None:
            if not outcome.done:
                done(outcome.error())
                return
            named = self._naming(group, topic, handle)
            self.asker.ask(call, RequestCode.ACK_MESSAGE, named, acknowledged)

        self.asker.ask(call, RequestCode.CONSUMER_SEND_MSG_BACK, ext, stored)

    def _valid(self, group: str, topic: str, told: str) -> Handle:
        """Return what a handle says; refuse one that does not count here.

        A push consumer's counts for as long as its message is kept out for it.
        """
        handle, now_ms = parse_handle(told), self.clock.epoch_ms()
        receipt = handle.receipt
        if receipt.broker_name != self.broker_name:
            raise CallError(
                SdkCode.BAD_REQUEST,
                f"the message is on {receipt.broker_name:.64}, this is {self.broker_name}",
            )
        queue = (group, topic, receipt.queue_id)
        if handle.due_ms < now_ms and not self._out.is_kept(
            queue, receipt.queue_offset, receipt.pop_time, now_ms
        ):
            raise CallError(SdkCode.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
        return handle

    def _naming(self, group: str, topic: str, handle: Handle) -> dict[str, str]:
        receipt = handle.receipt
        return {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(receipt.queue_id),
            "extraInfo": str(receipt),
            "offset": str(receipt.queue_offset),
        }


def queue_of(topic: str, lite: str) -> str:
    """Return where a message is out: of its lite topic, if it is of one."""
    return lite_queue(topic, lite_topic_name(lite)) if lite else topic


def _is_void(outcome: AskedResult) -> bool:
    """Whether the message is acknowledged, or was given to somebody again."""
    return outcome.code == ResponseCode.NO_MESSAGE


class Acks:
    """The entries of one request, until each has its answer."""

    def __init__(self, call: Call, named: list[tuple[str, str]]) -> None:
        self._call, self._named = call, named
        self._left = len(named)
        self._found: list[Any] = [None] * len(named)

    def taking(self, index: int) -> Callable[[CallError | None], None]:
        """Return what takes the outcome of one entry."""

        def take(error: CallError | None) -> None:
            found = status(SdkCode.OK) if error is None else status(error.code, str(error))
            self._found[index] = found
            self._left -= 1
            if not self._left:
                self._answer()

        return take

    def _answer(self) -> None:
        entries = [
            make("AckMessageResultEntry", message_id=message_id, receipt_handle=handle, status=one)
            for (message_id, handle), one in zip(self._named, self._found, strict=True)
        ]
        self._call.answer(status=common(self._found), entries=entries)
