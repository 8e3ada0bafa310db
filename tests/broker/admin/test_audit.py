"""Who changed what, of all brokers, asked of one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.admin.calls import audit_tail
from imago_broker.admin.calls.audit_tail import AuditTail

if TYPE_CHECKING:
    import pytest

    from imago_testing.clusters.shard_pair import Pair


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("imago.audit", logging.INFO, __file__, 1, text, None, None)


def test_the_last_lines_are_kept_cut_and_the_newest_come_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_tail, "LINES_MAX", 3)
    monkeypatch.setattr(audit_tail, "CHARS_MAX", 5)
    tail = AuditTail()
    for number in range(5):
        tail.emit(record(f"line {number} of many"[number:]))
    assert [line["text"] for line in tail.newest(9)] == [" 4 of", "e 3 o", "ne 2 "]
    assert len(tail.newest(2)) == 2


async def test_every_broker_tells_what_was_changed_at_any(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "imago.audit")
    for admin, name in ((pair.one, "orders"), (pair.two, "bills")):
        status, _ = await admin.call("PUT", f"/admin/v1/topics/{name}", {"queues": 1})
        assert status == 201
    status, body = await pair.one.call("GET", "/admin/v1/audit")
    assert (status, body["missing"]) == (200, [])
    texts = [line["text"] for line in body["items"]]
    assert {line["shard"] for line in body["items"]} == {"shard-0", "shard-1"}
    for name in ("orders", "bills"):
        assert any(text.startswith(f"PUT /admin/v1/topics/{name} by ") for text in texts), texts
    assert [line["at"] for line in body["items"]] == sorted(
        (line["at"] for line in body["items"]), reverse=True
    )
    status, body = await pair.two.call("GET", "/admin/v1/audit?limit=1")
    assert len(body["items"]) == 1
