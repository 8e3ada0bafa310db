"""ImagoTopics on a server and brokers in memory: what is done, in which order, how often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_operator.contents.belonging import FINALIZER
from imago_operator.contents.values import SeenTopic, TopicQueues
from imago_operator.errors import BlockedError, InvalidError, OperatorError, RetryError
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.topic import TopicReconciler
from imago_operator.reconcilers.user import UserReconciler
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.fake_contents_port import FakeContentsPort
from imago_testing.searching import examples

TOPIC = "ImagoTopic"


class Topics(Stage):
    """A stage with a cluster, brokers, and topics on it."""

    def __init__(self) -> None:
        self.brokers = FakeContentsPort()
        super().__init__(self.brokers)
        self.kube.put(manifest("ImagoCluster"))
        self.reconciler = TopicReconciler(self.context())

    def apply(self, name: str = "orders", **spec: Any) -> dict[str, Any]:
        said = {f"spec.{key}": value for key, value in ({"topicName": name} | spec).items()}
        return self.kube.put(manifest(TOPIC, said, name=name))

    async def rest(self, name: str = "orders") -> None:
        await self.settle(self.reconciler, name)

    async def look(self, name: str = "orders") -> float | None:
        return await self.reconciler.reconcile(ObjectKey(TOPIC, "mq", name))

    def ready(self, name: str = "orders") -> tuple[str, str] | None:
        return self.kube.condition(TOPIC, name)

    def asked(self, what: str) -> list[tuple[Any, ...]]:
        return [call for call in self.brokers.calls if call[0] == what]

    def finalizers(self, name: str = "orders") -> list[str]:
        found: list[str] = self.kube.objects[TOPIC, "mq", name]["metadata"].get("finalizers", [])
        return found


@pytest.fixture(name="stage")
def _stage() -> Topics:
    return Topics()


def there(name: str = "orders", queues: int = 8, **changes: Any) -> SeenTopic:
    both = {n: TopicQueues(queues, queues) for n in (0, 1)}
    return SeenTopic(name=name, shards=both, **changes)


async def test_a_topic_is_made_and_then_left_alone(stage: Topics) -> None:
    stage.apply(partitions=4, config={"x": "1"})
    await stage.rest()
    assert stage.asked("put_topic") == [
        ("put_topic", "orders", {"queues": 4, "order": False, "attributes": {"x": "1"}})
    ]
    assert stage.ready() == ("True", "InSync")
    status = stage.kube.status(TOPIC, "orders")
    assert (status["topicName"], status["partitions"]["total"], status["shards"]) == (
        "orders", 8, [0, 1],
    )  # fmt: skip
    assert stage.finalizers() == []
    writes, calls = stage.kube.status_writes, len(stage.brokers.calls)
    for _ in range(5):
        stage.pass_time(300)
        assert await stage.look() is None
    assert (stage.kube.status_writes, len(stage.brokers.calls)) == (writes, calls)
    assert stage.brokers.epochs == {7}


async def test_edits_reach_brokers_and_what_others_changed_is_changed_back(stage: Topics) -> None:
    stage.apply(partitions=4, ordered=True)
    await stage.rest()
    stage.kube.edit(TOPIC, "orders", {"partitions": 6})
    await stage.rest()
    assert stage.brokers.topics_by_name["orders"].shards[0] == TopicQueues(6, 6)
    stage.brokers.topics_by_name["orders"] = there(queues=6, order=False)
    stage.pass_time(300)
    await stage.rest()
    assert stage.brokers.topics_by_name["orders"].order is True


async def test_a_topic_without_a_resource_is_never_touched(stage: Topics) -> None:
    stage.brokers.topics_by_name["theirs"] = there("theirs", attributes={"x": "1"})
    stage.apply()
    await stage.rest()
    stage.kube.remove(TOPIC, "orders")
    assert await stage.look() is None
    assert {call[1] for call in stage.brokers.calls} == {"orders"}
    assert stage.brokers.topics_by_name["theirs"] == there("theirs", attributes={"x": "1"})
    assert "orders" in stage.brokers.topics_by_name, "it is retained"


async def test_a_topic_that_is_there_is_adopted_with_its_messages(stage: Topics) -> None:
    stage.brokers.topics_by_name["orders"] = there(attributes={"old": "1"})
    stage.apply(ordered=True)
    await stage.rest()
    assert stage.ready() == ("True", "InSync")
    assert stage.brokers.topics_by_name["orders"] == there(order=True, attributes={"old": "1"})
    assert stage.kube.condition(TOPIC, "orders", "Warning") == ("True", "UnknownSettings")


async def test_a_topic_that_must_be_new_is_not_adopted(stage: Topics) -> None:
    stage.brokers.topics_by_name["orders"] = there()
    stage.apply(adoptionPolicy="FailIfExists", deletionPolicy="Delete")
    await stage.rest()
    assert stage.ready() == ("False", "Conflict")
    assert stage.brokers.calls == []
    stage.apply("fresh", adoptionPolicy="FailIfExists")
    await stage.rest("fresh")
    assert stage.ready("fresh") == ("True", "InSync")
    stage.kube.remove(TOPIC, "orders")
    stage.pass_time(60)
    assert await stage.look() is None
    assert (TOPIC, "mq", "orders") not in stage.kube.objects
    assert stage.asked("delete_topic") == [], "it was never ours"


async def test_the_oldest_resource_counts(stage: Topics) -> None:
    stage.apply("first", topicName="orders", partitions=4)
    stage.pass_time(5)
    stage.apply("second", topicName="orders", partitions=9, deletionPolicy="Delete")
    await stage.rest("second")
    await stage.rest("first")
    assert stage.ready("first") == ("True", "InSync")
    assert stage.ready("second") == ("False", "Conflict")
    assert stage.brokers.topics_by_name["orders"].shards[0] == TopicQueues(4, 4)
    assert stage.finalizers("second") == []
    stage.kube.remove(TOPIC, "first")
    stage.pass_time(60)
    await stage.rest("second")
    assert stage.ready("second") == ("True", "InSync")
    assert stage.brokers.topics_by_name["orders"].shards[0] == TopicQueues(9, 9)


async def test_a_resource_of_this_very_moment_keeps_the_topic(stage: Topics) -> None:
    """What is known of other resources is shared for seconds; a deletion does not rest on it."""
    stage.apply(deletionPolicy="Delete")
    await stage.rest()
    stage.pass_time(60)
    stage.apply("bystander")
    await stage.look("bystander")
    stage.apply("rival", topicName="orders")
    stage.kube.remove(TOPIC, "orders")
    await stage.look()
    assert (TOPIC, "mq", "orders") not in stage.kube.objects
    assert ("orders", "Normal", "StillClaimed") in stage.kube.events
    assert stage.asked("delete_topic") == []


async def test_a_namespace_let_in_at_this_very_moment_keeps_the_topic(stage: Topics) -> None:
    selector = {"from": "Selector", "selector": {"matchLabels": {"mq": "yes"}}}
    stage.kube.edit("ImagoCluster", "demo", {"allowedNamespaces": selector})
    labels = {"name": "shop", "labels": {}}
    stage.kube.put({"kind": "Namespace", "metadata": labels}, namespace="")
    stage.apply(deletionPolicy="Delete")
    await stage.rest()
    said = {"spec.clusterRef": {"name": "demo", "namespace": "mq"}, "spec.topicName": "orders"}
    stage.kube.put(manifest(TOPIC, said, name="orders"), namespace="shop")
    await stage.reconciler.reconcile(ObjectKey(TOPIC, "shop", "orders"))
    stage.kube.objects["Namespace", "", "shop"]["metadata"]["labels"] = {"mq": "yes"}
    stage.kube.remove(TOPIC, "orders")
    await stage.look()
    assert stage.asked("delete_topic") == []


async def test_a_topic_goes_with_its_resource_only_if_that_is_said(stage: Topics) -> None:
    stage.apply(deletionPolicy="Delete")
    await stage.rest()
    assert stage.finalizers() == [FINALIZER]
    stage.kube.remove(TOPIC, "orders")
    await stage.rest()
    assert stage.brokers.topics_by_name == {}
    assert (TOPIC, "mq", "orders") not in stage.kube.objects
    assert ("orders", "Normal", "Deleted") in stage.kube.events


async def test_who_changes_his_mind_keeps_the_messages(stage: Topics) -> None:
    stage.apply(deletionPolicy="Delete")
    await stage.rest()
    stage.kube.edit(TOPIC, "orders", {"deletionPolicy": "Retain"})
    await stage.rest()
    assert stage.finalizers() == []


async def test_a_deleted_resource_waits_for_brokers_only_so_long(stage: Topics) -> None:
    stage.apply(deletionPolicy="Delete")
    await stage.rest()
    stage.brokers.silent = True
    stage.kube.remove(TOPIC, "orders")
    stage.pass_time(60)
    again = await stage.look()
    assert again is not None
    assert (TOPIC, "mq", "orders") in stage.kube.objects
    stage.pass_time(900)
    await stage.look()
    assert (TOPIC, "mq", "orders") not in stage.kube.objects
    assert ("orders", "Warning", "ReleasedUnreachable") in stage.kube.events
    assert "orders" in stage.brokers.topics_by_name


@pytest.mark.parametrize("how", ["gone", "going"])
def test_a_deleted_resource_does_not_wait_for_a_cluster_that_goes(how: str) -> None:
    async def story() -> None:
        stage = Topics()
        stage.apply(deletionPolicy="Delete")
        await stage.rest()
        cluster = stage.kube.objects["ImagoCluster", "mq", "demo"]
        if how == "gone":
            del stage.kube.objects["ImagoCluster", "mq", "demo"]
        else:
            cluster["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        stage.brokers.silent = True
        stage.kube.remove(TOPIC, "orders")
        stage.pass_time(60)
        await stage.look()
        assert (TOPIC, "mq", "orders") not in stage.kube.objects

    asyncio.run(story())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (InvalidError("no such setting"), "BrokerRejected"),
        (BlockedError("cordoned", until="x"), "BrokerRejected"),
        (RetryError("shard-1 failed", delay_s=1), "ClusterNotReady"),
    ],
)
async def test_what_brokers_answer_is_told_and_asked_again(
    stage: Topics, error: OperatorError, reason: str
) -> None:
    stage.brokers.trouble = lambda _: error
    stage.apply()
    again = await stage.look()
    assert stage.ready() == ("False", reason)
    assert again is not None
    stage.brokers.trouble = lambda _: None
    stage.pass_time(again)
    await stage.rest()
    assert stage.ready() == ("True", "InSync")


async def test_a_wrong_spec_is_told_and_nothing_done(stage: Topics) -> None:
    stage.apply(partitions=0)
    assert await stage.look() is None
    assert stage.ready() == ("False", "InvalidSpec")
    assert stage.brokers.calls == []
    stage.kube.objects[TOPIC, "mq", "orders"]["metadata"]["finalizers"] = [FINALIZER, "a/b"]
    stage.kube.remove(TOPIC, "orders")
    await stage.look()
    assert stage.finalizers() == ["a/b"]
    assert stage.brokers.calls == []


async def test_another_namespace_is_let_in_by_its_labels(stage: Topics) -> None:
    selector = {"from": "Selector", "selector": {"matchLabels": {"mq": "yes"}}}
    stage.kube.edit("ImagoCluster", "demo", {"allowedNamespaces": selector})
    stage.kube.put({"kind": "Namespace", "metadata": {"name": "shop", "labels": {"mq": "yes"}}},
                   namespace="")  # fmt: skip
    said = {"spec.clusterRef": {"name": "demo", "namespace": "mq"}, "spec.topicName": "orders"}
    for namespace in ("shop", "other"):
        stage.kube.put(manifest(TOPIC, said, name="orders"), namespace=namespace)
        await stage.reconciler.reconcile(ObjectKey(TOPIC, namespace, "orders"))
    statuses = {
        namespace: stage.kube.status(TOPIC, "orders", namespace)["conditions"][0]["reason"]
        for namespace in ("shop", "other")
    }
    assert statuses == {"shop": "InSync", "other": "NamespaceNotAllowed"}


async def test_namespaces_that_may_not_be_listed_fit_no_selector(stage: Topics) -> None:
    selector = {"from": "Selector", "selector": {}}
    stage.kube.edit("ImagoCluster", "demo", {"allowedNamespaces": selector})
    stage.kube.forbidden = frozenset({"Namespace"})
    said = {"spec.clusterRef": {"name": "demo", "namespace": "mq"}}
    stage.kube.put(manifest(TOPIC, said, name="orders"), namespace="shop")
    await stage.reconciler.reconcile(ObjectKey(TOPIC, "shop", "orders"))
    (ready,) = stage.kube.status(TOPIC, "orders", "shop")["conditions"]
    assert ready["reason"] == "NamespaceNotAllowed"
    assert "the operator cannot read its labels" in ready["message"]


async def test_one_list_serves_all_topics_of_a_pass(stage: Topics) -> None:
    for n in range(500):
        stage.apply(f"t{n}")
    for n in range(500):
        await stage.look(f"t{n}")
    assert stage.brokers.reads == 1
    stage.pass_time(3)
    for n in range(500):
        await stage.look(f"t{n}")
    assert stage.brokers.reads == 2
    assert len(stage.asked("put_topic")) == 500
    stage.pass_time(300)
    for n in range(500):
        assert await stage.look(f"t{n}") is None
    assert (stage.brokers.reads, len(stage.asked("put_topic"))) == (3, 500)


class Died(BaseException):
    """The operator's process ends here."""


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(0, 40),
    st.sampled_from(["Retain", "Delete"]),
    st.sampled_from(["Adopt", "FailIfExists"]),
    st.booleans(),
)
def test_an_operator_that_dies_at_any_call_is_followed_by_one_that_goes_on(
    at: int, deletion: str, adoption: str, remove: bool
) -> None:
    async def story() -> None:
        stage = Topics()
        stage.brokers.topics_by_name["theirs"] = there("theirs")
        stage.apply(deletionPolicy=deletion, adoptionPolicy=adoption, partitions=3)
        left = [at]
        watched(stage, left)
        for phase in ("make", "remove") if remove else ("make",):
            if phase == "remove":
                stage.kube.remove(TOPIC, "orders")
                stage.pass_time(60)
            try:
                await stage.rest()
            except Died:
                stage.reconciler = TopicReconciler(stage.context())
                await stage.rest()
        assert stage.brokers.topics_by_name["theirs"] == there("theirs")
        if not remove:
            assert stage.ready() == ("True", "InSync")
            assert stage.finalizers() == ([FINALIZER] if deletion == "Delete" else [])
        else:
            assert (TOPIC, "mq", "orders") not in stage.kube.objects
            assert ("orders" in stage.brokers.topics_by_name) == (deletion == "Retain")

    asyncio.run(story())


def watched(stage: Topics, left: list[int]) -> None:
    """Have the process die before or after the n-th call to a server."""

    def counted(call: Any) -> Any:
        async def maybe(*args: Any, **how: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Died
            result = await call(*args, **how)
            left[0] -= 1
            if left[0] == 0:
                raise Died
            return result

        return maybe

    for name in ("get", "list", "apply_status", "patch", "event"):
        setattr(stage.kube, name, counted(getattr(stage.kube, name)))
    for name in ("topics", "put_topic", "delete_topic"):
        setattr(stage.brokers, name, counted(getattr(stage.brokers, name)))


@pytest.mark.parametrize("kind", [TOPIC, "ImagoUser"])
async def test_those_that_wait_are_looked_at_once_their_cluster_answers_one(kind: str) -> None:
    stage, woken = Topics(), list[ObjectKey]()
    context = stage.context(enqueue=woken.append)
    reconciler = (
        TopicReconciler(context) if kind == TOPIC else UserReconciler(context, lambda: "s3cret")
    )
    keys = [ObjectKey(kind, "mq", name) for name in ("a", "b", "gone", "c")]
    for key in keys:
        stage.kube.put(manifest(kind, name=key.name))
    stage.brokers.silent = True
    for key in keys:
        await reconciler.reconcile(key)
    del stage.kube.objects[kind, "mq", "gone"]
    await reconciler.reconcile(keys[2])
    assert woken == []
    stage.brokers.silent = False
    stage.pass_time(30)
    await reconciler.reconcile(keys[3])
    assert sorted(woken) == keys[:2]
    stage.pass_time(30)
    await reconciler.reconcile(keys[3])
    assert len(woken) == 2
