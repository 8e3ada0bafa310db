"""MetaQ's management operations over the admin interface, and by `imago metaq`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_testing.peers.metaq import metaq_peer, put_place

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_testing.peers.admin import Admin

TOPIC = "/admin/v1/metaq/topics/orders"


@pytest.fixture
async def orders(admin: Admin) -> None:
    assert (await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 4}))[0] == 201


@pytest.mark.usefixtures("orders")
async def test_closed_partitions_refuse_puts_and_gets_until_they_are_opened(
    broker: Broker, admin: Admin
) -> None:
    async with metaq_peer(broker.metaq_port) as peer:
        put_place(await peer.put("orders", 1, b"x"))
        answer = await admin.call("POST", f"{TOPIC}/close-partitions", {"first": 1, "last": 2})
        assert answer == (200, {"topic": "orders", "closed": [1, 2]})
        assert (await peer.put("orders", 1, b"x")).startswith(b"result 403 ")
        assert (await peer.ask(b"get orders g 2 0 100 5\r\n")).startswith(b"result 403 ")
        put_place(await peer.put("orders", 3, b"x"))
        _, shown = await admin.call("GET", "/admin/v1/metaq")
        assert shown["closed"] == {"orders": [1, 2]}
        answer = await admin.call("POST", f"{TOPIC}/open-partitions", {})
        assert answer == (200, {"topic": "orders", "closed": []})
        put_place(await peer.put("orders", 1, b"x"))


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(
    "body",
    [{}, {"first": 2, "last": 1}, {"first": 0, "last": 4}, {"first": -1, "last": 0}, {"x": 1}],
)
async def test_a_range_that_the_topic_does_not_have_is_refused(
    admin: Admin, body: dict[str, int]
) -> None:
    assert (await admin.call("POST", f"{TOPIC}/close-partitions", body))[0] == 400


async def test_an_unknown_topic_is_named(admin: Admin) -> None:
    path = "/admin/v1/metaq/topics/nowhere/open-partitions"
    status, answer = await admin.call("POST", path, {})
    assert (status, answer["error"]) == (404, "topic_not_found")


@pytest.mark.usefixtures("orders")
async def test_only_closed_partitions_are_deleted(broker: Broker, admin: Admin) -> None:
    async with metaq_peer(broker.metaq_port) as peer:
        for _ in range(3):
            put_place(await peer.put("orders", 1, b"12345"))
        asked = {"first": 1, "last": 1}
        status, answer = await admin.call("POST", f"{TOPIC}/delete-partitions", asked)
        assert (status, answer["error"]) == (409, "not_closed")
        await admin.call("POST", f"{TOPIC}/close-partitions", asked)
        status, answer = await admin.call("POST", f"{TOPIC}/delete-partitions", asked)
        assert (status, answer) == (200, {"topic": "orders", "begin": {"1": 75}})
        await admin.call("POST", f"{TOPIC}/open-partitions", {})
        assert (await peer.ask(b"get orders g 1 0 100 5\r\n")).endswith(b"\r\n75")
        assert put_place(await peer.put("orders", 1, b"12345"))[2] == 75
        assert (await peer.ask(b"get orders g 1 75 100 6\r\n")).startswith(b"value 25 6\r\n")
    assert broker.store.queue_range("orders", 1) == (0, 4), "the log still has them"


@pytest.mark.usefixtures("orders")
async def test_statistics_and_configuration_are_those_of_the_protocol(
    broker: Broker, admin: Admin
) -> None:
    _, told = await admin.call("GET", "/admin/v1/metaq/stats")
    assert {"pid", "broker_id", "config_checksum"} <= {line.split()[0] for line in told["lines"]}
    _, told = await admin.call("GET", "/admin/v1/metaq/stats?item=orders")
    assert told["lines"][:2] == ["orders", "resultCode 2"]
    _, told = await admin.call("GET", "/admin/v1/metaq/config")
    assert told["text"].encode() == broker.config_file()
    assert (await admin.call("GET", "/admin/v1/metaq/stats?item=config"))[0] == 400


async def test_what_only_a_process_can_do_is_refused_to_a_part(admin: Admin) -> None:
    status, answer = await admin.call("POST", "/admin/v1/metaq/reload", {})
    assert (status, answer["error"]) == (409, "not_reloaded")
    status, answer = await admin.call("POST", "/admin/v1/metaq/stop", {})
    assert (status, answer["error"]) == (409, "not_a_process")
    status, answer = await admin.call("POST", "/admin/v1/metaq/checkpoint", {})
    assert (status, answer["logEnd"] > 0) == (200, True)


async def test_the_tree_is_shown_and_checked(admin: Admin) -> None:
    status, answer = await admin.call("GET", "/admin/v1/metaq/tree")
    assert (status, answer) == (200, {"root": "/meta", "nodes": [], "findings": []})
