"""Commands that ask brokers, from inside of their pods."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from imago_testing.kubernetes.custom_resources import GROUP, TOPIC, manifest
from imago_testing.operated.resources import resource

if TYPE_CHECKING:
    from imago_testing.kubernetes.plugin import Kube

CLUSTERS = "imagoclusters.imago.dev"


def pod(shard: int, ordinal: int, *, role: str = "slave", ready: bool = True) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"demo-s{shard}-{ordinal}",
            "labels": {
                "imago.dev/cluster": "demo",
                "imago.dev/component": "broker",
                "imago.dev/shard": str(shard),
                "imago.dev/role": role,
            },
        },
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def topic(name: str, messages: int, *, sealed: bool = False) -> dict[str, Any]:
    return {"name": name, "queues": 4, "messages": messages, "sealed": sealed}


LIST = "?limit=1000&next="
SHARD = {"id": 0, "name": "shard-0", "master": "disk-1", "epoch": 7}


@pytest.fixture(autouse=True)
def _cluster(kube: Kube) -> None:
    """Two shards of two members; pod 1 leads shard 0."""
    kube.objects[CLUSTERS] = [resource()]
    kube.objects["pods"] = [
        pod(0, 0),
        pod(0, 1, role="master"),
        pod(1, 0, role="master"),
        pod(1, 1, ready=False),
    ]
    for name in ("demo-s0-0", "demo-s0-1"):
        kube.brokers[name] = {
            "GET /admin/v1/cluster": [200, {"shards": [SHARD]}],
            "GET /admin/v1/status": [200, {"uuid": f"disk-{name[-1]}"}],
        }


class TestHandover:
    def test_the_master_is_asked_in_the_epoch_that_was_seen(self, kube: Kube) -> None:
        kube.brokers["demo-s0-1"]["POST /admin/v1/handover"] = [
            200,
            {"epoch": 8, "leader": "disk-0"},
        ]
        done = kube.run("handover", "demo", "0", "--to", "demo-s0-0")
        assert (done.code, done.err) == (0, "shard-0: handed over to demo-s0-0, epoch 8\n")
        call = kube.calls()[-1]
        assert call[1] == "demo-s0-1"
        body = json.loads(call[-1])
        assert (body["brokerId"], body["epoch"], body["target"]) == ("disk-1", 7, "disk-0")

    def test_the_brokers_own_words_are_passed_on(self, kube: Kube) -> None:
        refusal = {"error": "not_handed_over", "message": "Nobody is in sync.", "cure": "Wait."}
        kube.brokers["demo-s0-1"]["POST /admin/v1/handover"] = [409, refusal]
        done = kube.run("handover", "demo", "shard-0")
        assert done.code == 1
        assert done.err == "error: demo-s0-1: Nobody is in sync.\n  cure: Wait.\n"

    def test_a_pod_of_another_shard_is_refused(self, kube: Kube) -> None:
        done = kube.run("handover", "demo", "0", "--to", "demo-s1-0")
        assert (done.code, "demo-s0-0, demo-s0-1" in done.err) == (1, True)

    def test_a_shard_without_master_has_nothing_to_hand_over(self, kube: Kube) -> None:
        leaderless = [200, {"shards": [{**SHARD, "master": None}]}]
        kube.brokers["demo-s0-0"]["GET /admin/v1/cluster"] = leaderless
        done = kube.run("handover", "demo", "0")
        assert (done.code, "kubectl imago explain demo" in done.err) == (1, True)

    def test_an_unknown_shard_is_named(self, kube: Kube) -> None:
        done = kube.run("handover", "demo", "9")
        assert (done.code, "there is no shard 9" in done.err) == (1, True)

    def test_a_broker_that_does_not_answer_is_passed_over(self, kube: Kube) -> None:
        del kube.brokers["demo-s0-0"]
        kube.brokers["demo-s0-1"]["POST /admin/v1/handover"] = [200, {"epoch": 8}]
        assert kube.run("handover", "demo", "0").code == 0


class TestTopics:
    def test_shards_are_summed_up(self, kube: Kube) -> None:
        first = {"items": [topic("audit", 1), topic("orders", 10)], "next": None}
        second = {"items": [topic("orders", 5, sealed=True)], "next": None}
        kube.brokers["demo-s0-1"][f"GET /admin/v1/topics{LIST}"] = [200, first]
        kube.brokers["demo-s1-0"] = {f"GET /admin/v1/topics{LIST}": [200, second]}
        kube.objects["imagotopics.imago.dev"] = [manifest(TOPIC, name="my-orders")]
        rows = json.loads(kube.run("topics", "demo", "-o", "json").out)
        assert rows[1] == {
            "topic": "orders",
            "shards": [0, 1],
            "queues": 4,
            "messages": 15,
            "sealed": [1],
            "resource": "my-orders",
        }
        assert rows[0]["resource"] == ""
        assert "0, 1" in kube.run("topics", "demo").out

    def test_long_lists_are_read_page_by_page(self, kube: Kube) -> None:
        pages = {"": ("a", "b/c"), "b%2Fc": ("b/c", None)}
        for start, (name, following) in pages.items():
            answer = {"items": [topic(name, 1)], "next": following}
            for shard in ("demo-s0-1", "demo-s1-0"):
                paths = kube.brokers.setdefault(shard, {})
                paths[f"GET /admin/v1/topics{LIST}{start}"] = [200, answer]
        rows = json.loads(kube.run("topics", "demo", "-o", "json").out)
        assert [row["topic"] for row in rows] == ["a", "b/c"]

    def test_one_topic_is_shown_by_its_queues(self, kube: Kube) -> None:
        queue = {"queue": 0, "minOffset": 2, "maxOffset": 9}
        shown = topic("orders", 7) | {"queues": [queue]}
        kube.brokers["demo-s0-1"]["GET /admin/v1/topics/orders"] = [200, shown]
        kube.brokers["demo-s1-0"] = {}
        (row,) = json.loads(kube.run("topics", "demo", "orders", "-o", "json").out)
        assert (row["shard"], row["from"], row["upTo"], row["messages"]) == ("shard-0", 2, 9, 7)

    def test_a_topic_that_is_not_there(self, kube: Kube) -> None:
        kube.brokers["demo-s1-0"] = {}
        done = kube.run("topics", "demo", "nothing")
        assert (done.code, "demo has no topic nothing" in done.err) == (1, True)

    def test_a_shard_that_does_not_answer_is_an_error(self, kube: Kube) -> None:
        del kube.brokers["demo-s0-1"]
        done = kube.run("topics", "demo")
        assert done.code == 1
        assert "kubectl describe pod" in done.err

    def test_without_the_right_to_exec_it_says_which(self, kube: Kube) -> None:
        kube.refusals["exec"] = "Error from server (Forbidden): pods is forbidden"
        done = kube.run("topics", "demo")
        assert (done.code, "`create` on `pods/exec`" in done.err) == (1, True)


def lag(messages: int, oldest: int | None = None) -> dict[str, Any]:
    return {"lag": messages, "oldest": oldest}


def group(name: str, **topics: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "settings": None, "members": ["a", "b"], "topics": topics}


def groups(*items: dict[str, Any], missing: tuple[str, ...] = ()) -> list[Any]:
    return [200, {"items": list(items), "next": None, "missing": list(missing)}]


ALL = f"GET /admin/v1/cluster/groups{LIST}"
BILLING = f"{ALL}&group=billing&metaq=true"


class TestGroups:
    def test_what_both_kinds_of_consumers_have_not_read_is_told(self, kube: Kube) -> None:
        billing = group("billing", orders=lag(3, 1_700_000_009_000), audit=lag(4))
        unread = {"orders": lag(5, 1_700_000_001_999)}
        metaq = {"name": "old", "members": [], "topics": {}}
        metaq |= {"metaq": {"members": ["host-1"], "topics": unread}}
        kube.brokers["demo-s0-0"][f"{ALL}&metaq=true"] = groups(billing, metaq)
        kube.objects["imagoconsumergroups.imago.dev"] = [manifest(GROUP, name="mine")]
        table = kube.run("groups", "demo").out
        assert "metaq lag" in table
        assert "unread since" in table
        first, second = json.loads(kube.run("groups", "demo", "-o", "json").out)
        assert first == {
            "group": "billing",
            "members": 2,
            "topics": 2,
            "lag": 7,
            "metaqMembers": 0,
            "metaqTopics": 0,
            "metaqLag": 0,
            "unreadSince": "2023-11-14T22:13:29Z",
            "resource": "mine",
        }
        assert second == {
            "group": "old",
            "members": 0,
            "topics": 0,
            "lag": 0,
            "metaqMembers": 1,
            "metaqTopics": 1,
            "metaqLag": 5,
            "unreadSince": "2023-11-14T22:13:21Z",
            "resource": "",
        }

    def test_long_lists_are_read_page_by_page(self, kube: Kube) -> None:
        page = [200, {"items": [group("a")], "next": "b/c", "missing": []}]
        kube.brokers["demo-s0-0"][f"{ALL}&metaq=true"] = page
        kube.brokers["demo-s0-0"][f"{ALL}b%2Fc&metaq=true"] = groups(group("b/c"))
        rows = json.loads(kube.run("groups", "demo", "-o", "json").out)
        assert [row["group"] for row in rows] == ["a", "b/c"]

    def test_without_zookeeper_the_others_are_shown(self, kube: Kube) -> None:
        refusal = [503, {"error": "unavailable", "message": "No ZooKeeper.", "cure": "Wait."}]
        for name in ("demo-s0-0", "demo-s0-1", "demo-s1-0", "demo-s1-1"):
            paths = kube.brokers.setdefault(name, {})
            paths[f"{ALL}&metaq=true"] = refusal
        kube.brokers["demo-s0-0"][ALL] = groups(group("billing"))
        done = kube.run("groups", "demo", "-o", "json")
        assert [row["group"] for row in json.loads(done.out)] == ["billing"]
        assert "MetaQ's consumers have read is not shown: demo-s1-1: No ZooKeeper." in done.err

    def test_a_shard_that_does_not_answer_is_an_error(self, kube: Kube) -> None:
        kube.brokers["demo-s0-0"][f"{ALL}&metaq=true"] = groups(missing=("shard-1",))
        done = kube.run("groups", "demo")
        assert (done.code, done.out) == (1, "")
        assert done.err == ("error: not answered by shard-1\n  cure: kubectl imago explain demo\n")

    def test_one_group_of_metaqs_consumers_is_shown_by_topic(self, kube: Kube) -> None:
        only = group("billing") | {"metaq": {"members": [], "topics": {"orders": lag(5)}}}
        for name in ("demo-s0-1", "demo-s1-0"):
            kube.brokers.setdefault(name, {})["GET /admin/v1/groups/billing"] = [404, {}]
        kube.brokers["demo-s0-0"][BILLING] = groups(only)
        (row,) = json.loads(kube.run("groups", "demo", "billing", "-o", "json").out)
        nothing = {"queue": "", "offset": "", "end": ""}
        assert row == {"topic": "orders", "shard": "MetaQ, all", **nothing, "lag": 5}

    def test_a_group_that_is_not_there(self, kube: Kube) -> None:
        for name in ("demo-s0-1", "demo-s1-0"):
            kube.brokers.setdefault(name, {})["GET /admin/v1/groups/billing"] = [404, {}]
        kube.brokers["demo-s0-0"][BILLING] = groups()
        done = kube.run("groups", "demo", "billing")
        assert (done.code, "demo has no group billing" in done.err) == (1, True)

    def test_one_group_is_shown_queue_by_queue(self, kube: Kube) -> None:
        progress = {"queue": 3, "offset": 5, "end": 9, "lag": 4}
        shown = {"name": "billing", "members": [], "topics": {"orders": [progress]}}
        kube.brokers["demo-s1-0"] = {"GET /admin/v1/groups/billing": [200, shown]}
        kube.brokers["demo-s0-0"][BILLING] = groups(group("billing"))
        (row,) = json.loads(kube.run("groups", "demo", "billing", "-o", "json").out)
        assert row == {"topic": "orders", "shard": "shard-1", **progress}

    def test_objects_that_cannot_be_seen_are_told_and_left_out(self, kube: Kube) -> None:
        kube.brokers["demo-s0-0"][f"{ALL}&metaq=true"] = groups()
        kube.refusals["imagoconsumergroups"] = "Error from server (Forbidden): no"
        done = kube.run("groups", "demo", "-o", "json")
        assert (done.code, json.loads(done.out)) == (0, [])
        assert "are not shown" in done.err
