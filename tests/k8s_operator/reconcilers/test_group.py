"""ImagoConsumerGroups on a server and brokers in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from imago_operator.contents.belonging import FINALIZER
from imago_operator.contents.groups import STARTED
from imago_operator.contents.values import GroupLag, SeenGroup, SeenTopic, TopicQueues
from imago_operator.errors import RetryError
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.group import GroupReconciler
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.fake_contents_port import FakeContentsPort

GROUP = "ImagoConsumerGroup"
RESET = {"requestId": "r-1", "to": "Earliest"}


class Groups(Stage):
    """A stage with a cluster, brokers, and groups on it."""

    def __init__(self) -> None:
        self.brokers = FakeContentsPort()
        super().__init__(self.brokers)
        self.kube.put(manifest("ImagoCluster"))
        for name in ("orders", "bills"):
            self.brokers.topics_by_name[name] = SeenTopic(name=name, shards={0: TopicQueues(1, 1)})
        self.reconciler = GroupReconciler(self.context())

    def apply(self, name: str = "billing", **spec: Any) -> None:
        said = {f"spec.{key}": value for key, value in ({"groupName": name} | spec).items()}
        self.kube.put(manifest(GROUP, said, name=name))

    async def rest(self, name: str = "billing") -> None:
        await self.settle(self.reconciler, name)

    async def look(self, name: str = "billing") -> float | None:
        return await self.reconciler.reconcile(ObjectKey(GROUP, "mq", name))

    def consume(self, *members: str, **lags: int) -> None:
        before = self.brokers.groups_by_name.get("billing") or SeenGroup(
            name="billing", settings=None
        )
        self.brokers.groups_by_name["billing"] = replace(
            before, members=members, lags={topic: GroupLag(lag) for topic, lag in lags.items()}
        )

    def resets(self) -> list[tuple[Any, ...]]:
        return [call[2:] for call in self.brokers.calls if call[0] == "reset_group"]

    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kube.status(GROUP, "billing")["lastReset"]
        return found


@pytest.fixture(name="stage")
def _stage() -> Groups:
    return Groups()


async def test_settings_are_made_and_kept_and_lag_is_looked_at_now_and_then(stage: Groups) -> None:
    stage.apply(maxRetries=3, maxLag={"messages": 10})
    await stage.rest()
    assert stage.brokers.groups_by_name["billing"].settings == {
        "consume_enable": True,
        "consume_broadcast_enable": False,
        "consume_message_orderly": False,
        "retry_queues": 1,
        "retry_max_times": 3,
    }
    assert stage.kube.condition(GROUP, "billing") == ("True", "InSync")
    stage.consume("c-1", "c-2", orders=4)
    stage.pass_time(30)
    assert await stage.look() == 30.0
    status = stage.kube.status(GROUP, "billing")
    assert (status["state"], status["members"], status["lag"]) == ("Stable", 2, "4")
    stage.consume("c-1", "c-2", orders=11)
    stage.pass_time(30)
    await stage.look()
    assert stage.kube.condition(GROUP, "billing", "LagHigh") == ("True", "TooManyMessages")
    assert stage.kube.condition(GROUP, "billing") == ("True", "InSync")
    writes = stage.kube.status_writes
    for lag in range(12, 20):
        stage.consume("c-1", "c-2", orders=lag)
        stage.pass_time(30)
        await stage.look()
    assert stage.kube.status_writes == writes
    stage.consume("c-1", "c-2", orders=0)
    stage.pass_time(30)
    await stage.look()
    assert stage.kube.condition(GROUP, "billing", "LagHigh") is None


async def test_offsets_are_set_once_for_each_request(stage: Groups) -> None:
    stage.consume(orders=4, bills=2)
    stage.apply(reset=RESET)
    await stage.rest()
    assert stage.resets() == [("bills", "earliest"), ("orders", "earliest")]
    assert stage.last()["result"] == "Reset 2 topics to Earliest."
    for _ in range(3):
        stage.pass_time(300)
        await stage.rest()
    assert len(stage.resets()) == 2
    stage.kube.edit(GROUP, "billing", {"reset": {"requestId": "r-2", "to": "Latest"}})
    await stage.rest()
    assert stage.resets()[2:] == [("bills", "latest"), ("orders", "latest")]


async def test_offsets_are_not_set_under_consumers(stage: Groups) -> None:
    stage.consume("c-1", orders=4)
    stage.apply(reset=RESET)
    for _ in range(3):
        again = await stage.look()
        assert again is not None
        assert again <= 5
        stage.pass_time(again)
    assert stage.kube.condition(GROUP, "billing", "ResetPending") == ("True", "GroupActive")
    assert stage.resets() == []
    stage.consume(orders=4)
    await stage.rest()
    assert stage.resets() == [("orders", "earliest")]
    assert stage.kube.condition(GROUP, "billing", "ResetPending") is None


async def test_who_comes_while_it_is_done_is_not_overrun(stage: Groups) -> None:
    stage.consume(orders=4)
    stage.apply(reset=RESET)
    await stage.look()
    assert stage.last()["result"] == STARTED
    stage.consume("c-1", orders=4)
    stage.pass_time(60)
    await stage.rest()
    assert stage.resets() == []
    assert stage.last()["result"].startswith("Unknown")


async def test_topics_that_are_not_there_are_named_in_the_result(stage: Groups) -> None:
    stage.apply(reset=RESET | {"topics": ["orders", "nothing"]})
    await stage.rest()
    assert stage.last()["result"].startswith("Reset 1 topic to Earliest. nothing: no topic")


async def test_what_fails_for_a_while_is_repeated(stage: Groups) -> None:
    stage.consume(orders=4)
    stage.apply(reset=RESET)
    stage.brokers.trouble = lambda what: (
        RetryError("502", delay_s=1) if what == "reset_group" else None
    )
    await stage.look()
    stage.pass_time(1)
    await stage.look()
    assert stage.kube.condition(GROUP, "billing", "ResetPending") == ("True", "BrokerRejected")
    stage.brokers.trouble = lambda _: None
    await stage.rest()
    assert stage.last()["result"] == "Reset 1 topic to Earliest."


async def test_offsets_go_with_the_resource_only_if_that_is_said(stage: Groups) -> None:
    stage.apply(deletionPolicy="Delete")
    await stage.rest()
    stage.consume("c-1")
    stage.kube.remove(GROUP, "billing")
    stage.pass_time(60)
    again = await stage.look()
    assert again == 5.0
    assert "billing" in stage.brokers.groups_by_name
    assert stage.kube.condition(GROUP, "billing") == ("False", "GroupActive")
    stage.consume()
    await stage.rest()
    assert "billing" not in stage.brokers.groups_by_name
    assert (GROUP, "mq", "billing") not in stage.kube.objects
    stage.apply("kept")
    await stage.rest("kept")
    assert FINALIZER not in stage.kube.objects[GROUP, "mq", "kept"]["metadata"].get(
        "finalizers", []
    )
    stage.kube.remove(GROUP, "kept")
    assert await stage.look("kept") is None
    assert "kept" in stage.brokers.groups_by_name


async def test_one_question_serves_all_groups_of_a_pass(stage: Groups) -> None:
    for n in range(100):
        stage.apply(f"g{n}")
    for n in range(100):
        await stage.look(f"g{n}")
    assert stage.brokers.reads == 1
    stage.pass_time(30)
    for n in range(100):
        assert await stage.look(f"g{n}") == 30.0
    assert stage.brokers.reads == 2


async def test_silence_is_told_and_changes_nothing(stage: Groups) -> None:
    stage.apply()
    stage.brokers.silent = True
    assert await stage.look() == 10.0
    assert stage.kube.condition(GROUP, "billing") == ("False", "ClusterNotReady")
    assert stage.brokers.calls == []
