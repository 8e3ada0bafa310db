"""The admin interface over real HTTP: what users, the operator and suites call."""

from __future__ import annotations

import asyncio
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING
from unittest.mock import ANY

import pytest

from imago_broker.admin.resources import topics
from imago_broker.admin.resources.messages import INFLATED_BYTES_MAX
from imago_broker.errors import HidesMessagesError
from imago_broker.service.puts.gate import ShardGate
from imago_testing.peers.admin import put
from imago_wire import compiled
from imago_wire.hot import make_entry
from imago_wire.record_format.layout import SYS_COMPRESSED

if TYPE_CHECKING:
    from imago_broker.app import Broker
    from imago_broker.model.topics.topics import TopicConfig
    from imago_testing.peers.admin import Admin

BORN_HOST = bytes((127, 0, 0, 1)) + (4000).to_bytes(4, "big")


async def test_a_topic_is_created_changed_listed_and_deleted(admin: Admin) -> None:
    status, made = await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 3})
    assert (status, made["queues"], made["shards"]) == (201, 3, {"shard-0": "ok"})
    status, changed = await admin.call(
        "PUT", "/admin/v1/topics/orders", {"acknowledgement": "leader-fsync"}
    )
    assert (status, changed["queues"], changed["acknowledgement"]) == (200, 3, "leader-fsync")
    status, listed = await admin.call("GET", "/admin/v1/topics")
    assert "orders" in [item["name"] for item in listed["items"]]
    status, gone = await admin.call("DELETE", "/admin/v1/topics/orders")
    assert (status, gone["deleted"]) == (200, "orders")
    status, error = await admin.call("GET", "/admin/v1/topics/orders")
    assert (status, error["error"]) == (404, "topic_not_found")
    assert "`imago topic list`" in error["cure"]


async def test_a_shard_of_one_says_what_a_handover_and_a_move_need(admin: Admin) -> None:
    status, error = await admin.call("POST", "/admin/v1/handover", {})
    assert (status, "Add a member: `imago up --replicas 2`" in error["cure"]) == (409, True)
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1})
    for to, expected in ((["shard-0"], 400), ("any", 409)):
        status, error = await admin.call("POST", "/admin/v1/topics/orders/move", {"to": to})
        assert (status, "Add a shard (`imago up --shards`" in error["cure"]) == (expected, True)


@pytest.mark.parametrize("path", ["/api", "/api/v1/nodes?limit=500", "/apis", "/version"])
async def test_kubectl_without_a_kubeconfig_is_told_where_it_is(admin: Admin, path: str) -> None:
    url = f"http://127.0.0.1:{admin.broker.ports.admin_port}{path}"
    status, error = await admin.call("GET", path)
    assert (status, error["error"]) == (404, "no_kubernetes")
    told = {"User-Agent": "kubectl/v1.32.4 (linux/amd64) kubernetes/59526cd"}
    async with admin.session.get(url, headers=told) as answer:
        # Of no other status kubectl prints what the answer says.
        assert (answer.status, answer.content_type) == (403, "text/plain")
        assert await answer.text() == f"{error['message']} {error['cure']}"
    assert "KUBECONFIG" in error["cure"]
    status, error = await admin.call("GET", "/apix")
    assert (status, error["error"]) == (404, "http")


async def test_a_topic_of_many_queues_is_described_in_several_turns(
    admin: Admin, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 5})
    monkeypatch.setattr(topics, "QUEUES_AT_ONCE", 2)
    turns: list[None] = []
    described = asyncio.ensure_future(topics.described(broker.admin_services(), "orders"))
    while not described.done():
        turns.append(None)
        await asyncio.sleep(0)
    assert [queue["queue"] for queue in described.result()["queues"]] == [0, 1, 2, 3, 4]
    assert len(turns) == 3  # it begins, and goes on before the second and the fourth queue


async def test_a_topic_shows_its_queues_and_messages(admin: Admin, broker: Broker) -> None:
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 2})
    put(broker, "orders", b"one", b"two", properties=b"KEYS\x01k1\x02TAGS\x01red\x02")
    _, topic = await admin.call("GET", "/admin/v1/topics/orders")
    first = topic["queues"][0]
    assert (topic["messages"], first["minOffset"], first["maxOffset"]) == (2, 0, 2)
    # A MetaQ message is its 20-byte header, the attribute with its length, and the body.
    assert first["maxPosition"] == 2 * (20 + 4 + len("red") + 3)
    _, found = await admin.call("GET", "/admin/v1/messages?topic=orders&queue=0&offset=1")
    assert [(m["text"], m["tags"], m["keys"]) for m in found["items"]] == [("two", "red", "k1")]
    _, by_id = await admin.call("GET", f"/admin/v1/messages?id={found['items'][0]['id']}")
    assert [m["text"] for m in by_id["items"]] == ["two"]
    _, by_key = await admin.call("GET", "/admin/v1/messages?topic=orders&key=k1")
    assert [m["text"] for m in by_key["items"]] == ["one", "two"]


async def test_a_body_that_cannot_be_inflated_hides_no_other_message(
    admin: Admin, broker: Broker
) -> None:
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1})
    tail = broker.store.tail("orders", 0)
    for body in (b"no zlib at all", zlib.compress(bytes(INFLATED_BYTES_MAX + 1))):
        entry = make_entry(
            tail, body, born_ms=1, born_host=BORN_HOST, sys_flag=SYS_COMPRESSED, metaq_shape=(1, 1)
        )
        broker.messages.put_one(entry, None, lambda *_: None, None)
    put(broker, "orders", b"plain")
    status, found = await admin.call("GET", "/admin/v1/messages?topic=orders&queue=0&offset=0")
    assert status == 200
    assert [message["text"] for message in found["items"]] == [None, None, "plain"]
    damaged, bomb, plain = found["items"]
    assert "damaged" in damaged["error"]
    assert "limit" in bomb["error"]
    assert "error" not in plain
    assert damaged["id"]


async def test_a_group_shows_lag_and_is_reset(admin: Admin, broker: Broker) -> None:
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1})
    put(broker, "orders", b"a", b"b", b"c")
    broker.offsets.commit("billing", "orders", 0, 3)
    path = "/admin/v1/groups/biling/reset"
    status, error = await admin.call("POST", path, {"topic": "orders", "to": "latest"})
    assert (status, error["error"]) == (404, "group_not_found")
    assert "Did you mean 'billing'?" in error["cure"]
    assert broker.groups.get("biling") is None
    assert "biling" not in broker.offsets.groups()
    made = {"topic": "orders", "to": "latest", "create": True}
    assert (await admin.call("POST", path, made))[0] == 200
    await admin.call("DELETE", "/admin/v1/groups/biling")
    path = "/admin/v1/groups/billing/reset"
    status, error = await admin.call("POST", path, {"topic": "orders", "to": {}})
    assert (status, "names no queue" in error["message"]) == (400, True)
    _, group = await admin.call("GET", "/admin/v1/groups/billing")
    assert group["topics"]["orders"] == [
        {"queue": 0, "offset": 3, "end": 3, "lag": 0, "gone": False}
    ]
    status, answer = await admin.call(
        "POST", "/admin/v1/groups/billing/reset", {"topic": "orders", "to": "earliest"}
    )
    assert (status, answer["offsets"]) == (200, {"0": 0})
    _, listed = await admin.call("GET", "/admin/v1/groups")
    assert [(g["name"], g["lag"]) for g in listed["items"]] == [("billing", 3)]
    status, error = await admin.call(
        "POST", "/admin/v1/groups/billing/reset", {"topic": "orders", "to": {"0": 99}}
    )
    assert (status, error["cure"]) == (400, "Send 0 to 3.")


async def test_lists_come_in_pages(admin: Admin) -> None:
    for number in range(5):
        await admin.call("PUT", f"/admin/v1/topics/t{number}", {"queues": 1})
    seen, path = [], "/admin/v1/topics?limit=2"
    while True:
        _, page = await admin.call("GET", path)
        seen += [item["name"] for item in page["items"]]
        if page["next"] is None:
            break
        path = f"/admin/v1/topics?limit=2&next={page['next']}"
    assert seen == sorted(seen)
    assert {f"t{n}" for n in range(5)} <= set(seen)


@pytest.mark.parametrize(
    ("body", "cure"),
    [
        ({"queue": 1}, "Did you mean 'queues'?"),
        ({"queues": "many"}, "Correct that setting."),
        ({"queues": -1}, "Correct that setting."),
        ({"queues": 10**9}, "Correct that setting."),
        ({"acknowledgement": "maybe"}, "Correct that setting."),
        ({"order": 1}, "Correct that setting."),
        ({"queues": 0}, "Correct that setting."),
        ({"readQueues": 0, "writeQueues": 0}, "Correct that setting."),
        ({"shards": []}, "Correct that setting."),
        ({"shards": 0}, "Correct that setting."),
        ({"shards": None, "queues": None}, "Correct that setting."),
    ],
)
async def test_wrong_settings_are_refused_with_a_cure(
    admin: Admin, body: dict[str, object], cure: str
) -> None:
    status, error = await admin.call("PUT", "/admin/v1/topics/orders", body)
    assert (status, error["cure"]) == (400, cure)
    assert (await admin.call("GET", "/admin/v1/topics/orders"))[0] == 404


@pytest.mark.parametrize("few", [{"queues": 0}, {"readQueues": 0}])
async def test_queues_that_hold_messages_go_only_when_that_is_said(
    admin: Admin, broker: Broker, few: dict[str, int]
) -> None:
    path = "/admin/v1/topics/orders"
    await admin.call("PUT", path, {"queues": 1})
    put(broker, "orders", b"a", b"b")
    assert (await admin.call("PUT", path, {"acknowledgement": "leader"}))[0] == 200
    status, error = await admin.call("PUT", path, {**few, "writeQueues": 0})
    assert (status, error["error"]) == (409, "hides_messages")
    assert "2 messages would be hidden" in error["message"]
    assert "hideMessages: true" in error["cure"]
    _, topic = await admin.call("GET", path)
    assert topic["readQueues"] == 1
    body = {**few, "writeQueues": 0, "hideMessages": True}
    status, changed = await admin.call("PUT", path, body)
    assert (status, changed["readQueues"], changed["hiddenMessages"]) == (200, 0, 2)
    status, error = await admin.call("PUT", path, {"queues": 1, "hideMessages": "yes"})
    assert (status, "true or false" in error["message"]) == (400, True)


async def test_empty_queues_go_and_what_is_written_can_be_read(admin: Admin) -> None:
    path = "/admin/v1/topics/orders"
    await admin.call("PUT", path, {"queues": 4})
    status, changed = await admin.call("PUT", path, {"queues": 2})
    assert (status, changed["queues"]) == (200, 2)
    assert "hiddenMessages" not in changed
    status, error = await admin.call("PUT", path, {"readQueues": 1})
    assert (status, "read by nobody" in error["message"]) == (400, True)


async def test_reloaded_configuration_hides_no_messages(admin: Admin, broker: Broker) -> None:
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 2})
    put(broker, "orders", b"a")
    topics = {"aaa": {"queues": 1}, "orders": {"queues": 0}}
    with pytest.raises(HidesMessagesError, match="1 message would be hidden"):
        broker.reload(replace(broker.config, topics=topics))
    assert broker.topics.get("aaa") is None, "nothing of it was done"


@pytest.mark.parametrize("name", ["..%2Fescape", "%2e%2e", "a%00b", "x" * 300, "sp%20ace"])
async def test_names_that_could_leave_the_folder_are_refused(admin: Admin, name: str) -> None:
    status, error = await admin.call("PUT", f"/admin/v1/topics/{name}", {"queues": 1})
    assert status in {400, 404}
    assert set(error) == {"error", "message", "cure"}


async def test_errors_have_one_form_and_no_trace(admin: Admin) -> None:
    for method, path in [
        ("GET", "/admin/v1/nothing"),
        ("POST", "/admin/v1/topics/x"),
        ("GET", "/admin/v1/messages"),
        ("GET", "/admin/v1/messages?id=xyz"),
        ("GET", "/admin/v1/topics?limit=minus"),
        ("GET", "/admin/v1/groups/none"),
    ]:
        status, error = await admin.call(method, path)
        assert status in {400, 404, 405}, path
        assert set(error) == {"error", "message", "cure"}, path


async def test_a_repeated_call_gets_its_first_answer(admin: Admin) -> None:
    key = {"Idempotency-Key": "k-1"}
    first = await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 3}, **key)
    assert await admin.call("DELETE", "/admin/v1/topics/orders") == (200, ANY)
    assert await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 3}, **key) == first
    assert (await admin.call("GET", "/admin/v1/topics/orders"))[0] == 404


async def test_a_key_stands_for_one_call_with_its_query_and_body(admin: Admin) -> None:
    key = {"Idempotency-Key": "k-1"}
    path = "/admin/v1/topics/orders"
    assert (await admin.call("PUT", path, {"queues": 3}, **key))[0] == 201
    assert (await admin.call("PUT", path, {"queues": 5}, **key))[0] == 200
    _, topic = await admin.call("GET", path)
    assert topic["queues"][-1]["queue"] == 4
    assert (await admin.call("PUT", f"{path}?x=1", {"queues": 6}, **key))[0] == 200
    _, topic = await admin.call("GET", path)
    assert topic["queues"][-1]["queue"] == 5


async def test_equal_calls_at_once_are_carried_out_once(
    admin: Admin, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    original = broker.topics.create_or_update

    def counted(config: TopicConfig, *, hide_messages: bool) -> TopicConfig:
        made.append(config.name)
        return original(config, hide_messages=hide_messages)

    monkeypatch.setattr(broker.topics, "create_or_update", counted)
    key = {"Idempotency-Key": "k-1"}
    path = "/admin/v1/topics/orders"
    answers = await asyncio.gather(
        *(admin.call("PUT", path, {"queues": 3}, **key) for _ in range(8))
    )
    assert made == ["orders"]
    assert [status for status, _ in answers] == [201] * 8
    assert all(body == answers[0][1] for _, body in answers)


async def test_a_call_that_failed_is_carried_out_when_it_is_repeated(admin: Admin) -> None:
    key = {"Idempotency-Key": "k-1"}
    path = "/admin/v1/groups/billing/reset"
    body = {"topic": "orders", "to": "earliest"}
    first = await asyncio.gather(*(admin.call("POST", path, body, **key) for _ in range(3)))
    assert {status for status, _ in first} == {404}
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1})
    await admin.call("PUT", "/admin/v1/groups/billing", {})
    assert (await admin.call("POST", path, body, **key))[0] == 200


async def test_dynamic_settings_change_and_others_need_a_restart(admin: Admin) -> None:
    key = "acknowledgement.level"
    status, _ = await admin.call("PATCH", "/admin/v1/config", {key: "leader-fsync"})
    assert status == 200
    _, config = await admin.call("GET", "/admin/v1/config")
    values = {item["key"]: item["value"] for item in config["items"]}
    assert values[key] == "leader-fsync"
    status, error = await admin.call("PATCH", "/admin/v1/config", {"metaq.port": 1})
    assert (status, error["error"]) == (409, "needs_restart")
    status, error = await admin.call("PATCH", "/admin/v1/config", {key: "maybe"})
    assert status == 400
    assert error["message"].startswith("acknowledgement.level: 'maybe', must be one of")
    status, error = await admin.call("PATCH", "/admin/v1/config", {"acknowledgement.timeout_ms": 1})
    assert status == 400
    assert error["message"] == "acknowledgement.timeout_ms: 1, must be at least 10."


async def test_status_names_what_is_not_compiled(admin: Admin) -> None:
    compiled.missing.append("imago_wire.records._scan_c.scan_records")
    try:
        _, status = await admin.call("GET", "/admin/v1/status")
    finally:
        compiled.missing.pop()
    assert not status["compiled"]
    assert status["notCompiled"] == ["imago_wire.records._scan_c.scan_records"]


async def test_status_health_and_metrics(admin: Admin, broker: Broker) -> None:
    await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1})
    put(broker, "orders", b"x")
    _, status = await admin.call("GET", "/admin/v1/status")
    assert (status["shard"], status["role"]) == ("shard-0", "master")
    assert status["compiled"] == (not status["notCompiled"])
    assert status["logStart"] == 0 < status["logEnd"] == status["highWatermark"]
    assert (await admin.call("GET", "/healthz"))[0] == 200
    ready = {"ready": True, "writable": True, "reasons": [], "warnings": []}
    assert (await admin.call("GET", "/readyz")) == (200, ready)
    _, cluster = await admin.call("GET", "/admin/v1/cluster")
    assert [m["role"] for shard in cluster["shards"] for m in shard["members"]] == ["master"]
    url = f"http://127.0.0.1:{broker.ports.admin_port}/metrics"
    async with admin.session.get(url) as answer:
        assert "imago_" in await answer.text()
    async with admin.session.get(f"http://127.0.0.1:{broker.ports.admin_port}/") as answer:
        assert "<title>Imago</title>" in await answer.text()


async def test_a_broker_that_takes_no_messages_still_has_clients_sent_to_it(
    admin: Admin, broker: Broker
) -> None:
    assert (await admin.call("GET", "/writez")) == (200, {"writable": True, "reasons": []})
    broker.ticker.health = replace(broker.health, writable=False, disk_used_ratio=0.95)
    reason = "the disk is full: 95% used"
    ready = {"ready": True, "writable": False, "reasons": [], "warnings": [reason]}
    assert (await admin.call("GET", "/readyz")) == (200, ready)
    assert await admin.call("GET", "/writez") == (503, {"writable": False, "reasons": [reason]})


async def test_a_master_with_too_few_members_takes_no_messages(
    admin: Admin, broker: Broker
) -> None:
    broker.gate = gate = ShardGate(broker.store, broker.clock)
    gate.accept(replicated=False)
    status, said = await admin.call("GET", "/writez")
    assert (status, said["writable"]) == (503, False)
    assert "too few members are in sync" in said["reasons"][0]
    gate.count(replicated=True)
    assert (await admin.call("GET", "/writez"))[0] == 200


async def test_a_zone_that_is_told_later_is_announced(admin: Admin, broker: Broker) -> None:
    for text in ("zone-b\n", "z" * 256, "zone\tb"):
        status, error = await admin.call("PATCH", "/admin/v1/config", {"broker.zone": text})
        assert (status, broker.config.broker.zone) == (400, ""), error
        assert error["message"].startswith("broker.zone: ")
    status, _ = await admin.call("PATCH", "/admin/v1/config", {"broker.zone": "zone-b"})
    assert status == 200
    async with asyncio.timeout(50):
        while True:
            _, cluster = await admin.call("GET", "/admin/v1/cluster")
            zones = [m["zone"] for shard in cluster["shards"] for m in shard["members"]]
            if zones == ["zone-b"]:
                return
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Origin": "http://evil.example"}, "foreign_origin"),
        ({"Host": "evil.example"}, "foreign_host"),
        ({"Host": "evil.example:8080"}, "foreign_host"),
        ({"Host": "10.42.0.7:8080"}, "foreign_host"),
        ({"Host": "[2001:db8::7]:8080"}, "foreign_host"),
    ],
)
async def test_a_page_of_another_site_cannot_administer(
    admin: Admin, headers: dict[str, str], code: str
) -> None:
    status, error = await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 1}, **headers)
    assert (status, error["error"]) == (403, code)
    assert (await admin.call("GET", "/admin/v1/topics/orders"))[0] == 404


async def test_lists_of_names_can_be_set(admin: Admin) -> None:
    status, _ = await admin.call("PATCH", "/admin/v1/config", {"metaq.topic_patterns": ["log-*"]})
    assert status == 200
    _, config = await admin.call("GET", "/admin/v1/config")
    values = {item["key"]: item["value"] for item in config["items"]}
    assert values["metaq.topic_patterns"] == ["log-*"]
