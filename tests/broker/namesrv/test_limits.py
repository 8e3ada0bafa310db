"""What the name service keeps has limits: longer names, and more of anything, are refused."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.cluster.edits import shared
from imago_broker.cluster.znodes import GarbageError, Paths, decode_broker, decode_foreign
from imago_broker.model import names
from imago_broker.model.registry.cluster import ForeignBroker
from imago_broker.namesrv import foreign
from imago_wire.crc import crc31
from imago_wire.remoting.bodies.register import INFLATED_BYTES_MAX
from imago_wire.remoting.codes import RequestCode as Code
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_broker.app import Broker
    from imago_testing.peers.remoting import RemotingPeer

    Connect = Callable[..., Awaitable[RemotingPeer]]

SIZES = (300, 20_000)
NAME: dict[str, object] = {
    "brokerName": "broker-a",
    "brokerAddr": "10.9.9.9:10911",
    "clusterName": "Other",
    "haServerAddr": "10.9.9.9:10912",
    "brokerId": 0,
}


def body(topics: dict[str, Any] | None = None, servers: list[str] | None = None) -> bytes:
    table = topics if topics is not None else {"F": {"topicName": "F"}}
    wrapper = {"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table}
    return json.dumps(
        {"filterServerList": servers or [], "topicConfigSerializeWrapper": wrapper}
    ).encode()


def registrations(name: str) -> dict[str, tuple[dict[str, object], bytes]]:
    """A registration with this name in each place that has one."""
    return {
        "cluster": ({"clusterName": name}, body()),
        "broker": ({"brokerName": name}, body()),
        "address": ({"brokerAddr": name}, body()),
        "replication address": ({"haServerAddr": name}, body()),
        "topic": ({}, body({name: {"topicName": name}})),
        "filter type": ({}, body({"F": {"topicName": "F", "topicFilterType": name}})),
        "attribute": ({}, body({"F": {"topicName": "F", "attributes": {name: "1"}}})),
        "attribute's value": ({}, body({"F": {"topicName": "F", "attributes": {"a": name}}})),
        "filter server": ({}, body(servers=[name])),
        "filter servers": ({}, body(servers=["s"] * len(name))),
        "attributes": (
            {},
            body({"F": {"topicName": "F", "attributes": {str(n): "" for n in range(len(name))}}}),
        ),
    }


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", registrations(""))
async def test_a_registration_with_a_long_name_is_refused_and_not_kept(
    connect: Connect, broker: Broker, place: str, size: int
) -> None:
    peer = await connect()
    change, data = registrations("n" * size)[place]
    ext = {**NAME, **change, "bodyCrc32": crc31(data)}
    answer = await peer.call(Code.REGISTER_BROKER, ext, data)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "at most" in (answer.remark or "")
    assert len(answer.remark or "") < 400
    assert broker.coordinator.view().foreign == ()
    whole = body()
    answer = await peer.call(Code.REGISTER_BROKER, {**NAME, "bodyCrc32": 0}, whole)
    assert answer.code == ResponseCode.SUCCESS
    assert len(broker.coordinator.view().foreign) == 1


async def test_retry_topics_of_the_longest_groups_are_registered(connect: Connect) -> None:
    peer = await connect()
    name = names.retry_topic("g" * names.GROUP_SIZE_MAX)
    data = body({name: {"topicName": name}})
    answer = await peer.call(Code.REGISTER_BROKER, {**NAME, "bodyCrc32": 0}, data)
    assert answer.code == ResponseCode.SUCCESS, answer


async def test_a_body_that_inflates_to_more_than_a_table_of_topics_is_refused(
    connect: Connect,
) -> None:
    peer = await connect()
    data = zlib.compress(bytes(INFLATED_BYTES_MAX + 1))
    answer = await peer.call(Code.REGISTER_BROKER, {**NAME, "bodyCrc32": 0}, data)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert INFLATED_BYTES_MAX == 16 << 20


async def test_one_connection_registers_some_brokers_and_not_any_number(
    connect: Connect, broker: Broker
) -> None:
    peer = await connect()
    codes = []
    for number in range(foreign.CONNECTION_BROKERS_MAX + 1):
        ext = {**NAME, "brokerName": f"b{number}", "bodyCrc32": 0}
        codes.append((await peer.call(Code.REGISTER_BROKER, ext, body())).code)
    assert codes[-2:] == [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR]
    assert len(broker.coordinator.view().foreign) == foreign.CONNECTION_BROKERS_MAX
    again = await peer.call(Code.REGISTER_BROKER, {**NAME, "brokerName": "b0"}, body())
    assert again.code == ResponseCode.SUCCESS, "who is here already may say it again"
    other = await connect()
    answer = await other.call(Code.REGISTER_BROKER, {**NAME, "bodyCrc32": 0}, body())
    assert answer.code == ResponseCode.SUCCESS


async def test_all_registrations_together_have_a_limit(
    connect: Connect, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await connect()
    monkeypatch.setattr(foreign, "HELD_BYTES_MAX", 1000)
    codes = []
    for number in range(8):
        ext = {**NAME, "brokerName": f"b{number}", "bodyCrc32": 0}
        codes.append((await peer.call(Code.REGISTER_BROKER, ext, body())).code)
    kept = codes.count(ResponseCode.SUCCESS)
    assert 0 < kept < 8
    assert len(broker.coordinator.view().foreign) == kept


async def test_a_registration_that_the_registry_refuses_is_not_held(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await connect()
    monkeypatch.setattr("imago_broker.cluster.znodes.NODE_BYTES_MAX", 100)
    for _ in range(2):
        answer = await peer.call(Code.REGISTER_BROKER, {**NAME, "bodyCrc32": 0}, body())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        version = json.dumps({"counter": 1, "timestamp": 1}).encode()
        asked = await peer.call(Code.QUERY_DATA_VERSION, NAME, version)
        assert asked.ext == {"changed": "true"}, "nothing of it is known"


@pytest.mark.parametrize("size", [names.KV_VALUE_SIZE_MAX + 1])
@pytest.mark.parametrize("place", ["namespace", "key", "value"])
async def test_settings_with_long_names_are_refused_and_not_kept(
    connect: Connect, broker: Broker, place: str, size: int
) -> None:
    peer = await connect()
    for long in {names.WORD_SIZE_MAX + 1 if place != "value" else size, size}:
        ext = {"namespace": "N", "key": "k", "value": "v", place: "n" * long}
        answer = await peer.call(Code.PUT_KV_CONFIG, ext)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "at most" in (answer.remark or "")
        assert broker.coordinator.view().kv == {}


def test_settings_have_a_limit_in_number() -> None:
    paths = Paths("c")
    full = {"N": {str(n): "v" for n in range(names.KV_KEYS_MAX)}}
    for namespace, key in (("N", "more"), ("M", "k")):
        with pytest.raises(ValueError, match="at most"):
            shared.putting(paths, namespace, key, "v")(json.dumps(full).encode())
    changed = shared.putting(paths, "N", "0", "w")(json.dumps(full).encode())
    assert json.loads(changed or b"")["N"]["0"] == "w", "what is there may change"
    spaces = {str(n): {"k": "v"} for n in range(names.KV_NAMESPACES_MAX)}
    with pytest.raises(ValueError, match="at most"):
        shared.putting(paths, "M", "k", "v")(json.dumps(spaces).encode())
    assert shared.putting(paths, "0", "k", None)(json.dumps(spaces).encode())


async def test_answers_do_not_repeat_what_is_longer_than_any_name(connect: Connect) -> None:
    peer = await connect()
    long = "n" * 20_000
    for code, ext in (
        (Code.GET_ROUTEINFO_BY_TOPIC, {"topic": long}),
        (Code.GET_KV_CONFIG, {"namespace": long, "key": long}),
        (Code.GET_KVLIST_BY_NAMESPACE, {"namespace": long}),
        (Code.GET_BROKER_MEMBER_GROUP, {"clusterName": long, "brokerName": long}),
    ):
        answer = await peer.call(code, ext)
        assert len(answer.remark or "") + len(answer.body) < 1000, code


async def test_a_broker_that_is_not_registered_here_is_gone_already(
    connect: Connect, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = await connect()

    async def never(_: object) -> None:
        raise AssertionError("asked the registry")

    monkeypatch.setattr(broker.coordinator, "remove_foreign", never)
    answer = await peer.call(Code.UNREGISTER_BROKER, {**NAME, "brokerName": "x" * 20_000})
    assert answer.code == ResponseCode.SUCCESS


def test_nodes_of_the_registry_are_held_to_the_same_limits() -> None:
    with pytest.raises(ValueError, match="at most"):
        ForeignBroker(cluster="c" * 256, broker_name="b", broker_id=0, address="a")
    node = {
        "cluster": "c",
        "brokerName": "b",
        "brokerId": 0,
        "address": "a",
        "haAddress": "h" * 256,
        "zone": "",
        "dataVersion": {},
        "topics": {},
        "filterServers": [],
        "actingMaster": False,
    }
    with pytest.raises(GarbageError, match="at most"):
        decode_foreign("/f", zlib.compress(json.dumps(node).encode()))
    own = {
        "uuid": "u",
        "host": "h",
        "metaq": 1,
        "rocketmq": 2,
        "fast": 3,
        "replication": 4,
        "admin": 5,
        "brokerName": "shard-0",
        "role": "master",
    }
    assert decode_broker("/b/0-0", json.dumps(own).encode(), 1).host == "h"
    for addresses in (["10.0.0.1"] * 65, ["n" * 1025]):
        with pytest.raises(GarbageError, match="address"):
            decode_broker("/b/0-0", json.dumps({**own, "addresses": addresses}).encode(), 1)
