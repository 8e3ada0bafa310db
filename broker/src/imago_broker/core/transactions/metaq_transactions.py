"""Transactions of MetaQ's clients, local and XA, and what may be done with each when. Pure.

A transaction is open from its BEGIN on: its messages are nowhere but in memory, and it ends when
its time is over or when all connections that took part in it are gone. An XA transaction that was
prepared stands in the log; it stays until somebody decides. A local one belongs to its connection:
nobody else sees it. Times are arguments, in milliseconds of any one clock.

==========  =========================  ==========================  ==========================
phase       PREPARE                    COMMIT                      ROLLBACK
==========  =========================  ==========================  ==========================
open        write it down; without     write the messages down;    forget it
            messages it is over        not in two phases
preparing   refused                    as soon as it is prepared   as soon as it is prepared
prepared    refused                    write the messages down     write down that it is over
ending      refused                    with the one that is being  as soon as that is written
                                       written
==========  =========================  ==========================  ==========================

What is being written down is written down once, however often it is asked for; and for the newest
ones that have ended it is known how, so that who repeats himself is answered as the first time.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import TYPE_CHECKING

from imago_broker.core.transactions.metaq_transaction import (
    STAGED_PREFIX,
    MetaqOutcome,
    MetaqTransaction,
    MetaqTransactionError,
    TransactionPhase,
    TransactionProblem,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_broker.core.transactions.metaq_transaction import (
        TransactionLimits,
        TransactionMessage,
    )

REMEMBERED_MAX = 10_000
"""Ended transactions whose outcome is remembered."""
REMEMBERED_OF_SESSION_MAX = 16
"""The same, of local ones of one connection."""
_SLACK = 64
"""Entries that the heap of ends may hold beyond twice of what counts."""
KEY_SIZE_MAX = 1024
"""Characters of a transaction's name."""


class _SessionState:
    """What one connection takes part in."""

    __slots__ = ("ended", "local", "xa")

    def __init__(self) -> None:
        self.local: dict[str, MetaqTransaction] = {}
        self.xa: set[MetaqTransaction] = set()
        self.ended: dict[str, MetaqOutcome] = {}


class OpenTransactions:
    """All transactions of one leader that have not ended, and what is remembered of others."""

    def __init__(self, limits: Callable[[], TransactionLimits]) -> None:
        self._limits = limits
        self._xa: dict[str, MetaqTransaction] = {}
        self._sessions: dict[object, _SessionState] = {}
        self._owners: dict[str, int] = {}
        self._users: dict[str, int] = {}
        self._bytes_of_users: dict[str, int] = {}
        self._ended: OrderedDict[str, MetaqOutcome] = OrderedDict()
        self._timed: dict[int, MetaqTransaction] = {}
        """Those whose time ends, by their numbers."""
        self._expiries: list[tuple[int, int]] = []
        """A heap of when that is, and of numbers; may name some that have none any more."""
        self._begun = 0
        self.count = 0
        self.total_bytes = 0
        """Of messages that are in memory alone."""
        self.heuristic: dict[str, MetaqTransaction] = {}
        """Those that a person has decided about; kept until their producer forgets them. They have
        a limit of their own, as large as that of the others."""

    def __iter__(self) -> Iterator[MetaqTransaction]:
        yield from self._xa.values()
        for state in self._sessions.values():
            yield from state.local.values()

    # Beginning

    def begin(
        self,
        key: str,
        owner: str,
        session: object,
        *,
        user: str,
        now_ms: int,
        epoch_ms: int,
        timeout_s: int,
    ) -> MetaqTransaction:
        """Begin one, or take part in one that was begun. A timeout of 0 or less is none.

        `user` is of whose share it is: `user NAME`, or `address ADDRESS`.
        """
        xa = key.startswith("XID:")
        self._refuse_decided(key)
        state = self._sessions.get(session)
        known = self._xa.get(key) if xa else state.local.get(key) if state is not None else None
        if known is None:
            known = self._begin(MetaqTransaction(key, owner, xa, epoch_ms, user))
            limits = self._limits()
            if timeout_s > 0:
                known.expires_ms = now_ms + min(timeout_s * 1000, limits.timeout_ms_max)
                self._timed[known.begun] = known
                heapq.heappush(self._expiries, (known.expires_ms, known.begun))
        if state is None:
            state = self._sessions[session] = _SessionState()
        known.sessions.add(session)
        if xa:
            state.xa.add(known)
            self._xa[key] = known
            self._ended.pop(key, None)
        else:
            state.local[key] = known
            state.ended.pop(key, None)
        return known

    def _begin(self, made: MetaqTransaction) -> MetaqTransaction:
        limits, owner, user = self._limits(), made.owner, made.user
        if len(made.key) > KEY_SIZE_MAX:
            raise _limit(f"the transaction's name has {len(made.key)} characters", KEY_SIZE_MAX)
        if self.count >= limits.transactions_max:
            raise _limit(
                f"{self.count} transactions of this broker are open",
                limits.transactions_max,
                "metaq.transactions_max",
            )
        of_owner = self._owners.get(owner, 0)
        if of_owner >= limits.per_owner_max:
            raise _limit(
                f"{of_owner} transactions of {owner} are open",
                limits.per_owner_max,
                "metaq.transactions_per_name_max",
            )
        of_user = self._users.get(user, 0)
        if of_user >= limits.per_user_max:
            raise _limit(
                f"{of_user} transactions of {user} are open",
                limits.per_user_max,
                "metaq.transactions_per_user_max",
            )
        self._begun += 1
        made.begun = self._begun
        self._count(made, 1)
        return made

    def restore(self, transaction: MetaqTransaction) -> None:
        """Take over a prepared one, or one that a person decided about, from the log."""
        if transaction.outcome is not None:
            self.heuristic[transaction.key] = transaction
            return
        transaction.phase = TransactionPhase.PREPARED
        self._xa[transaction.key] = transaction
        self._count(transaction, 1)

    # Looking up

    def get(self, key: str, session: object) -> MetaqTransaction:
        """Return one that has not ended, and note that the connection takes part in it."""
        state = self._sessions.get(session)
        if not key.startswith("XID:"):
            found = state.local.get(key) if state is not None else None
        else:
            self._refuse_decided(key)
            found = self._xa.get(key)
            if found is not None and session not in found.sessions:
                if state is None:
                    state = self._sessions[session] = _SessionState()
                state.xa.add(found)
                found.sessions.add(session)
        if found is None:
            raise MetaqTransactionError(TransactionProblem.UNKNOWN)
        return found

    def find(self, key: str, session: object = None) -> MetaqTransaction | None:
        """Return one that has not ended, as a connection, or a person who decides, may mean it."""
        if key.startswith("XID:"):
            return self._xa.get(key)
        state = self._sessions.get(session)
        return None if state is None else state.local.get(key)

    def outcome_of(self, key: str, session: object) -> MetaqOutcome | None:
        """Return how one ended, while that is remembered."""
        if key.startswith("XID:"):
            return self._ended.get(key)
        state = self._sessions.get(session)
        return None if state is None else state.ended.get(key)

    def recoverable(self, qualifier: str | None) -> list[str]:
        """Return the prepared ones and those that a person decided about, the oldest first."""
        found = [each for each in self._xa.values() if each.offset >= 0]
        found = [each for each in found if not each.key.startswith(STAGED_PREFIX)]
        found += self.heuristic.values()
        found.sort(key=lambda each: each.number)
        return [each.key for each in found if not qualifier or each.owner == qualifier]

    # Messages

    def check_room(self, transaction: MetaqTransaction, cost: int) -> None:
        """Refuse a message where there is no room for it, or where it comes too late."""
        if transaction.phase is not TransactionPhase.OPEN:
            raise MetaqTransactionError(TransactionProblem.PREPARED)
        limits = self._limits()
        count = len(transaction.messages)
        if count >= limits.messages_max:
            raise _limit(
                f"the transaction has {count} messages",
                limits.messages_max,
                "metaq.transaction_messages_max",
            )
        if transaction.size + cost > limits.bytes_max:
            raise _limit(
                f"the transaction would have {transaction.size + cost} bytes",
                limits.bytes_max,
                "metaq.transaction_bytes_max",
            )
        if self.total_bytes + cost > limits.total_bytes_max:
            raise _limit(
                f"open transactions would have {self.total_bytes + cost} bytes",
                limits.total_bytes_max,
                "metaq.transactions_bytes_max",
            )
        of_user = self._bytes_of_users.get(transaction.user, 0) + cost
        if of_user > limits.user_bytes_max:
            raise _limit(
                f"open transactions of {transaction.user} would have {of_user} bytes",
                limits.user_bytes_max,
                "metaq.transactions_bytes_per_user_max",
            )

    def add(self, transaction: MetaqTransaction, message: TransactionMessage) -> None:
        """Take a message for which there is room."""
        transaction.messages.append(message)
        transaction.topics.add(message.topic)
        transaction.count += 1
        transaction.size += message.cost
        self.total_bytes += message.cost
        _change(self._bytes_of_users, transaction.user, message.cost)

    # Phases

    def prepared(self, transaction: MetaqTransaction, offset: int, log_end: int) -> None:
        """Note that the log has it: it has no time any more, and no connection."""
        transaction.phase = TransactionPhase.PREPARED
        transaction.number = transaction.messages[0].metaq_id
        transaction.offset, transaction.log_end = offset, log_end
        transaction.expires_ms = None
        self._free(transaction)

    def not_prepared(self, transaction: MetaqTransaction, now_ms: int) -> None:
        """Note that it could not be written down: it is open as before, or over."""
        transaction.phase = TransactionPhase.OPEN
        expired = transaction.expires_ms is not None and transaction.expires_ms <= now_ms
        if expired or not transaction.sessions:
            self.drop(transaction)

    def ending(self, transaction: MetaqTransaction, outcome: MetaqOutcome) -> None:
        """Note that an outcome is being written down."""
        transaction.phase, transaction.outcome = TransactionPhase.ENDING, outcome

    def not_ended(self, transaction: MetaqTransaction) -> None:
        """Note that it could not be: a prepared one waits as before, another is over."""
        transaction.outcome = None
        if transaction.offset < 0:
            self.drop(transaction)
        else:
            transaction.phase = TransactionPhase.PREPARED

    def end(self, transaction: MetaqTransaction, outcome: MetaqOutcome) -> None:
        """Note how it has ended, for good."""
        self.drop(transaction)
        if outcome.heuristic:
            transaction.outcome = outcome
            self.heuristic[transaction.key] = transaction
        else:
            self.remember(transaction, outcome)

    def remember(self, transaction: MetaqTransaction, outcome: MetaqOutcome) -> None:
        """Keep in mind how one ended, for who asks for the same again."""
        if transaction.xa:
            self.remember_key(transaction.key, outcome)
            return
        for session in transaction.sessions:
            state = self._sessions.get(session)
            if state is not None:
                state.ended[transaction.key] = outcome
                if len(state.ended) > REMEMBERED_OF_SESSION_MAX:
                    del state.ended[next(iter(state.ended))]

    def remember_key(self, key: str, outcome: MetaqOutcome) -> None:
        """Keep in mind how an XA transaction of the log ended."""
        self._ended[key] = outcome
        if len(self._ended) > REMEMBERED_MAX:
            self._ended.popitem(last=False)

    def drop(self, transaction: MetaqTransaction) -> None:
        """Forget one and its messages."""
        if transaction.gone:
            return
        transaction.gone = True
        self._free(transaction)
        self._count(transaction, -1)
        if self._xa.get(transaction.key) is transaction:
            del self._xa[transaction.key]
        for session in transaction.sessions:
            state = self._sessions.get(session)
            if state is not None:
                state.xa.discard(transaction)
                if state.local.get(transaction.key) is transaction:
                    del state.local[transaction.key]

    def lost(self, session: object) -> int:
        """A connection is gone; return how many open transactions went with it."""
        state = self._sessions.pop(session, None)
        if state is None:
            return 0
        went = 0
        for each in (*state.local.values(), *state.xa):
            each.sessions.discard(session)
            if not each.sessions and each.phase is TransactionPhase.OPEN:
                self.drop(each)
                went += 1
        return went

    @property
    def next_expiry_ms(self) -> int | None:
        """When the next one's time is over; None: none has a time."""
        expiries, timed = self._expiries, self._timed
        if len(expiries) > 2 * len(timed) + _SLACK:
            expiries[:] = [each for each in expiries if each[1] in timed]
            heapq.heapify(expiries)
        while expiries and expiries[0][1] not in timed:
            heapq.heappop(expiries)
        return expiries[0][0] if expiries else None

    def expire(self, now_ms: int) -> int:
        """Drop the open ones whose time is over; return how many."""
        count = 0
        while (due_ms := self.next_expiry_ms) is not None and due_ms <= now_ms:
            transaction = self._timed.pop(heapq.heappop(self._expiries)[1])
            if transaction.phase is TransactionPhase.OPEN:
                self.drop(transaction)
                count += 1
        return count

    def _refuse_decided(self, key: str) -> None:
        decided = self.heuristic.get(key)
        if decided is not None:
            raise MetaqTransactionError(TransactionProblem.HEURISTIC, outcome=decided.outcome)

    def _free(self, transaction: MetaqTransaction) -> None:
        self.total_bytes -= transaction.size
        _change(self._bytes_of_users, transaction.user, -transaction.size)
        transaction.size = 0
        transaction.messages = []
        self._timed.pop(transaction.begun, None)

    def _count(self, transaction: MetaqTransaction, by: int) -> None:
        self.count += by
        _change(self._owners, transaction.owner, by)
        if transaction.user:
            _change(self._users, transaction.user, by)


def _change(counts: dict[str, int], name: str, by: int) -> None:
    """Change a count; one of 0 takes no place."""
    left = counts.get(name, 0) + by
    if left:
        counts[name] = left
    else:
        counts.pop(name, None)


def _limit(what: str, most: int, setting: str = "") -> MetaqTransactionError:
    cure = f": end some, or raise {setting}" if setting else ""
    return MetaqTransactionError(TransactionProblem.LIMIT, f"{what}, at most {most} may be{cure}")


def check_decisions(kept: int, most: int) -> None:
    """Refuse one more decision of a person where too many are kept already.

    They are counted by themselves: what nobody has forgotten keeps nobody from beginning.
    """
    if kept >= most:
        raise MetaqTransactionError(
            TransactionProblem.LIMIT,
            f"{kept} decisions are kept for producers that have not asked, at most {most} may be:"
            " forget some (`imago metaq transactions forget`), or raise metaq.transactions_max",
        )
