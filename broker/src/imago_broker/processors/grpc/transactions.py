"""EndTransaction: a half message is found by what its producer was told, or by its id.

The id of a transaction says where its half message is. So nobody else's message of the same id is
in its way, however many there are; the id alone is looked for where a client has no place, or
another member led when it got it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from imago_broker.model import names
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.checks import topic_name
from imago_broker.service.puts.copies import TooManyCopiesError, named_copies, read_copy
from imago_wire.errors import ProtocolError
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import SERVER_CHECK, Resolution
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from imago_broker.ports import Clock
    from imago_broker.processors.grpc.asking import AskedResult, TableAsker
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.service.puts.copies import StoredCopy
    from imago_broker.service.puts.messages import MessageService

_PLACED: Final = re.compile(r"(.+)@([0-9]{1,18})", re.DOTALL)
_COMMIT, _ROLLBACK = "8", "12"
_OUTCOMES: Final = {Resolution.COMMIT: _COMMIT, Resolution.ROLLBACK: _ROLLBACK}


def transaction_id(message_id: str, place: int) -> str:
    """Return the id of a transaction whose half message is at a log offset."""
    return f"{message_id}@{place}"


def _parsed(told: str) -> tuple[str, int]:
    """Return a message's id and its log offset; -1: it says none."""
    found = _PLACED.fullmatch(told)
    return (told, -1) if found is None else (found[1], int(found[2]))


class TransactionCalls:
    """How transactions end."""

    def __init__(self, asker: TableAsker, messages: MessageService, clock: Clock) -> None:
        self._asker, self._messages, self._clock = asker, messages, clock
        self._store = messages.store

    def end(self, call: Call, request: Any) -> None:
        """EndTransaction; a client that does not know yet is asked again later."""
        topic = topic_name(request.topic)
        if not request.transaction_id.strip():
            raise CallError(SdkCode.INVALID_TRANSACTION_ID, "the transaction has no id")
        outcome = _OUTCOMES.get(request.resolution)
        if outcome is None:
            call.answer()
            return
        if self._comes(_parsed(request.transaction_id)[1]):
            self._wait(call, request)
            return
        half = self._half(topic, request.transaction_id)
        if half is None:
            raise CallError(
                SdkCode.INTERNAL_SERVER_ERROR,
                "there is no half message of this transaction",
            )
        checked = request.source == SERVER_CHECK
        ext = {
            "topic": topic,
            "producerGroup": half.text(b"PGROUP"),
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": outcome,
            "fromTransactionCheck": "true" if checked else "false",
            "msgId": half.text(b"UNIQ_KEY"),
            "transactionId": half.text(b"UNIQ_KEY"),
        }

        def done(found: AskedResult) -> None:
            if found.done:
                call.answer()
            else:
                call.refuse(found.error())

        self._asker.ask(call, RequestCode.END_TRANSACTION, ext, done)

    def _comes(self, place: int) -> bool:
        """Whether what is at a log offset will be readable: its send did not wait for members."""
        store = self._store
        hidden = store.high_watermark <= place < store.log_end
        return hidden and self._messages.admission() is None

    def _wait(self, call: Call, request: Any) -> None:
        def visible() -> None:
            if not call.stream.is_open:
                return
            try:
                self.end(call, request)
            except CallError as error:
                call.refuse(error)

        place = _parsed(request.transaction_id)[1]
        self._messages.when_visible(place + 1, visible)

    def _half(self, topic: str, told: str) -> StoredCopy | None:
        """Return the half message of a transaction's id; of those of a message's id the newest."""
        message_id, place = _parsed(told)
        wanted = (names.HALF_TOPIC, topic, message_id)
        here = self._at(place)
        if here is not None and _named(here) == wanted:
            return here
        end_ms = max(self._clock.epoch_ms(), self._store.newest_ms) + 1
        try:
            copies = named_copies(self._store, names.HALF_TOPIC, message_id, end_ms)
            return next((copy for copy in copies if _named(copy) == wanted), None)
        except TooManyCopiesError:
            raise CallError(
                SdkCode.INTERNAL_SERVER_ERROR,
                f"too many half messages have the id {message_id}: end it by the transaction's id "
                "that its send was answered with",
            ) from None

    def _at(self, place: int) -> StoredCopy | None:
        record = self._store.record_at(place) if place >= 0 else None
        try:
            return None if record is None else read_copy(record)
        except ProtocolError:
            return None


def _named(copy: StoredCopy) -> tuple[str, str, str]:
    return copy.topic, copy.text(b"REAL_TOPIC"), copy.text(b"UNIQ_KEY")
