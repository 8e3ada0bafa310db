"""What Kubernetes refuses the operator is said by the objects that wait for it, of each kind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_operator.errors import BlockedError, RetryError
from imago_operator.kube.failures import failure
from imago_operator.reasons import find
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.group import GroupReconciler
from imago_operator.reconcilers.pipeline import PipelineReconciler
from imago_operator.reconcilers.rebalance import RebalanceReconciler
from imago_operator.reconcilers.topic import TopicReconciler
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.fake_contents_port import FakeContentsPort

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_operator.pipelines.state import PipelineRecord
    from imago_operator.reconcile import Context, Reached, Reconciler

KINDS: dict[str, Callable[[Context], Reconciler]] = {
    "ImagoTopic": TopicReconciler,
    "ImagoConsumerGroup": GroupReconciler,
    "ImagoRebalance": RebalanceReconciler,
    "ImagoPipeline": PipelineReconciler,
}


class Silent:
    """Brokers that do not tell of pipelines."""

    async def record(self, *_: object) -> PipelineRecord:
        raise RetryError("nobody answers", delay_s=1)

    async def raise_pipeline(self, *_: object, operator_epoch: int) -> None:
        raise AssertionError(operator_epoch)


class Refusing(Stage):
    """One object of a kind, and a server that refuses to show its cluster."""

    def __init__(self, kind: str) -> None:
        super().__init__(FakeContentsPort(), Silent())
        self.name = kind
        self.kube.put(manifest("ImagoCluster"))
        self.kube.put(manifest(kind))
        self.kube.denied = frozenset({("get", "ImagoCluster")})
        self.refuses_epoch = False
        self.reconciler = KINDS[kind](self.context(brokers=self._found))

    async def _found(self, namespace: str, cluster: str) -> Reached:
        async def epoch() -> int:
            if self.refuses_epoch:
                raise BlockedError("get secrets: 403", until="the operator may get secrets")
            return 7

        return replace(await self._brokers(namespace, cluster), epoch=epoch)

    async def look(self) -> None:
        with pytest.raises(BlockedError):
            await self.reconciler.reconcile(ObjectKey(self.name, "mq", "demo"))

    def said(self, type_: str) -> tuple[str, str] | None:
        return self.kube.condition(self.name, "demo", type_)

    @property
    def warnings(self) -> list[str]:
        return [reason for _, type_, reason in self.kube.events if type_ == "Warning"]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_right_that_lacks_is_said_once_and_named(kind: str) -> None:
    stage = Refusing(kind)
    await stage.look()
    assert stage.said("Ready") == ("False", "PermissionDenied")
    assert stage.said("Stalled") == ("True", "PermissionDenied")
    told = stage.kube.status(kind, "demo")["conditions"][0]["message"]
    assert "the operator may get ImagoCluster" in told
    assert stage.warnings == ["PermissionDenied"]
    assert find(kind, "Stalled", "PermissionDenied")
    assert find(kind, "Ready", "PermissionDenied")

    writes = stage.kube.status_writes
    stage.pass_time(300)
    await stage.look()
    assert (stage.kube.status_writes, stage.warnings) == (writes, ["PermissionDenied"])


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_taken_back_when_the_right_is_there(kind: str) -> None:
    stage = Refusing(kind)
    await stage.look()
    stage.kube.denied = frozenset()
    stage.pass_time(300)
    await stage.reconciler.reconcile(ObjectKey(kind, "mq", "demo"))
    assert stage.said("Stalled") != ("True", "PermissionDenied")
    assert stage.said("Ready") not in (None, ("False", "PermissionDenied"))


@pytest.mark.parametrize("kind", KINDS)
async def test_where_no_status_may_be_written_an_event_says_it(kind: str) -> None:
    stage = Refusing(kind)
    stage.kube.denied |= {("apply_status", kind)}
    await stage.look()
    assert stage.warnings == ["PermissionDenied"]


@pytest.mark.parametrize(
    ("message", "reason"),
    [("exceeded quota: mq", "QuotaExceeded"), ("pods is forbidden", "PermissionDenied")],
)
def test_a_quota_is_no_right(message: str, reason: str) -> None:
    error = failure("create", "pods demo", 403, json.dumps({"message": message}).encode(), {})
    assert isinstance(error, BlockedError)
    assert error.reason == reason


async def test_what_a_look_has_written_down_is_not_unsaid() -> None:
    stage = Refusing("ImagoRebalance")
    stage.kube.denied = frozenset()
    key = ObjectKey("ImagoRebalance", "mq", "demo")
    await stage.reconciler.reconcile(key)
    assert stage.kube.status("ImagoRebalance", "demo")["phase"] == "Approved"
    stage.refuses_epoch = True
    await stage.look()
    assert stage.kube.status("ImagoRebalance", "demo")["phase"] == "Running"
    assert stage.said("Stalled") == ("True", "PermissionDenied")


class Mistaken(Stage):
    """One object of a kind, and an operator with a bug."""

    def __init__(self, kind: str) -> None:
        super().__init__(FakeContentsPort(), Silent())
        self.name = kind
        self.wrong = True
        self.kube.put(manifest("ImagoCluster"))
        self.kube.put(manifest(kind))
        self.reconciler = KINDS[kind](self.context(brokers=self._found))

    async def _found(self, namespace: str, cluster: str) -> Reached:
        if self.wrong:
            raise KeyError("shards")
        return await self._brokers(namespace, cluster)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_mistake_of_our_own_ends_as_a_condition_and_an_event(kind: str) -> None:
    stage = Mistaken(kind)
    key = ObjectKey(kind, "mq", "demo")
    with pytest.raises(KeyError):
        await stage.reconciler.reconcile(key)
    assert stage.kube.condition(kind, "demo", "Stalled") == ("True", "InternalError")
    said = stage.kube.status(kind, "demo")
    assert "KeyError: 'shards'" in next(
        c["message"] for c in said["conditions"] if c["type"] == "Stalled"
    )
    assert said["observedGeneration"] == 1
    assert ("demo", "Warning", "InternalError") in stage.kube.events
    assert find(kind, "Stalled", "InternalError")

    writes = stage.kube.status_writes
    stage.pass_time(60)
    with pytest.raises(KeyError):
        await stage.reconciler.reconcile(key)
    assert stage.kube.status_writes == writes

    stage.wrong = False
    stage.pass_time(60)
    await stage.reconciler.reconcile(key)
    assert stage.kube.condition(kind, "demo", "Stalled") != ("True", "InternalError")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_mistake_is_told_where_even_the_status_cannot_be_read(kind: str) -> None:
    stage = Mistaken(kind)
    stage.kube.objects[kind, "mq", "demo"]["status"] = {"conditions": 7}
    with pytest.raises(Exception, match=r"."):
        await stage.reconciler.reconcile(ObjectKey(kind, "mq", "demo"))
    assert ("demo", "Warning", "InternalError") in stage.kube.events
