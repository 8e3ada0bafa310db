"""`imago cluster explain`: what members that are not in sync say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from imago_cli.clusters import cluster
from imago_cli.exits import CommandError


def member(replica: int, *, in_sync: bool) -> dict[str, Any]:
    name = f"b{replica}"
    return {"replica": replica, "inSync": in_sync, "rocketmq": name, "admin": f"http://{name}"}


def said(waits_for: str, *, writable: bool) -> dict[str, Any]:
    return {"waitsFor": waits_for, "disk": {"writable": writable, "usedShare": 0.994}}


def test_members_that_are_not_in_sync_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "http://b1": said("the copy is not in sync yet: refused", writable=False),
        "http://b2": said("", writable=True),
    }

    def ask(address: str, path: str, **_: object) -> dict[str, Any]:
        assert path == "/admin/v1/status"
        if address not in answers:
            raise CommandError(f"no admin interface answers at {address}")
        return answers[address]

    monkeypatch.setattr(cluster, "ask", ask)
    shard = {"members": [member(n, in_sync=n == 0) for n in range(4)]}
    assert list(cluster.hindrances(shard)) == [
        "replica 1 (b1): the copy is not in sync yet: refused",
        "replica 1 (b1): its disk is full, 99% are used",
        "replica 3 (b3): no admin interface answers at http://b3",
    ]


def test_without_a_registry_it_says_that_masters_refuse_messages() -> None:
    shown = {"shards": [], "zooKeeperConnected": False, "refused": {}}
    (line,) = cluster.remarks(shown)
    assert "what it shows may be old, and masters refuse messages" in line


def test_full_disks_and_a_small_in_sync_set_are_said() -> None:
    members = [member(n, in_sync=n == 0) | {"full": n != 1, "uuid": f"b{n}"} for n in range(3)]
    shard = {"name": "shard-0", "master": "b0", "inSync": ["b0"], "members": members}
    shown = {"shards": [shard], "zooKeeperConnected": True, "refused": {}, "minInSync": 2}
    assert list(cluster.remarks(shown)) == [
        "shard-0 replica 0: its disk is full, so it refuses messages",
        "shard-0 replica 2: its disk is full",
        "shard-0: 1 member in sync, 2 are needed, so replicated messages are refused",
    ]
    healthy = shard | {"inSync": ["b0", "b1"], "members": []}
    assert list(cluster.remarks(shown | {"shards": [healthy]})) == []


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ({}, 0),
        ({"master": None}, 1),
        ({"inSync": ["b0"]}, 1),
        ({"members": [member(0, in_sync=True) | {"uuid": "b0", "full": True}]}, 1),
    ],
    ids=["well", "no master", "few in sync", "full"],
)
def test_a_shard_that_takes_no_messages_is_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, what: dict[str, Any], code: int
) -> None:
    shard = {"name": "shard-0", "master": "b0", "inSync": ["b0", "b1"], "members": []} | what
    shown = {"cluster": "c", "zooKeeperConnected": True, "refused": {}, "minInSync": 2}
    monkeypatch.setattr(cluster, "ask", lambda *_, **__: shown | {"shards": [shard]})
    with pytest.raises(SystemExit) as ended:
        cluster.status(as_json=True)
    assert ended.value.code == code


@pytest.mark.parametrize(("connected", "code"), [(True, 0), (False, 1)])
def test_a_master_of_before_is_none_to_rely_on(
    monkeypatch: pytest.MonkeyPatch, connected: bool, code: int
) -> None:
    shard = {"name": "shard-0", "master": "b0", "members": [], "inSync": [], "known": {}}
    shown = {"cluster": "c", "shards": [shard], "zooKeeperConnected": connected, "refused": {}}
    monkeypatch.setattr(cluster, "ask", lambda *_, **__: shown)
    with pytest.raises(SystemExit) as ended:
        cluster.status("http://b0")
    assert ended.value.code == code


def test_it_says_what_sdks_are_told_as_their_endpoints() -> None:
    members = [
        member(n, in_sync=True) | {"grpc": grpc} for n, grpc in enumerate(("a:1", "", "b:2"))
    ]
    assert cluster.sdk_endpoints({"shards": [{"members": members}]}) == "a:1;b:2"
    assert cluster.sdk_endpoints({"shards": [{"members": [member(0, in_sync=True)]}]}) == ""
