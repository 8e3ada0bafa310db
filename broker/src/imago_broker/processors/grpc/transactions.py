"""EndTransaction: a half message is found by its id, whoever took it and however long ago."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from imago_broker.model import names
from imago_broker.processors.grpc.calls import CallError
from imago_broker.processors.grpc.checks import topic_name
from imago_broker.service.puts.copies import read_copy
from imago_wire.grpc.codes import SdkCode
from imago_wire.grpc.messages import SERVER_CHECK, Resolution
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from imago_broker.ports import Clock
    from imago_broker.processors.grpc.asking import AskedResult, TableAsker
    from imago_broker.processors.grpc.calls import Call
    from imago_broker.service.puts.copies import StoredCopy
    from imago_log.store import MessageStore

HALVES_MAX = 32
"""A half message that its producer sent again is there more than once."""
_COMMIT, _ROLLBACK = "8", "12"
_OUTCOMES: Final = {Resolution.COMMIT: _COMMIT, Resolution.ROLLBACK: _ROLLBACK}


class TransactionCalls:
    """How transactions end."""

    def __init__(self, asker: TableAsker, store: MessageStore, clock: Clock) -> None:
        self._asker, self._store, self._clock = asker, store, clock

    def end(self, call: Call, request: Any) -> None:
        """EndTransaction; a client that does not know yet is asked again later."""
        topic = topic_name(request.topic)
        if not request.transaction_id.strip():
            raise CallError(SdkCode.INVALID_TRANSACTION_ID, "the transaction has no id")
        outcome = _OUTCOMES.get(request.resolution)
        if outcome is None:
            call.answer()
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
            "msgId": request.transaction_id,
            "transactionId": request.transaction_id,
        }

        def done(found: AskedResult) -> None:
            if found.done:
                call.answer()
            else:
                call.refuse(found.error())

        self._asker.ask(call, RequestCode.END_TRANSACTION, ext, done)

    def _half(self, topic: str, transaction_id: str) -> StoredCopy | None:
        """Return the newest half message of an id."""
        now_ms = max(self._clock.epoch_ms(), self._store.newest_ms)
        found = self._store.find_key(names.HALF_TOPIC, transaction_id, 0, now_ms + 1, HALVES_MAX)
        for record in reversed(found):
            copy = read_copy(record)
            named = (copy.text(b"REAL_TOPIC"), copy.text(b"UNIQ_KEY"))
            if named == (topic, transaction_id):
                return copy
        return None
