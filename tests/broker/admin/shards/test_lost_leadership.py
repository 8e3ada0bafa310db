"""Changing calls of a broker that ceases to be the master meanwhile: 503 with a cure, never 500.

The registry says for a moment longer that it is the master; its log takes nothing any more.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.admin.calls.guard import CHANGING
from imago_broker.admin.errors import of_store
from imago_broker.admin.routes import ROUTES
from imago_broker.model.access.users import User
from imago_broker.model.groups import GroupConfig
from imago_broker.model.topics.topics import TopicConfig
from imago_broker.service.access.access_edits import Actor
from imago_log.errors import DiskFullError, StoreClosedError, StoreError
from imago_testing.peers.remoting import RemotingPeer
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from imago_broker.admin.errors import AdminError
    from imago_broker.app import Broker
    from imago_testing.peers.admin import Admin

TOPIC = TopicConfig(name="new", read_queues=2, write_queues=2).to_json()
WRITES: dict[tuple[str, str], Any] = {
    ("PUT", "/admin/v1/topics/new"): {"queues": 2},
    ("PUT", "/admin/v1/topics/T"): {"queues": 3},
    ("DELETE", "/admin/v1/topics/T"): {},
    ("POST", "/admin/v1/topics/new/open"): {"topic": TOPIC, "groups": {}},
    ("PUT", "/admin/v1/groups/new"): {},
    ("DELETE", "/admin/v1/groups/g"): {},
    ("PUT", "/admin/v1/users/new"): {"password": "long enough a password"},
    ("DELETE", "/admin/v1/users/ann"): {},
    ("POST", "/admin/v1/users/ann/tokens"): {},
    ("PUT", "/admin/v1/quotas/topic:T"): {"quotas": {"producerRequestsPerSecond": 5}},
    ("PUT", "/admin/v1/access"): {"whiteAddresses": ["10.9.8.7"]},
}
"""Calls that would write into the log, and that nothing else keeps from it."""


@pytest.fixture
async def lost(broker: Broker) -> Broker:
    broker.topics.create_or_update(TopicConfig(name="T", read_queues=2, write_queues=2))
    broker.core.access.put_user(User(name="ann", secret="secret-of-ann"), Actor("tests", "here"))
    broker.groups.update(GroupConfig(name="g"))
    broker.store._status.follow()
    return broker


def called(path: str) -> str:
    path = re.sub(r"\{decision:[^}]*\}", "commit", path)
    path = re.sub(r"\{function:[^}]*\}", "put", path)
    named = {"topic": "T", "user": "ann", "group": "g", "shard": "0", "partition": "0"}
    return re.sub(r"\{(\w+)\}", lambda found: named.get(found[1], "x"), path)


@pytest.mark.usefixtures("lost")
async def test_no_changing_route_fails(admin: Admin) -> None:
    bodies: dict[tuple[str, str], list[Any]] = {}
    for (method, path), body in WRITES.items():
        bodies.setdefault((method, path), []).append(body)
    for method, path, _, _ in ROUTES:
        if method in CHANGING and not path.endswith("/metaq/stop"):
            bodies.setdefault((method, called(path)), []).append({})
    found = {}
    for (method, path), tried in bodies.items():
        for body in tried:
            status, said = await admin.call(method, path, body) if path[1] == "a" else (400, {})
            if status == 500:
                found[method, path, str(body)] = said
    assert found == {}


@pytest.mark.usefixtures("lost")
@pytest.mark.parametrize("call", WRITES, ids=" ".join)
async def test_what_the_log_has_to_take_is_answered_with_the_cure(
    admin: Admin, call: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    status, said = await admin.call(*call, WRITES[call])
    assert (status, said["error"]) == (503, "not_master"), said
    assert "Repeat the call" in said["cure"]
    assert "Traceback" not in caplog.text


async def test_requests_of_tools_are_answered_as_by_another_member(
    lost: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await RemotingPeer.connect(lost.rocketmq_port)
    header = {"topic": "new", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "order": "false"}
    header |= {"topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "topicSysFlag": 0}
    answer = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "does not lead" in (answer.remark or "")
    assert "Traceback" not in caplog.text
    await peer.close()


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (StoreClosedError("the store is closed"), "stopping"),
        (DiskFullError(used_ratio=0.99, limit_ratio=0.9), "disk_full"),
    ],
)
def test_other_reasons_have_words_of_their_own(error: StoreError, word: str) -> None:
    said: AdminError | None = of_store(error)
    assert said is not None
    assert (said.status, said.code) == (503, word)
    assert of_store(StoreError("a fault")) is None
