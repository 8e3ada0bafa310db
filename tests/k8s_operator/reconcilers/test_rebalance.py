"""ImagoRebalances on a server and brokers in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_operator.contents.values import SeenTopic, TopicQueues
from imago_operator.errors import InvalidError
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.rebalance import RebalanceReconciler
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.fake_contents_port import FakeContentsPort
from imago_testing.searching import examples

KIND = "ImagoRebalance"


class Moves(Stage):
    """A stage with a cluster of three shards, ten topics, and a rebalance."""

    def __init__(self, mode: str = "Drain", **spec: Any) -> None:
        self.brokers = FakeContentsPort(shard_numbers=(0, 1, 2))
        super().__init__(self.brokers)
        self.kube.put(manifest("ImagoCluster"))
        for n in range(10):
            shards = {shard: TopicQueues(4, 4) for shard in ((0, 1), (1,))[n % 2]}
            self.brokers.topics_by_name[f"t{n}"] = SeenTopic(name=f"t{n}", shards=shards)
        said = {"mode": mode, "shards": [] if mode == "Full" else [1]} | spec
        self.kube.put(manifest(KIND, {f"spec.{key}": value for key, value in said.items()}))
        self.reconciler = RebalanceReconciler(self.context())

    async def look(self) -> float | None:
        return await self.reconciler.reconcile(ObjectKey(KIND, "mq", "demo"))

    async def run(self, looks: int = 60) -> None:
        """Look until it wants to look no more; brokers do their part meanwhile."""
        for _ in range(looks):
            again = await self.look()
            self.brokers.look_like_brokers()
            if again is None:
                return
            self.pass_time(max(again, 1.0))
        raise AssertionError(self.kube.status(KIND, "demo"))

    @property
    def phase(self) -> str | None:
        return self.kube.status(KIND, "demo").get("phase")


async def test_a_drain_runs_to_its_end() -> None:
    stage = Moves()
    await stage.look()
    assert stage.phase == "Approved"
    assert stage.brokers.calls == []
    await stage.run()
    status = stage.kube.status(KIND, "demo")
    assert (stage.phase, status["plan"], status["progress"]) == (
        "Succeeded", {"topics": 10, "opened": 40, "sealed": 40}, {"done": 10, "remaining": 0},
    )  # fmt: skip
    assert stage.brokers.calls == [("drain", 1, True)]
    assert stage.kube.condition(KIND, "demo") == ("True", "Succeeded")
    kinds = {type_ for _, type_, _ in stage.kube.events}
    assert kinds == {"Normal"}


async def test_full_gives_every_topic_queues_everywhere_few_at_a_time() -> None:
    stage = Moves("Full", concurrentTopics=3)
    stage.kube.put(manifest("ImagoTopic", {"spec.topicName": "t0", "spec.placement": {"count": 2}}))
    await stage.look()
    await stage.look()
    assert len(stage.brokers.calls) == 3
    await stage.run()
    assert stage.phase == "Succeeded"
    spread = {n: sorted(t.open_on) for n, t in stage.brokers.topics_by_name.items()}
    assert spread == {f"t{n}": [0, 1, 2] for n in range(10)} | {"t0": [0, 1]}


async def test_one_that_waits_for_approval_does_nothing_until_then() -> None:
    stage = Moves("Seal", approval="Manual")
    assert await stage.look() is None
    assert stage.phase == "Proposed"
    writes = stage.kube.status_writes
    stage.pass_time(300)
    assert await stage.look() is None
    assert (stage.kube.status_writes, stage.brokers.calls) == (writes, [])
    stage.kube.annotate(KIND, "demo", approve="true")
    await stage.run()
    assert stage.phase == "Succeeded"
    assert stage.brokers.calls == [("drain", 1, False)]


async def test_one_that_is_stopped_is_taken_back() -> None:
    stage = Moves()
    for _ in range(3):
        await stage.look()
        stage.brokers.look_like_brokers()
    stage.kube.annotate(KIND, "demo", stop="true")
    await stage.run()
    assert (stage.phase, stage.kube.condition(KIND, "demo")) == ("Failed", ("False", "Stopped"))
    assert stage.brokers.calls == [("drain", 1, True), ("undrain", 1)]


async def test_one_that_was_taken_back_by_others_does_not_begin_again() -> None:
    stage = Moves()
    await stage.look()
    await stage.look()
    await stage.brokers.undrain((), 1, operator_epoch=7)
    await stage.run()
    assert stage.kube.condition(KIND, "demo") == ("False", "TakenBack")
    assert stage.phase == "Failed"
    assert stage.brokers.cordoned == set()


async def test_what_brokers_refuse_is_told_and_tried_again() -> None:
    stage = Moves("Fill", shards=[2])
    await stage.look()
    stage.brokers.trouble = lambda _: InvalidError("no")
    again = await stage.look()
    assert again == 30.0
    assert stage.kube.condition(KIND, "demo") == ("False", "BrokerRejected")
    stage.brokers.trouble = lambda _: None
    await stage.run()
    assert stage.phase == "Succeeded"


async def test_silence_is_told_and_changes_nothing() -> None:
    stage = Moves()
    stage.brokers.silent = True
    assert await stage.look() == 10.0
    assert stage.kube.condition(KIND, "demo") == ("False", "ClusterNotReady")
    assert stage.phase is None


async def test_a_wrong_spec_is_told() -> None:
    stage = Moves("Full", shards=[1])
    assert await stage.look() is None
    assert stage.kube.condition(KIND, "demo") == ("False", "InvalidSpec")


class Died(BaseException):
    """The operator's process ends here."""


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["Full", "Drain", "Seal", "Fill"]),
    st.sampled_from([{}, {"topics": {"include": ["t*"]}}]),
    st.lists(st.integers(1, 40), max_size=3),
)
def test_an_operator_that_dies_at_any_call_is_followed_by_one_that_goes_on(
    mode: str, chosen: dict[str, Any], deaths: list[int]
) -> None:
    async def story() -> None:
        stage = Moves(mode, **chosen, **({"shards": [2]} if mode == "Fill" else {}))
        left: list[int] = [0]
        watch(stage, left)
        for death in [*deaths, 0]:
            left[0] = death
            stage.reconciler = RebalanceReconciler(stage.context())
            try:
                await stage.run()
            except Died:
                continue
        assert stage.phase == "Succeeded"
        twins = [call for call in stage.brokers.calls if stage.brokers.calls.count(call) > 1]
        assert len(twins) <= 2 * len(deaths) * 4, "done again at most what was under way"

    asyncio.run(story())


def watch(stage: Moves, left: list[int]) -> None:
    """Have the process die before or after the n-th call to a server; 0: never."""

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

    for name in ("get", "list", "apply_status", "event"):
        setattr(stage.kube, name, counted(getattr(stage.kube, name)))
    for name in ("topics", "shards", "drain", "spread", "move", "seal"):
        setattr(stage.brokers, name, counted(getattr(stage.brokers, name)))


@pytest.mark.parametrize("mode", ["Full", "Drain", "Seal", "Fill"])
async def test_one_that_is_being_deleted_is_left_as_it_is(mode: str) -> None:
    stage = Moves(mode)
    await stage.look()
    found = stage.kube.objects[KIND, "mq", "demo"]
    found["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    assert await stage.look() is None
    assert stage.brokers.calls == []
