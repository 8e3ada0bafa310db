"""``transaction`` and puts inside one: from commands to transactions, and to answers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from imago_broker.core.transactions.metaq_transaction import (
    STAGED_PREFIX,
    MetaqOutcome,
    MetaqTransactionError,
    TransactionProblem,
)
from imago_broker.processors.metaq import texts
from imago_broker.processors.metaq.asks import ASKS
from imago_broker.service.puts.put_status import PutStatus
from imago_wire.text.commands import Transaction, TransactionType
from imago_wire.text.encoder import result
from imago_wire.text.status import Status
from imago_wire.text.transaction_key import LocalTransactionKey, parse_transaction_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.metrics import MetaqCounters
    from imago_broker.processors.metaq.peer import Peer
    from imago_broker.service.metaq_transactions.service import MetaqTransactions
    from imago_broker.service.serving_rules import ServingRules
    from imago_broker.service.topics.topic_handles import TopicHandle
    from imago_wire.text.items import PutItem

logger = logging.getLogger(__name__)

XA_OK, XA_RDONLY = "0", "3"
XAER_RMERR, XAER_NOTA, XAER_PROTO, XA_RBOTHER = -3, -4, -6, 104
RECOVERED_BYTES_MAX = 1 << 20
"""Of one answer to RECOVER; who has ended these asks again."""
PARTITION_ANY = -1
SESSION_ID_MISSING: Final = "a transaction needs a key: TX:… or XID:…"

_DECIDED = {
    MetaqOutcome.HEURISTICALLY_COMMITTED: (7, "committed"),
    MetaqOutcome.HEURISTICALLY_ROLLED_BACK: (6, "rolled back"),
    MetaqOutcome.HEURISTICALLY_COMPLETED: (8, "completed"),
}
"""Of XA, and the original's words."""


class MetaqTransactionProcessor:
    """Serves ``transaction``, and puts that have a transaction's key."""

    def __init__(
        self,
        *,
        transactions: MetaqTransactions,
        settings: LiveSettings[MetaqSection],
        serving_rules: ServingRules,
        counters: MetaqCounters,
    ) -> None:
        self._transactions = transactions
        self._settings = settings
        self._serving_rules = serving_rules
        self._counters = counters
        self._served: dict[TransactionType, Callable[[Peer, Transaction], None]] = {
            TransactionType.BEGIN: self._begin,
            TransactionType.PREPARE: self._prepare,
            TransactionType.COMMIT_ONE_PHASE: self._commit,
            TransactionType.COMMIT_TWO_PHASE: self._commit,
            TransactionType.ROLLBACK: self._roll_back,
            TransactionType.RECOVER: self._recover,
            TransactionType.FORGET: self._forget,
        }

    def transaction(self, peer: Peer, command: Transaction) -> bool:
        """Serve one command; False: it has to wait until it is known what is prepared."""
        if command.type is TransactionType.END:
            return True  # has no answer, and a client that got one would find no call to match it
        refusal = self._serving_rules.refusal(ASKS[Transaction])
        if command.key.startswith(STAGED_PREFIX):
            refusal = "transactions of this format are sinks' own"
        if refusal is not None:
            self.reply(peer, command, Status.INTERNAL_SERVER_ERROR, refusal)
            return True
        if not self._transactions.ready:
            peer.hold_back()
            self._transactions.when_ready(peer.go_on)
            return False
        try:
            self._served[command.type](peer, command)
        except MetaqTransactionError as error:
            self.answer(peer, command, error, "")
        except Exception as error:
            logger.exception("transaction_failed key=%.80s", command.key)
            self.reply(peer, command, Status.INTERNAL_SERVER_ERROR, str(error))
        return True

    def put(self, peer: Peer, item: PutItem, accepted: Callable[[str], TopicHandle]) -> bytes:
        """Take a message into its transaction; return the answer.

        `accepted` finds a topic that may be used, or raises MetaqTransactionError.
        """
        key, topic, partition = item.transaction or "", item.topic, item.partition
        error = Status.INTERNAL_SERVER_ERROR
        refusal = self._serving_rules.refusal(ASKS[Transaction])
        if refusal is not None:
            return result(error, refusal, item.opaque)
        try:
            transaction = self._transactions.open.get(key, peer)
            if partition == PARTITION_ANY:
                return result(error, texts.partition_not_given(partition), item.opaque)
            handle = accepted(topic)
            if not 0 <= partition < handle.partitions:
                return result(error, texts.wrong_partition(partition), item.opaque)
            size_max = self._settings.current.message_bytes_max
            if len(item.body) > size_max:
                text = f"The message has {len(item.body)} bytes, more than the limit of {size_max}"
                return result(error, text, item.opaque)
            message_id = self._transactions.put(
                transaction,
                topic=topic,
                partition=partition,
                flag=item.flag,
                body=item.body,
                born_host=peer.born_host,
            )
        except MetaqTransactionError as problem:
            return result(error, _put_text(key, problem), item.opaque)
        self._counters.cmd_put += 1
        return result(Status.SUCCESS, f"{message_id} {partition} -1", item.opaque)

    # Commands

    def _begin(self, peer: Peer, command: Transaction) -> None:
        key = parse_transaction_key(command.key)
        if key is None:
            self.reply(peer, command, Status.INTERNAL_SERVER_ERROR, SESSION_ID_MISSING)
            return
        self._counters.tx_begin += 1
        local = isinstance(key, LocalTransactionKey)
        if not local:
            self._counters.tx_xa_begin += 1
        owner = key.session_id if isinstance(key, LocalTransactionKey) else key.qualifier
        peer.when_lost(self._transactions.lost)
        named = peer.certificate_user
        user = f"user {named}" if named else f"address {peer.address}"
        self._transactions.begin(command.key, owner, peer, command.timeout_s or 0, user=user)
        self.reply(peer, command, Status.SUCCESS, "")

    def _prepare(self, peer: Peer, command: Transaction) -> None:
        owed = _Owed(self, peer, command, XA_OK)
        with owed:
            if not self._transactions.prepare(command.key, peer, owed.told):
                owed.text = XA_RDONLY
                owed.told(PutStatus.OK)

    def _commit(self, peer: Peer, command: Transaction) -> None:
        self._counters.tx_commit += 1
        one_phase = command.type is TransactionType.COMMIT_ONE_PHASE
        with _Owed(self, peer, command) as owed:
            self._transactions.commit(command.key, peer, one_phase=one_phase, told=owed.told)

    def _roll_back(self, peer: Peer, command: Transaction) -> None:
        self._counters.tx_rollback += 1
        with _Owed(self, peer, command) as owed:
            self._transactions.roll_back(command.key, peer, owed.told)

    def _recover(self, peer: Peer, command: Transaction) -> None:
        keys, size = [], 0
        for key in self._transactions.open.recoverable(command.qualifier):
            size += len(key) + 2
            if size > RECOVERED_BYTES_MAX:
                break
            keys.append(key)
        self.reply(peer, command, Status.SUCCESS, "\r\n".join(keys))

    def _forget(self, peer: Peer, command: Transaction) -> None:
        if not command.key.startswith("XID:"):
            text = texts.xa_error(XAER_NOTA, texts.no_xid(command.key))
            self.reply(peer, command, Status.INTERNAL_SERVER_ERROR, text)
            return
        with _Owed(self, peer, command) as owed:
            self._transactions.forget(command.key, owed.told)

    # Answers

    def answer(
        self, peer: Peer, command: Transaction, how: PutStatus | MetaqTransactionError, text: str
    ) -> None:
        """Answer a command when the log has it, or could not have it."""
        if isinstance(how, MetaqTransactionError):
            self.reply(peer, command, Status.INTERNAL_SERVER_ERROR, _text(command.key, how))
        elif how is PutStatus.OK:
            self.reply(peer, command, Status.SUCCESS, text)
        elif how in (PutStatus.BUSY, PutStatus.STOPPING):
            self.reply(peer, command, Status.SERVICE_UNAVAILABLE, texts.BUSY)
        else:
            refusal = self._serving_rules.refusal(ASKS[Transaction]) or _STATUS_TEXTS[how]
            self.reply(peer, command, Status.INTERNAL_SERVER_ERROR, refusal)

    def reply(self, peer: Peer, command: Transaction, status: int, text: str) -> None:
        """Answer a command now."""
        peer.reply(result(status, text, command.opaque))


class _Owed:
    """An answer that comes later; what is refused at once within the block is answered at once."""

    def __init__(
        self, processor: MetaqTransactionProcessor, peer: Peer, command: Transaction, text: str = ""
    ) -> None:
        self.text = text
        self._processor, self._peer, self._command = processor, peer, command

    def __enter__(self) -> _Owed:
        self._peer.puts += 1
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, MetaqTransactionError):
            self.told(error)
            return True
        if error is not None:
            self._peer.puts -= 1
        return False

    def told(self, how: PutStatus | MetaqTransactionError) -> None:
        peer = self._peer
        peer.puts -= 1
        self._processor.answer(peer, self._command, how, self.text)
        peer.flush()


_STATUS_TEXTS = {
    PutStatus.FLUSH_TIMEOUT: "The disk did not confirm in time: the transaction may have ended",
    PutStatus.SLAVE_TIMEOUT: "Slaves did not confirm in time: the transaction may have ended",
    PutStatus.SLAVE_UNAVAILABLE: "Slaves are gone: the transaction may have ended",
    PutStatus.DISK_FULL: "The disk is full",
    PutStatus.PAIR_AWAY: texts.SLAVE_AWAY,
    PutStatus.NOT_WRITABLE: "the master of the shard takes no messages at the moment",
    PutStatus.TOO_FEW_IN_SYNC: "Too few members of the shard are in sync",
    PutStatus.TOO_LARGE: "A message does not fit into a file of the log",
}


def _text(key: str, error: MetaqTransactionError) -> str:
    """Return the answer to a command: XA's have a code in them."""
    xa = key.startswith("XID:")
    code, text = XAER_RMERR, error.detail
    match error.problem:
        case TransactionProblem.UNKNOWN:
            code, text = XAER_NOTA, texts.transaction_unknown(key)
        case TransactionProblem.LOCAL:
            return texts.xa_error(XAER_RMERR, texts.LOCAL_NOT_PREPARED)
        case TransactionProblem.PREPARED:
            code, text = XAER_PROTO, texts.PREPARED_ALREADY
        case TransactionProblem.NOT_PREPARED:
            code, text = XAER_PROTO, texts.NOT_PREPARED
        case TransactionProblem.HEURISTIC if error.outcome is not None:
            code, how = _DECIDED[error.outcome]
            text = texts.transaction_decided(key, how)
        case TransactionProblem.LOST:
            code, text = XA_RBOTHER, f"{texts.COMMIT_FAILED} {error.detail}"
        case _:
            pass
    return texts.xa_error(code, text) if xa else text


def _put_text(key: str, error: MetaqTransactionError) -> str:
    """Return the answer to a put in a transaction."""
    match error.problem:
        case TransactionProblem.UNKNOWN:
            return texts.transaction_unknown(key)
        case TransactionProblem.PREPARED:
            return texts.xa_error(XAER_PROTO, texts.PUT_PREPARED)
        case TransactionProblem.HEURISTIC if error.outcome is not None:
            return texts.transaction_decided(key, _DECIDED[error.outcome][1])
        case _:
            return error.detail
