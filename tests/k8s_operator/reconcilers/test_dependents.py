"""Users are looked at again as soon as their cluster says something else, and not all the time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from imago_operator.errors import RetryError
from imago_operator.reconcile import ObjectKey
from imago_testing.kubernetes.custom_resources import USER, manifest
from imago_testing.operated.cluster import OperatedCluster
from imago_testing.operated.resources import resource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

ANN = ObjectKey(USER, "mq", "ann")
HEARD_LOOKS_MAX = 3
"""Looks, a second apart, between a change and the first look at a user."""


class Clusters(OperatedCluster):
    """A cluster with a user, and another cluster's user."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, cluster in (("ann", "demo"), ("bob", "other")):
            user = manifest(USER, {"spec.clusterRef.name": cluster}, name=name)
            user["metadata"]["namespace"] = "mq"
            self.kubernetes.put(user)
        self.run()
        self.look_for(10)
        self.enqueued.clear()

    def look_for(self, looks: int) -> None:
        async def often() -> None:
            for _ in range(looks):
                await self.look()

        asyncio.run(often())

    def heard(self) -> list[ObjectKey]:
        """Return the users that were to be looked at, since somebody asked last."""
        found = list(self.enqueued)
        self.enqueued.clear()
        return found


def cluster(**tls: Any) -> Clusters:
    return Clusters(resource({"spec.tls": tls, "spec.brokers.shards": 2}))


def test_nothing_new_wakes_nobody() -> None:
    found = cluster()
    found.look_for(60)
    assert found.heard() == []


def test_each_phase_of_a_new_authority_is_heard_of_at_once() -> None:
    found = cluster(ca={"overlap": "30s"})
    found.annotate(**{"force-renew": "1"})
    trusted = [_trusted(found)]
    for _ in range(300):
        found.look_for(1)
        if _trusted(found) == trusted[-1]:
            continue
        trusted.append(_trusted(found))
        found.heard()
        found.look_for(HEARD_LOOKS_MAX)
        assert ANN in found.heard()
        if len(trusted) == 3:
            return
    raise AssertionError("the former, both, the next one: not seen")


def test_only_users_of_the_cluster_hear_and_once_more_when_nothing_older_is_remembered() -> None:
    found = cluster()
    found.edit(authorization={"type": "Simple", "superUsers": ["ann"]})
    found.look_for(1)
    assert found.heard() == [ANN]
    found.look_for(30)
    assert found.heard() == [ANN]


def test_who_could_not_be_told_is_told_later(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster()
    kube = found.reconciler._dependents._context.kube
    ask = kube.list

    async def fails(kind: str, namespace: str, *, labels: str = "") -> Sequence[Mapping[str, Any]]:
        if kind == USER:
            raise RetryError("list: no answer", delay_s=1)
        return await ask(kind, namespace, labels=labels)

    monkeypatch.setattr(kube, "list", fails)
    found.edit(authorization={"type": "Simple"})
    found.look_for(8)
    assert found.heard() == []
    assert not found.errors, "the cluster's own work goes on"
    monkeypatch.setattr(kube, "list", ask)
    found.look_for(10)
    assert ANN in found.heard()


def _trusted(found: Clusters) -> str:
    secret = found.kubernetes.find("Secret", "mq", "demo-s0-tls")
    assert secret is not None
    return str(secret["data"]["ca.crt"])
