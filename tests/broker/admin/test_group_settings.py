"""Groups over the admin interface: names, resets, limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_testing.peers.admin import put

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.admin import Admin


async def test_a_wrong_group_name_never_reaches_the_log(admin: Admin) -> None:
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1})
    status, error = await admin.call(
        "POST", "/admin/v1/groups/a@b/reset", {"topic": "orders", "to": "latest"}
    )
    assert (status, error["error"]) == (400, "bad_request")


async def test_a_reset_outlives_the_commit_of_a_live_consumer(admin: Admin, broker: Broker) -> None:
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1})
    put(broker, "orders", b"a", b"b")
    await admin.call(
        "POST",
        "/admin/v1/groups/billing/reset",
        {"topic": "orders", "to": "earliest", "create": True},
    )
    assert broker.rocketmq.clients.resets.pending("billing", "orders", 0)
    assert broker.offsets.query("billing", "orders", 0) == 0


async def test_a_group_above_the_limit_is_refused(admin: Admin, broker: Broker) -> None:
    broker.groups.groups_max = len(broker.groups.all())
    status, body = await admin.call("PUT", "/admin/v1/groups/one-more", {})
    assert (status, body["error"]) == (400, "bad_request")
    assert "which is the limit" in body["message"]
