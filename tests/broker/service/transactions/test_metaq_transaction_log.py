"""What a leader finds in the log of MetaQ's transactions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from imago_broker.core.transactions.metaq_transaction import MetaqOutcome
from imago_broker.service.metaq_transactions import transaction_log as metaq_transaction_log


def test_a_qualifier_may_have_colons() -> None:
    found = metaq_transaction_log.restored("XID:1:aa:bb:q:r", 0, number=1, offset=0, count=1)
    assert found.owner == "q:r"


@pytest.mark.parametrize(("there", "first"), [([1, 3], None), ([1], 1), ([2, 3], None), ([], 0)])
def test_what_follows_a_message_that_was_left_out_is_not_put_again(
    there: list[int], first: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [SimpleNamespace(metaq_id=each) for each in (1, 2, 3)]
    views = [SimpleNamespace(metaq_id=each) for each in there]
    records = iter([SimpleNamespace(view=view, end=200 + at) for at, view in enumerate(views)])
    monkeypatch.setattr(metaq_transaction_log, "read_messages", lambda *_: messages)
    monkeypatch.setattr(metaq_transaction_log, "record_from", lambda *_: next(records, None))
    store = SimpleNamespace(damaged_ranges=list)
    mark = metaq_transaction_log.OutcomeMark(MetaqOutcome.COMMITTED, 1, 0, 3, "k")
    place = SimpleNamespace(physical_offset=0, size=100)
    prepared = SimpleNamespace(offset=0, count=3)
    missing: Any = metaq_transaction_log._missing(*cast("Any", (store, place, mark, [prepared])))
    assert (missing and missing[0].first) == first
