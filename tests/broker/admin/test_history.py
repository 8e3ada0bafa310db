"""The figures of the last day, as the admin interface answers them for a whole cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.current import history
from imago_broker.core.figures.day_history import SLOT_MS
from imago_broker.service.figures import day_recorder
from imago_testing.clusters.shard_pair import Pair, make, put

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin


async def shown(admin: Admin, query: str) -> dict[str, Any]:
    status, body = await admin.call("GET", f"/admin/v1/history{query}")
    assert status == 200, body
    return dict(body)


def look(admin: Admin, monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    """Have a broker look at its figures as if it were later."""
    usage = admin.broker.rocketmq.delivery.usage
    clock, now_ms = admin.broker.clock, type(admin.broker.clock).epoch_ms
    monkeypatch.setattr(clock, "epoch_ms", lambda: now_ms(clock) + ahead_ms, raising=False)
    usage._look_now()


async def test_the_figures_of_all_brokers_are_one_answer(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_recorder, "PIECE", 1)
    for number, admin in enumerate((pair.one, pair.two)):
        make(admin, "orders")
        look(admin, monkeypatch, 0)
        for _ in range(number + 1):
            await put(admin, "orders")
        admin.broker.offsets.commit("billing", "orders", 0, 0)
        admin.broker.offsets.flush()
        look(admin, monkeypatch, SLOT_MS)
    body = await shown(pair.one, "?seconds=60")
    assert (body["stepMs"], body["missing"]) == (SLOT_MS, [])
    assert [item["shard"] for item in body["items"]] == ["shard-0", "shard-1"]
    for number, item in enumerate(body["items"]):
        series = item["series"]
        assert {len(values) for values in series.values()} == {6}
        grown = sum(filter(None, series["messagesIn"])) * SLOT_MS / 1000
        assert grown == pytest.approx(number + 1, rel=0.5)
    for query, name in (("?topic=orders", "messagesIn"), ("?group=billing", "lag")):
        items = (await shown(pair.two, query))["items"]
        assert [max(filter(None, item["series"][name])) > 0 for item in items] == [True, True]
    lags = [item["series"]["lag"] for item in (await shown(pair.one, "?group=billing"))["items"]]
    assert [max(filter(None, lag)) for lag in lags] == [1, 2]
    assert (await shown(pair.one, "?topic=other"))["items"] == []


async def test_a_wrong_question_is_told(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "POINTS_MAX", 400)
    assert len((await shown(admin, "?seconds=86400&points=400"))["items"]) == 1
    for query, said in (
        ("?seconds=86401", "seconds=86401 is out of range"),
        ("?points=0", "points=0 is out of range"),
        ("?points=401", "points=401 is out of range"),
        ("?points=many", "points='many' is not a whole number"),
    ):
        status, body = await admin.call("GET", f"/admin/v1/history{query}")
        assert status == 400
        assert said in body["message"], query


async def test_what_is_deleted_has_no_history(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(admin, "orders")
    await put(admin, "orders")
    look(admin, monkeypatch, 0)
    look(admin, monkeypatch, SLOT_MS)
    await put(admin, "orders")
    look(admin, monkeypatch, 2 * SLOT_MS)
    assert len((await shown(admin, "?topic=orders"))["items"]) == 1
    admin.broker.topics.delete("orders")
    assert (await shown(admin, "?topic=orders"))["items"] == []
