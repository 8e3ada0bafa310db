"""Who is connected to a cluster, asked of one broker, and the end of connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from imago_broker.admin.current import clients
from imago_broker.app.ports import connected_clients
from imago_broker.processors.metaq import gets
from imago_testing.clusters.shard_pair import Pair, eventually, make, put
from imago_testing.peers.metaq import metaq_peer
from imago_testing.peers.remoting import RemotingPeer, heartbeat
from imago_testing.peers.sdk_peer import SdkPeer
from imago_wire.grpc.messages import encoded
from imago_wire.grpc.messages import make as message
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from imago_testing.peers.admin import Admin

PATH = "/admin/v1/cluster/clients"
CLIENT = "10.0.0.7@1234#a/b%é"
"""Names have what a path has a meaning for."""


async def shown(admin: Admin, query: str = "") -> list[dict[str, Any]]:
    status, body = await admin.call("GET", f"{PATH}{query}")
    assert (status, body.get("missing")) == (200, []), body
    return list(body["items"])


Beating = Callable[..., Awaitable[RemotingPeer]]


@pytest.fixture
async def beating() -> AsyncIterator[Beating]:
    """Connects a consumer of topic T that is a producer of group P, too."""
    peers: list[RemotingPeer] = []

    async def connect(admin: Admin, group: str, client: str = CLIENT) -> RemotingPeer:
        peers.append(await RemotingPeer.connect(admin.broker.rocketmq_port))
        await peers[-1].call(RequestCode.HEART_BEAT, {}, heartbeat(group, client=client))
        return peers[-1]

    yield connect
    for peer in peers:
        await peer.close()


async def test_a_client_is_one_item_with_its_connections_to_all_brokers(
    pair: Pair, beating: Beating
) -> None:
    peers = [await beating(admin, "g") for admin in (pair.one, pair.two)]
    (found,) = await shown(pair.one)
    places = [(one["shard"], one["protocol"], one["tls"]) for one in found["connections"]]
    assert places == [("shard-0", "rocketmq", False), ("shard-1", "rocketmq", False)]
    assert (found["name"], found["users"], found["connectionCount"]) == (CLIENT, [], 2)
    assert (found["producerGroups"], found["consumerGroups"]) == (["P"], ["g"])
    assert (found["topics"], found["language"]) == (["T"], "JAVA")
    assert found["version"].startswith("V5")
    for peer in peers:
        await peer.close()
    await eventually(lambda: not pair.one.broker.ports.rocketmq.connections)
    await eventually(lambda: not pair.two.broker.ports.rocketmq.connections)
    assert await shown(pair.one) == []


async def test_clients_are_chosen_by_what_they_do_and_paged(
    pair: Pair, beating: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connected_clients, "AT_ONCE", 1)
    for admin, group in ((pair.one, "a"), (pair.one, "b"), (pair.two, "c")):
        await beating(admin, group, f"client-{group}")
    for query, names in (
        ("?topic=T&group=b", ["client-b"]),
        ("?group=P", ["client-a", "client-b", "client-c"]),
        ("?topic=other", []),
        ("?user=ann", []),
        ("?client=client-c", ["client-c"]),
    ):
        assert [each["name"] for each in await shown(pair.one, query)] == names, query
    status, body = await pair.one.call("GET", f"{PATH}?limit=2")
    assert (status, [each["name"] for each in body["items"]]) == (200, ["client-a", "client-b"])
    (last,) = await shown(pair.one, f"?limit=2&next={body['next']}")
    assert last["name"] == "client-c"


async def test_what_is_shown_of_one_client_is_bounded(
    pair: Pair, beating: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SHOWN_MAX", 1)
    for group in ("a", "b"):
        await beating(pair.one, group)
    (found,) = await shown(pair.two)
    assert (found["consumerGroups"], found["connectionCount"]) == (["a"], 2)
    assert len(found["connections"]) == 1


async def test_a_metaq_client_is_known_by_what_it_reads(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gets, "READS_MAX", 1)
    for topic in ("orders", "bills"):
        make(pair.one, topic)
        await put(pair.one, topic)
    async with metaq_peer(pair.one.broker.ports.metaq_port) as peer:
        await peer.get("nothing", 0, 0)
        (found,) = await shown(pair.two)
        assert (found["topics"], found["consumerGroups"]) == ([], [])
        await peer.get("orders", 0, 0)
        await peer.get("bills", 0, 0)
        host, port = peer.address
        (found,) = await shown(pair.two)
        assert (found["name"], found["topics"]) == (f"{host}:{port}", ["orders"])
        assert (found["consumerGroups"], found["language"]) == (["g"], "")
        assert [one["protocol"] for one in found["connections"]] == ["metaq"]
        assert [each["name"] for each in await shown(pair.two, "?topic=orders&group=g")] == [
            found["name"]
        ]
        status, body = await pair.two.call("DELETE", f"{PATH}/{found['name']}")
        assert (status, body["items"]) == (
            200,
            [{"shard": "shard-0", "replica": 0, "connections": 1}],
        )
        assert await peer.is_closed_without_an_answer()


async def test_an_sdk_producer_is_known_by_what_it_sends_to(pair: Pair) -> None:
    make(pair.one, "orders")
    peer = await SdkPeer.connect(pair.one.broker.ports.grpc_port)
    topics = [message("Resource", name="orders")]
    settings = message("Settings", client_type=1, publishing=message("Publishing", topics=topics))
    number, head = peer.frames.begin("Telemetry")
    told = message("TelemetryCommand", settings=settings)
    peer.writer.write(head + peer.frames.data(number, encoded(told), end=False))
    await peer.message(number, "TelemetryCommand")
    (found,) = await shown(pair.two, "?topic=orders")
    assert (found["producerGroups"], found["topics"]) == ([], ["orders"])
    (connection,) = found["connections"]
    assert (connection["protocol"], connection["tls"]) == ("grpc", False)
    status, _ = await pair.two.call("DELETE", f"{PATH}/{quote(found['name'], safe='')}")
    assert status == 200
    await peer.ended()
    await peer.close()


async def test_a_killed_client_loses_its_connections_to_all_brokers_and_no_other_does(
    pair: Pair, beating: Beating
) -> None:
    peers = [await beating(admin, "g") for admin in (pair.one, pair.two)]
    await beating(pair.one, "g", "other")
    path = f"{PATH}/{quote(CLIENT, safe='')}"
    status, body = await pair.two.call("DELETE", path)
    assert (status, body["missing"]) == (200, [])
    assert [(one["shard"], one["connections"]) for one in body["items"]] == [
        ("shard-0", 1),
        ("shard-1", 1),
    ]
    for peer in peers:
        assert await peer.closed()
    assert [each["name"] for each in await shown(pair.one)] == ["other"]
    status, body = await pair.one.call("DELETE", path)
    assert (status, body["error"]) == (404, "client_not_found")
    assert "imago client list" in body["cure"]


async def test_an_address_closes_one_connection_of_a_client(pair: Pair, beating: Beating) -> None:
    one, two = await beating(pair.one, "g"), await beating(pair.one, "g")
    (found,) = await shown(pair.two)
    address = "{}:{}".format(*one.address)
    assert address in [each["peer"] for each in found["connections"]]
    (chosen,) = await shown(pair.two, f"?client={quote(address)}")
    assert (chosen["name"], chosen["connectionCount"]) == (CLIENT, 1)
    status, body = await pair.two.call("DELETE", f"{PATH}/{address}")
    assert (status, [each["connections"] for each in body["items"]]) == (200, [1])
    assert await one.closed()
    (left,) = await shown(pair.two)
    assert left["connectionCount"] == 1
    await two.call(RequestCode.HEART_BEAT, {}, heartbeat("g", client=CLIENT))


async def test_clients_that_share_a_connection_are_told_apart(
    pair: Pair, beating: Beating, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await beating(pair.one, "a", "client-a")
    for name in "bc":
        await peer.call(RequestCode.HEART_BEAT, {}, heartbeat(name, client=f"client-{name}"))
    found = await shown(pair.two)
    assert [(each["name"], each["consumerGroups"]) for each in found] == [
        ("client-a", ["a"]),
        ("client-b", ["b"]),
        ("client-c", ["c"]),
    ]
    (connection,) = found[1]["connections"]
    assert sorted(connection["sharedWith"]) == ["client-a", "client-c"]
    monkeypatch.setattr(clients, "SHOWN_MAX", 1)
    for each in await shown(pair.two):
        assert len(each["connections"][0]["sharedWith"]) == 1
    status, body = await pair.two.call("DELETE", f"{PATH}/client-b")
    assert (status, [each["connections"] for each in body["items"]]) == (200, [1])
    assert await peer.closed()


async def test_a_member_that_does_not_answer_is_named_by_both(pair: Pair, beating: Beating) -> None:
    peer = await beating(pair.one, "g")
    await pair.two.broker.ports.admin.stop()
    for method, path in (("GET", PATH), ("DELETE", f"{PATH}/{quote(CLIENT, safe='')}")):
        status, body = await pair.one.call(method, path)
        assert (status, len(body["items"])) == (200, 1)
        (missing,) = body["missing"]
        assert "shard-1: its member at" in missing["why"]
    assert await peer.closed()
    status, body = await pair.one.call("DELETE", f"{PATH}/nobody")
    assert (status, body["items"]) == (200, []), "it may be at the member that does not answer"
