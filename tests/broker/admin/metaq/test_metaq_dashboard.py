"""What MetaQ's dashboard shows and does, over the admin interface."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.app import Broker
from imago_broker.cluster.edits import edits
from imago_testing.peers.admin import Admin, broker_config
from imago_testing.peers.metaq import metaq_peer, put_place
from imago_testing.processes.zookeeper import running_zookeeper

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.cluster.coordinator import TreeCoordinator

TOPICS = "/admin/v1/metaq/topics"


async def fill(broker: Broker, admin: Admin) -> None:
    assert (await admin.call("PUT", "/admin/v1/topics/orders", {"queues": 2}))[0] == 201
    async with metaq_peer(broker.metaq_port) as peer:
        for _ in range(4):
            put_place(await peer.put("orders", 1, b"12345"))


async def test_process_machine_and_threads_are_shown(broker: Broker, admin: Admin) -> None:
    status, found = await admin.call("GET", "/admin/v1/metaq/instance")
    assert status == 200
    assert found["instance"]["dataPath"] == broker.config.broker.data_dir
    assert found["version"]["brokerId"] == 0
    assert found["runtime"]["processors"] > 0
    assert found["system"]["openFiles"] > 0
    status, found = await admin.call("GET", "/admin/v1/metaq/threads")
    stacks = {each["name"]: "".join(each["stack"]) for each in found["items"]}
    assert "metaq_dashboard.py" in stacks["MainThread"]


async def test_topics_are_shown_with_sizes_settings_and_statistics(
    broker: Broker, admin: Admin
) -> None:
    await fill(broker, admin)
    await admin.call("PUT", "/admin/v1/topics/alien", {"queues": 1, "dialects": "rocketmq"})
    status, found = await admin.call("GET", TOPICS)
    [topic] = [each for each in found["items"] if each["topic"] == "orders"]
    assert status == 200
    assert "alien" not in [each["topic"] for each in found["items"]]
    sizes = [topic[key] for key in ("partitions", "messages", "bytes", "averageBytes")]
    assert sizes == [2, 4, 100, 25]
    assert topic["statistics"]["message_count"] == "4"
    assert topic["settings"]["acknowledgement"] == "leader"
    status, found = await admin.call("GET", f"{TOPICS}/orders?group=g")
    assert found["partitions"][1] == {
        "partition": "0-1",
        "position": None,
        "minPosition": 0,
        "maxPosition": 100,
        "consumedBytes": 0,
        "pendingBytes": 100,
        "consumedMessages": 0,
        "pendingMessages": 4,
        "owner": None,
    }
    assert (await admin.call("GET", f"{TOPICS}/alien"))[1]["error"] == "not_dual"
    assert (await admin.call("GET", f"{TOPICS}/nothing"))[0] == 404
    assert (await admin.call("GET", f"{TOPICS}/orders?group=a%20b"))[0] == 400


async def test_nothing_is_skipped_without_a_zookeeper_or_such_a_partition(
    broker: Broker, admin: Admin
) -> None:
    await fill(broker, admin)
    where = f"{TOPICS}/orders/groups/g/partitions"
    status, found = await admin.call("POST", f"{where}/1/skip", {})
    assert (status, found["error"]) == (503, "registry")
    for wrong in ("2", "-1", "x", "9" * 30):
        assert (await admin.call("POST", f"{where}/{wrong}/skip", {}))[0] == 400
    assert (await admin.call("POST", f"{where}/1/skip", {"force": True}))[0] == 400


@pytest.mark.zookeeper
async def test_backlog_is_skipped_unless_somebody_consumes_it(tmp_path: Path) -> None:
    with running_zookeeper(tmp_path / "zookeeper") as server:
        config = broker_config(tmp_path)
        running = Broker(
            replace(config, zookeeper=replace(config.zookeeper, connect=server.address))
        )
        await running.start()
        try:
            async with aiohttp.ClientSession() as session:
                await skip_and_look(running, Admin(session, running))
        finally:
            await running.stop()


async def skip_and_look(broker: Broker, admin: Admin) -> None:
    await fill(broker, admin)
    where = f"{TOPICS}/orders/groups/g/partitions/1/skip"
    assert await admin.call("POST", where, {}) == (
        200,
        {"topic": "orders", "group": "g", "partition": "0-1", "position": 100},
    )
    _, found = await admin.call("GET", f"{TOPICS}/orders?group=g")
    progress = found["partitions"][1]
    assert (progress["position"], progress["pendingMessages"]) == (100, 0)
    assert progress["consumedMessages"] == 4
    coordinator: TreeCoordinator = broker.coordinator  # type: ignore[assignment]
    folder = "/meta/consumers/g/owners/orders"
    parents = ["/meta/consumers/g/owners", folder]
    await edits.ensure(coordinator._tree, [(path, b"") for path in parents])
    await edits.ensure(coordinator._tree, [(f"{folder}/0-1", b"g_java")])
    status, refused = await admin.call("POST", where, {})
    assert (status, refused["error"]) == (409, "owned")
    assert "g_java consumes" in refused["message"]
