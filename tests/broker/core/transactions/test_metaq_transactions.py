"""What is kept of MetaQ's transactions once they have ended."""

from __future__ import annotations

import gc

from imago_broker.core.transactions import metaq_transactions
from imago_broker.core.transactions.metaq_transaction import (
    MetaqOutcome,
    MetaqTransaction,
    TransactionLimits,
    TransactionMessage,
    TransactionPhase,
)
from imago_broker.core.transactions.metaq_transactions import OpenTransactions

HOUR_S = 3600
LIMITS = TransactionLimits(
    transactions_max=3,
    per_owner_max=3,
    per_user_max=3,
    messages_max=9,
    bytes_max=1 << 20,
    total_bytes_max=1 << 20,
    user_bytes_max=1 << 20,
    timeout_ms_max=24 * HOUR_S * 1000,
)


def begun(
    opened: OpenTransactions, number: int, timeout_s: int, session: object = 0
) -> MetaqTransaction:
    made = opened.begin(
        f"TX:s:{number}", "s", session, user="address a", now_ms=0, epoch_ms=0, timeout_s=timeout_s
    )
    opened.add(made, TransactionMessage("T", 0, 0, bytes(1000), number, 0, b""))
    return made


def test_those_that_have_ended_leave_nothing_behind_an_older_one_that_is_open() -> None:
    opened = OpenTransactions(lambda: LIMITS)
    oldest = begun(opened, 0, 1)
    for number in range(1, 1001):
        made = begun(opened, number, HOUR_S, session=number)
        outcome = MetaqOutcome.COMMITTED if number % 2 else MetaqOutcome.ROLLED_BACK
        opened.end(made, outcome)
        opened.lost(number)
        assert opened.next_expiry_ms == 1000
        del made
    gc.collect()
    assert [each for each in gc.get_objects() if type(each) is MetaqTransaction] == [oldest]
    assert len(opened._expiries) <= metaq_transactions._SLACK + 2
    assert (opened.count, opened.total_bytes) == (1, oldest.size)
    begun(opened, 2000, HOUR_S)
    begun(opened, 2001, HOUR_S)  # the limit counts open ones alone
    assert opened.expire(1000) == 1
    assert opened.next_expiry_ms == HOUR_S * 1000
    assert opened.expire(HOUR_S * 1000) == 2
    assert opened.count == 0
    assert opened.next_expiry_ms is None


def test_time_of_one_that_is_being_prepared_is_over_only_where_that_fails() -> None:
    opened = OpenTransactions(lambda: LIMITS)
    for number in (1, 2):
        begun(opened, number, 1).phase = TransactionPhase.PREPARING
    assert opened.expire(1000) == 0
    first, second = list(opened)
    opened.prepared(first, 0, 10)
    opened.not_prepared(second, 1000)
    assert (first.gone, second.gone, opened.next_expiry_ms) == (False, True, None)
