"""What somebody on call asks first: puts, disks, logs, clients, addresses, pipelines."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from imago_testing.kubernetes.custom_resources import PIPELINE, manifest
from imago_testing.kubernetes.on_call import CLUSTERS, claim, cluster_of_three, limits, status
from imago_testing.operated.resources import resource
from imago_testing.operated.stories import by_row

if TYPE_CHECKING:
    from imago_testing.kubernetes.plugin import Kube


@pytest.fixture(autouse=True)
def _cluster(kube: Kube) -> None:
    cluster_of_three(kube)


class TestPuts:
    def test_shards_that_accept_everything(self, kube: Kube) -> None:
        done = kube.run("puts", "demo", "-o", "json")
        rows = {row["shard"]: row for row in json.loads(done.out)}
        assert done.code == 0
        assert {name: (row["puts"], row["gets"]) for name, row in rows.items()} == {
            "shard-0": ("accepted", "accepted"),
            "shard-1": ("accepted", "accepted"),
        }

    def test_the_master_says_why_it_refuses(self, kube: Kube) -> None:
        kube.brokers["demo-s0-0"] = {"GET /admin/v1/status": status("master", "the disk is full")}
        done = kube.run("puts", "demo")
        assert done.code == 1
        assert "the disk is full" in done.out
        assert "demo-s0-0, master" in done.out

    def test_without_a_master_the_others_say_what_they_wait_for(self, kube: Kube) -> None:
        said = status("electing", waits="an election")
        for name in ("demo-s0-0", "demo-s0-1"):
            kube.brokers[name] = {"GET /admin/v1/status": said}
        done = kube.run("puts", "demo", "-o", "json")
        row = json.loads(done.out)[0]
        assert (done.code, row["puts"], row["why"]) == (1, "refused", "an election")

    def test_a_shard_that_nobody_answers_for_is_not_said_to_be_well(self, kube: Kube) -> None:
        del kube.brokers["demo-s1-0"]
        done = kube.run("puts", "demo", "-o", "json")
        row = json.loads(done.out)[1]
        assert (done.code, row["puts"]) == (1, "unknown")
        assert "no route to host" in row["why"]

    def test_a_cluster_without_pods(self, kube: Kube) -> None:
        kube.objects["pods"] = []
        done = kube.run("puts", "demo")
        assert done.code == 1
        assert "has no broker pods" in done.err
        assert "kubectl imago explain demo" in done.err

    def test_whoever_is_held_up_by_limits_is_named(self, kube: Kube) -> None:
        owes = {"owedMs": {"producerBytesPerSecond": 1200}, "refused": 3}
        limits(kube, "demo-s0-0", ("user:ann", owes), ("user:bob", {"owedMs": {}, "refused": 0}))
        limits(kube, "demo-s1-0", ("user:ann", {}))
        done = kube.run("puts", "demo", "-o", "json")
        found = [(row["shard"], row["of"], row["puts"]) for row in json.loads(done.out)]
        held = ("shard-0", "user:ann", "held up")
        assert found == [("shard-0", "", "accepted"), held, ("shard-1", "", "accepted")]
        assert done.code == 0, "the others are served"
        why = json.loads(done.out)[1]["why"]
        assert "producerBytesPerSecond: the next waits 1200 ms" in why
        assert "3 refused" in why
        named = json.loads(kube.run("puts", "demo", "--user", "bob", "-o", "json").out)
        assert [row["puts"] for row in named if row["of"] == "user:bob"] == ["accepted"]

    @pytest.mark.parametrize(
        ("said", "in_sync", "why"),
        [
            ({"sealed": True}, 2, "sealed"),
            ({"perm": 4}, 2, "perm is 4"),
            ({"writeQueues": 0}, 2, "no queue to write to"),
            ({"acknowledgement": "replicated-fsync"}, 1, "1 of 2 members are in sync"),
            ({}, 1, ""),
        ],
    )
    def test_a_topic_is_asked_for(
        self, kube: Kube, said: dict[str, Any], in_sync: int, why: str
    ) -> None:
        open_ = {"perm": 6, "writeQueues": 4, "sealed": False, "acknowledgement": "leader"}
        for name in ("demo-s0-0", "demo-s1-0"):
            limits(kube, name)
            standing = {"inSync": ["a", "b"][:in_sync], "minInSync": 2}
            kube.brokers[name]["GET /admin/v1/shard"] = [200, standing]
        kube.brokers["demo-s0-0"]["GET /admin/v1/topics/orders"] = [200, open_ | said]
        done = kube.run("puts", "demo", "--topic", "orders", "-o", "json")
        rows = {row["shard"]: row for row in json.loads(done.out) if row["of"] == "orders"}
        assert rows["shard-1"]["puts"] == "not here"
        assert rows["shard-0"]["puts"] == ("refused" if why else "accepted")
        assert why in rows["shard-0"]["why"]
        assert done.code == (1 if why else 0)

    def test_a_cluster_that_sleeps_is_no_failure(self, kube: Kube) -> None:
        kube.objects["pods"] = []
        sleeps = {"type": "Hibernated", "status": "True", "reason": "Asleep", "message": ""}
        status = {"conditions": [sleeps], "lookedAt": datetime.now(UTC).isoformat()}
        kube.objects[CLUSTERS] = [{**resource(), "status": status}]
        done = kube.run("puts", "demo")
        assert done.code == 6
        assert "hibernates, as its spec says" in done.err


class TestDisks:
    def test_claims_are_shown_with_what_they_wait_for(self, kube: Kube) -> None:
        waits = [{"type": "FileSystemResizePending", "status": "True"}]
        kube.objects["persistentvolumeclaims"] = [
            claim("demo-s0-0", "20Gi", "20Gi"),
            claim("demo-s0-1", "40Gi", "20Gi", conditions=waits),
            claim("demo-s0-2", "20Gi", "20Gi"),
        ]
        done = kube.run("disks", "demo", "-o", "json")
        rows = {row["pod"]: row for row in json.loads(done.out)}
        assert rows["demo-s0-0"]["claim"] == "20Gi"
        assert rows["demo-s0-1"]["claim"] == "20Gi, asks for 40Gi, FileSystemResizePending"
        assert (rows["demo-s0-2"]["puts"], rows["demo-s1-0"]["claim"]) == ("no pod", "")
        assert done.code == 0, "who has left takes no messages anyway"

    def test_who_may_not_read_claims_sees_the_rest(self, kube: Kube) -> None:
        kube.refusals["get persistentvolumeclaims"] = "Error (Forbidden): cannot list claims"
        done = kube.run("disks", "demo")
        assert (done.code, "demo-s0-0" in done.out) == (0, True)
        assert "cannot list claims" in done.err

    def test_the_fullest_comes_first(self, kube: Kube) -> None:
        kube.brokers["demo-s0-1"] = {"GET /admin/v1/status": status("slave", share=0.09)}
        kube.brokers["demo-s1-0"] = {"GET /admin/v1/status": status("master", share=0.95)}
        done = kube.run("disks", "demo", "-o", "json")
        rows = json.loads(done.out)
        assert done.code == 1, "one of them takes nothing more"
        assert [row["pod"] for row in rows] == ["demo-s1-0", "demo-s0-0", "demo-s0-1"]
        assert (rows[0]["share"], rows[0]["puts"]) == ("95.0 %", "refused")
        assert rows[1]["used"] == "8.0 GiB"

    def test_a_broker_that_does_not_answer_is_in_the_list(self, kube: Kube) -> None:
        del kube.brokers["demo-s0-1"]
        done = kube.run("disks", "demo")
        assert done.code == 1
        assert "no route to host" in done.out


class TestLogs:
    def test_lines_of_all_members_stand_in_the_order_of_time(self, kube: Kube) -> None:
        day = "2026-11-30T10:00"
        kube.logs["demo-s0-0"] = f"{day}:01.5Z first\n{day}:03.000000001Z Traceback:\n  at x\n"
        kube.logs["demo-s0-1"] = f"{day}:02Z second\n"
        kube.logs["demo-s1-0"] = f"{day}:01.25Z before\n"
        done = kube.run("logs", "demo", "--since", "10m")
        assert done.code == 0, done.err
        assert done.out.splitlines() == [
            f"{day}:01.25Z demo-s1-0 before",
            f"{day}:01.5Z demo-s0-0 first",
            f"{day}:02Z demo-s0-1 second",
            f"{day}:03.000Z demo-s0-0 Traceback:",
            "demo-s0-0   at x",
        ]
        asked = [call for call in kube.calls() if call[0] == "logs"]
        assert all({"--since=10m", "--tail=-1", "--timestamps"} <= set(call) for call in asked)

    def test_a_member_is_chosen_and_one_that_has_none_is_said(self, kube: Kube) -> None:
        kube.logs["demo-s0-0"] = "2026-11-30T10:00:00Z here\n"
        done = kube.run("logs", "demo", "--member", "0")
        assert done.code == 1
        assert "demo-s0-0 here" in done.out
        assert "demo-s1-0" in done.err
        assert "demo-s0-1" not in done.out + done.err

    def test_nobody_fits(self, kube: Kube) -> None:
        done = kube.run("logs", "demo", "--shard", "7")
        assert (done.code, "has no such pod" in done.err) == (1, True)

    @pytest.mark.parametrize(
        ("words", "chosen"),
        [
            (("--shard", "0", "--member", "1"), ("demo-s0-1",)),
            (("--shard", "0"), ("-l", "imago.dev/shard=0")),
            (("--member", "0"), ("-l", "pod-name in (demo-s0-0,demo-s1-0)")),
        ],
    )
    def test_followed_lines_are_kubectls_own(
        self, kube: Kube, words: tuple[str, ...], chosen: tuple[str, ...]
    ) -> None:
        kube.logs = {"demo-s0-1": "x", "-l": "x"}
        done = kube.run("logs", "demo", "--follow", *words)
        call = kube.calls()[-1]
        assert done.code == 0, done.err
        assert ("--follow" in call, "--prefix" in call) == (True, True)
        assert all(any(part in word for word in call) for part in chosen)


CLIENTS = "/admin/v1/cluster/clients"


def connected(name: str, *places: tuple[str, int, bool], user: str = "") -> dict[str, Any]:
    """Return a client as brokers tell of it: its connections are shard, replica, TLS."""
    lists = {"producerGroups": [], "consumerGroups": ["billing"], "topics": ["orders"]}
    found = [
        {"shard": s, "replica": r, "peer": "10.0.0.7:4711", "protocol": "remoting", "tls": tls}
        for s, r, tls in places
    ]
    about = {"name": name, "language": "JAVA", "version": "5.3.2", "connectionCount": len(found)}
    return {**about, **lists, "users": [user] if user else [], "connections": found}


class TestClients:
    def page(self, *items: dict[str, Any], after: str | None = None, missing: Any = ()) -> Any:
        return [200, {"items": list(items), "next": after, "missing": list(missing)}]

    def asked(self, **query: str) -> str:
        return f"GET {CLIENTS}?{urlencode({**query, 'limit': '1000', 'next': ''})}"

    def test_who_is_connected_to_which_broker_as_whom(
        self, kube: Kube, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        one = connected("app-1", ("shard-0", 1, True), ("shard-1", 1, False), user="ann")
        two = connected("app-2", ("shard-0", 1, False))
        second = f"GET {CLIENTS}?limit=1000&next=app-2"
        pages = {self.asked(): self.page(one, after="app-2"), second: self.page(two)}
        kube.brokers["demo-s0-0"] = pages
        done = kube.run("clients", "demo", "-o", "json")
        assert done.code == 0, done.err
        assert json.loads(done.out) == {"clients": [one, two], "missing": []}
        shown = kube.run("clients", "demo").out
        rows = [line.split() for line in shown.splitlines() if "app-" in line]
        told = [("app-1" in row, "shard-0/1" in row, "yes" in row) for row in rows]
        assert told == [(True, True, True), (True, False, False), (False, True, False)], shown

    def test_only_those_that_are_chosen_are_asked_for(self, kube: Kube) -> None:
        kube.brokers["demo-s0-0"] = {self.asked(user="a&b", group="billing"): self.page()}
        done = kube.run("clients", "demo", "--user", "a&b", "--group", "billing")
        assert (done.code, done.out) == (0, "")
        assert "nobody who fits" in done.err

    def test_another_broker_tells_where_the_first_is_away(self, kube: Kube) -> None:
        del kube.brokers["demo-s0-0"]
        kube.brokers["demo-s0-1"] = {self.asked(): self.page(connected("a", ("shard-0", 2, True)))}
        done = kube.run("clients", "demo")
        assert (done.code, "shard-0/2" in done.out) == (0, True)

    def test_who_did_not_answer_is_said(self, kube: Kube) -> None:
        away = {"shard": "shard-1", "since": None, "why": "it has no master"}
        kube.brokers["demo-s0-0"] = {self.asked(): self.page(missing=[away])}
        done = kube.run("clients", "demo")
        assert done.code == 1
        assert "shard-1" in done.err
        assert "it has no master" in done.err
        assert "nobody" not in done.err

    def test_what_the_first_page_lacks_is_said(self, kube: Kube) -> None:
        away = {"shard": "shard-1", "since": None, "why": "it has no master"}
        one, two = (connected(name, ("shard-0", 0, True)) for name in ("a", "b"))
        second = f"GET {CLIENTS}?limit=1000&next=b"
        first = self.page(one, after="b", missing=[away])
        kube.brokers["demo-s0-0"] = {self.asked(): first, second: self.page(two)}
        done = kube.run("clients", "demo", "-o", "json")
        assert (done.code, json.loads(done.out)["missing"]) == (1, [away])

    def test_brokers_that_cannot_tell_yet(self, kube: Kube) -> None:
        for answers in kube.brokers.values():
            answers[self.asked()] = [404, {"message": "no such path", "cure": ""}]
        done = kube.run("clients", "demo")
        assert done.code == 1
        assert "older version" in done.err
        assert "kubectl imago status demo" in done.err


class TestAddresses:
    def test_inside_and_outside_with_what_each_leads_to(self, kube: Kube) -> None:
        told = by_row()["Settled"]
        way = {
            "name": "world",
            "bootstrap": "mq.example.com:9876",
            "grpc": "mq.example.com:8081",
            "brokers": [
                {
                    "pod": "demo-s0-0",
                    "rocketmq": "b0.example.com:10911",
                    "metaq": "b0.example.com:8123",
                    "grpc": "b0.example.com:8081",
                    "leadsTo": "203.0.113.7",
                }
            ],
        }
        inside = {"name": "in", "bootstrap": told["status"]["bootstrap"]}
        ways = [inside, {**way, "bootstrapServers": "a:9876;b:9876", "admin": "mq:8080"}]
        kube.objects[CLUSTERS] = [{**told, "status": {**told["status"], "listeners": ways}}]
        [shown] = [
            line for line in kube.run("status", "demo").out.splitlines() if "outside" in line
        ]
        assert "outside, world: name server a:9876;b:9876, SDKs' endpoints mq.ex" in shown
        assert shown.endswith("administration https://mq:8080")
        rows = json.loads(kube.run("addresses", "demo", "-o", "json").out)
        assert [row["listener"] for row in rows] == ["inside", "world", "world"]
        assert rows[1]["rocketmq"] == "mq.example.com:9876"
        assert (rows[2]["of"], rows[2]["leads to"]) == ("demo-s0-0", "203.0.113.7")
        assert [row["grpc"] for row in rows] == [
            "demo-bootstrap.mq.svc:8081",
            "mq.example.com:8081",
            "b0.example.com:8081",
        ]
        assert "203.0.113.7" in kube.run("addresses", "demo").out

    def test_a_cluster_that_nobody_has_looked_at(self, kube: Kube) -> None:
        assert "no address yet" in kube.run("addresses", "demo").err


def test_pipelines_say_why_they_are_not_ready(kube: Kube) -> None:
    one = manifest(PIPELINE, {"spec.clusterRef": {"name": "demo"}})
    stalled = {"type": "Ready", "status": "False", "reason": "Failed", "message": "no such table"}
    other = manifest(PIPELINE, {"spec.clusterRef": {"name": "another"}})
    kube.objects["imagopipelines.imago.dev"] = [
        {**one, "status": {"conditions": [stalled], "epoch": 3, "state": "FAILED", "rows": 7}},
        other,
    ]
    (row,) = json.loads(kube.run("pipelines", "demo", "-o", "json").out)
    assert (row["ready"], row["reason"]) == ("False", "Failed: no such table")
    assert (row["state"], row["epoch"], row["rows"]) == ("FAILED", 3, 7)
    kube.objects["imagopipelines.imago.dev"] = [other]
    assert "has no pipelines" in kube.run("pipelines", "demo").err
