"""Routes about who leads, over HTTP: a broker with another member beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from imago_broker.admin.routes import build_admin
from imago_broker.app import Broker
from imago_broker.app.process_hooks import ProcessHooks
from imago_broker.cluster.memory import MemoryEnsemble, memory_coordinator
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.model.registry.cluster import Role
from imago_broker.model.registry.shard import Election, Member, ShardState
from imago_broker.model.registry.shard_status import FollowerStatus, LocalShardStatus
from imago_broker.ports import CoordinatorConflictError, ShardRefusedError
from imago_testing.clusters.registry import broker as record
from imago_testing.clusters.registry import until
from imago_testing.peers.admin import broker_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.admin.services import AdminServices
    from imago_broker.cluster.coordinator import TreeCoordinator


NOBODY = 1
"""A port where nobody answers: brokers of other tests may have any port of a broker's."""


@dataclass
class Shell:
    """A member's shell that is told what to answer."""

    status: LocalShardStatus
    asked: list[tuple[object, ...]] = field(default_factory=list)
    refusal: str = ""
    cure: str = ""

    def shard_status(self) -> LocalShardStatus:
        return self.status

    async def handover(self, target: str | None, request_id: str) -> None:
        self.asked.append(("handover", target, request_id))
        if self.refusal:
            raise ShardRefusedError(self.refusal, cure=self.cure)

    async def elect(self, request_id: str, *, allow_data_loss: bool) -> None:
        self.asked.append(("elect", request_id, allow_data_loss))
        if self.refusal:
            raise ShardRefusedError(self.refusal)


@dataclass
class Rig:
    broker: Broker
    other: TreeCoordinator
    shell: Shell
    session: aiohttp.ClientSession
    port: int = 0

    async def call(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://127.0.0.1:{self.port}{path}"
        async with self.session.request(method, url, json=body, headers=named) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    ensemble, settings = MemoryEnsemble(), CoordinatorConfig(session_timeout_ms=60_000)
    config = broker_config(tmp_path)
    small = replace(config.store, segment_bytes_max=8 << 20)
    broker = Broker(
        replace(config, store=small),
        coordinator=memory_coordinator(settings, ensemble),
        process=ProcessHooks(stop=lambda: None),
    )
    other = memory_coordinator(settings, ensemble)
    await broker.start()
    await other.start()
    await other.register(replace(record("disk-b", process=1), role=Role.SLAVE, admin=NOBODY))
    assert broker.coordinator.registered
    assert other.registered
    one = Member(broker.uuid, broker.coordinator.registered.incarnation)
    two = Member("disk-b", other.registered.incarnation)
    election = Election(epoch=3, leader=one.uuid, at_ms=5, cause="new", unclean=False)
    await broker.coordinator.shard_states.change_shard(
        0,
        ShardState(
            leader=one, epoch=3, in_sync=tuple(sorted((one, two))), cause="new", history=(election,)
        ),
    )
    coordinator = broker.coordinator
    await until(coordinator, lambda view: len(view.brokers) == 2 and bool(view.states))  # type: ignore[arg-type]
    lag = FollowerStatus(
        uuid=two.uuid, incarnation=two.incarnation, connected=True,
        end=10, durable=10, lag_bytes=7, lag_ms=30,
    )  # fmt: skip
    shell = Shell(LocalShardStatus(role=Role.MASTER, epoch=3, settled=True, followers=(lag,)))
    services: AdminServices = replace(broker.admin_services(), control=shell)
    runner = web.AppRunner(build_admin(services))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with aiohttp.ClientSession() as session:
        yield Rig(broker, other, shell, session, runner.addresses[0][1])
    await runner.cleanup()
    await other.stop()
    await broker.stop()


async def test_the_cluster_is_one_snapshot_with_members_roles_and_lag(rig: Rig) -> None:
    status, body = await rig.call("GET", "/admin/v1/cluster")
    assert status == 200
    assert (body["zooKeeperConnected"], body["operatorEpoch"], body["refused"]) == (True, 0, {})
    (shard,) = body["shards"]
    uuid = rig.broker.uuid
    assert (shard["id"], shard["master"], shard["epoch"]) == (0, uuid, 3)
    assert shard["inSync"] == sorted([uuid, "disk-b"])
    assert (shard["drained"], shard["cordoned"]) == (False, False)
    assert shard["known"] == {uuid: 0, "disk-b": 1}
    seen = [
        (m["replica"], m["role"], m["inSync"], m["lagBytes"], m["lagMs"]) for m in shard["members"]
    ]
    assert seen == [(0, "master", True, 0, 0), (1, "slave", True, 7, 30)]
    assert shard["elections"] == [
        {"epoch": 3, "leader": uuid, "at": 5, "cause": "new", "unclean": False}
    ]
    assert shard["explain"]["why"].startswith("shard-0 is led by replica 0")


async def test_status_tells_the_role_as_the_shell_has_it(rig: Rig) -> None:
    rig.shell.status = replace(
        rig.shell.status, role=Role.ELECTING, settled=False, reason="an election"
    )
    _, body = await rig.call("GET", "/admin/v1/status")
    assert (body["role"], body["settled"], body["waitsFor"]) == ("electing", False, "an election")
    assert body["epoch"] == 3
    assert body["registry"] == "connected"
    assert body["inSync"] == sorted([rig.broker.uuid, "disk-b"])


async def test_a_handover_names_its_target_by_number_or_uuid(rig: Rig) -> None:
    body = {"target": "1", "brokerId": rig.broker.uuid, "epoch": 3, "requestId": "r-1"}
    status, answer = await rig.call("POST", "/admin/v1/handover", body)
    assert (status, answer["handedOver"], answer["brokerId"]) == (200, True, rig.broker.uuid)
    assert answer["leader"] == rig.broker.uuid, "as the registry has it"
    await rig.call("POST", "/admin/v1/handover", {"target": "disk-b"}, Idempotency_Key="r-2")
    await rig.call("POST", "/admin/v1/handover", {"target": "disk-b"}, Idempotency_Key="r-2")
    assert rig.shell.asked == [("handover", "disk-b", "r-1"), ("handover", "disk-b", "r-2")]
    status, error = await rig.call("POST", "/admin/v1/handover", {"target": 9})
    assert (status, error["error"]) == (400, "bad_request")
    assert "Live members: 0" in error["cure"]


@pytest.mark.parametrize(
    ("body", "error"),
    [({"brokerId": "somebody"}, "other_broker"), ({"epoch": 2}, "stale_epoch")],
)
@pytest.mark.parametrize("path", ["handover", "elect", "cordon", "uncordon"])
async def test_what_was_meant_for_another_broker_or_time_is_refused(
    rig: Rig, path: str, body: dict[str, object], error: str
) -> None:
    status, answer = await rig.call("POST", f"/admin/v1/{path}", body)
    assert (status, answer["error"]) == (409, error)
    assert rig.shell.asked == []


async def test_a_refusal_of_the_shell_is_told_in_its_words(rig: Rig) -> None:
    rig.shell.refusal = "disk-b did not catch up in 300 ms"
    status, answer = await rig.call("POST", "/admin/v1/handover", {})
    assert (status, answer["error"]) == (409, "not_handed_over")
    assert "did not catch up in 300 ms" in answer["message"]
    assert "`imago shard show`" in answer["cure"]
    rig.shell.cure = "Add a member."
    _, answer = await rig.call("POST", "/admin/v1/handover", {})
    assert answer["cure"] == "Add a member."


async def test_an_election_in_need_says_whether_loss_is_allowed(rig: Rig) -> None:
    await rig.call("POST", "/admin/v1/elect", {"requestId": "r", "allowDataLoss": True})
    await rig.call("POST", "/admin/v1/elect", {"requestId": "s"})
    assert rig.shell.asked == [("elect", "r", True), ("elect", "s", False)]
    status, answer = await rig.call("POST", "/admin/v1/elect", {"allowDataLoss": "yes"})
    assert (status, answer["error"]) == (400, "bad_request")


async def test_a_cordoned_shard_takes_no_new_topics(rig: Rig) -> None:
    assert (await rig.call("POST", "/admin/v1/cordon", {}))[1]["cordoned"] is True
    _, body = await rig.call("GET", "/admin/v1/cluster")
    assert body["shards"][0]["cordoned"] is True
    status, answer = await rig.call("PUT", "/admin/v1/topics/orders", {"shards": 1})
    assert (status, answer["error"]) == (400, "bad_request")
    assert "1 more needed, 0 to be had" in answer["message"]
    await rig.call("POST", "/admin/v1/uncordon", {})
    status, answer = await rig.call("PUT", "/admin/v1/topics/orders", {"shards": [0]})
    assert (status, answer["shards"]) == (201, {"shard-0": "ok"})


async def test_restarts_are_checked_before_and_after(rig: Rig) -> None:
    _, before = await rig.call("GET", "/admin/v1/restart-check")
    assert before["brokerId"] == rig.broker.uuid
    assert before["epoch"] == 3
    lacking = rig.broker.store.log_end - 10
    assert (before["risks"], before["unreplicatedBytes"]) == (["unreplicatedBytes"], lacking)
    _, after = await rig.call("GET", "/admin/v1/restart-done")
    assert (after["caughtUp"], after["percent"]) == (True, 100)
    rig.shell.status = replace(
        rig.shell.status,
        role=Role.SLAVE,
        settled=False,
        leader_end=4 * rig.broker.store.log_end,
        followers=(),
    )
    _, after = await rig.call("GET", "/admin/v1/restart-done")
    assert (after["caughtUp"], after["percent"]) == (False, 25)


async def test_a_member_is_not_fenced_while_the_only_other_one_is_being_fenced(rig: Rig) -> None:
    (lag,) = rig.shell.status.followers
    rig.shell.status = replace(
        rig.shell.status, followers=(replace(lag, end=rig.broker.store.log_end),)
    )
    _, before = await rig.call("GET", "/admin/v1/restart-check")
    assert before["safe"], "both callers have seen this"
    await rig.other.marks.fence_member(0, "disk-b", others={rig.broker.uuid}, least=1)
    status, answer = await rig.call("POST", "/admin/v1/fence", {})
    assert (status, answer["error"]) == (409, "not_fenced")
    assert "disk-b: fenced as well" in answer["message"]
    assert (await rig.call("POST", "/admin/v1/fence", {"anyway": True}))[0] == 200
    with pytest.raises(CoordinatorConflictError, match=rig.broker.uuid):
        await rig.other.marks.fence_member(0, "disk-b", others={rig.broker.uuid}, least=1)


async def test_an_operator_of_an_older_epoch_is_shut_out(rig: Rig) -> None:
    status, body = await rig.call("POST", "/admin/v1/operator-epoch", {"epoch": 5})
    assert (status, body) == (200, {"operatorEpoch": 5})
    status, body = await rig.call("POST", "/admin/v1/operator-epoch", {"epoch": 4})
    assert (status, body["error"]) == (409, "stale_operator")
    status, body = await rig.call("POST", "/admin/v1/cordon", {}, Imago_Operator_Epoch="4")
    assert (status, body["error"]) == (409, "stale_operator")
    status, _ = await rig.call("POST", "/admin/v1/cordon", {}, Imago_Operator_Epoch="5")
    assert status == 200
    status, _ = await rig.call("POST", "/admin/v1/cordon", {}, Imago_Operator_Epoch="x")
    assert status == 400
    _, body = await rig.call("GET", "/admin/v1/cluster")
    assert body["operatorEpoch"] == 5


async def test_a_follower_has_its_master_answer_and_says_when_there_is_none(rig: Rig) -> None:
    state = rig.broker.coordinator.view().states[0]
    led = next(member for member in state.in_sync if member.uuid == "disk-b")
    await rig.broker.coordinator.shard_states.change_shard(0, replace(state, leader=led, epoch=4))
    await until(rig.broker.coordinator, lambda view: view.states[0].epoch == 4)  # type: ignore[arg-type]
    status, body = await rig.call("PUT", "/admin/v1/topics/orders", {})
    assert (status, body["error"]) == (502, "master_unreachable")
    await rig.other.stop()
    await until(rig.broker.coordinator, lambda view: view.master(0) is None)  # type: ignore[arg-type]
    status, body = await rig.call("PUT", "/admin/v1/topics/orders", {})
    assert (status, body["error"]) == (503, "no_master")
    assert "orders" not in {topic.name for topic in rig.broker.topics.all()}
