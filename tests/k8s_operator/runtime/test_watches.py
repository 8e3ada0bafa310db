"""Which keys come of which events, whether watches tell of everything, and what health says."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import aiohttp
import kopf
import pytest

from imago_operator.contents.belonging import FINALIZER
from imago_operator.kube.credentials import Credentials
from imago_operator.kube.objects import Kubernetes
from imago_operator.reconcile import ObjectKey
from imago_operator.runtime.audit import Audit
from imago_operator.runtime.handlers import connection, settings
from imago_operator.runtime.loop import Loop, Sources
from imago_operator.runtime.metrics import Metrics
from imago_operator.runtime.watched import CHILDREN, owners_of
from imago_operator.runtime.web import serving
from imago_testing.kubernetes.custom_resources import TOPIC, manifest
from imago_testing.kubernetes.fake_api_server import Call, FakeApiServer

NOW = datetime(2026, 1, 2, 3, 5, 0, tzinfo=UTC)
CLUSTER = ObjectKey("ImagoCluster", "mq", "demo")


class Topics:
    """A reconciler that has nothing to do."""

    kind = TOPIC

    async def reconcile(self, key: ObjectKey) -> float | None:  # noqa: ARG002  a port's
        return None


def loop() -> Loop:
    metrics = Metrics(lambda: 0.0)
    return Loop([Topics()], Sources(clock=lambda: 0.0, random=lambda: 0.5), metrics)


def child(labels: dict[str, str], *owners: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "x", "namespace": "mq", "labels": labels, "ownerReferences": list(owners)}
    return {"metadata": metadata}


def owner(api_version: str, kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "name": name}


CASES = [
    (child({"imago.dev/cluster": "demo"}), [CLUSTER]),
    (
        child({"imago.dev/cluster": "demo"}, owner("imago.dev/v1alpha1", "ImagoCluster", "demo")),
        [CLUSTER],
    ),
    (
        child({}, owner("imago.dev/v1alpha1", "ImagoPipeline", "fill")),
        [ObjectKey("ImagoPipeline", "mq", "fill")],
    ),
    (child({}, owner("apps/v1", "StatefulSet", "demo-s0")), []),
    ({"metadata": {"name": "x", "namespace": "mq"}}, []),
]


@pytest.mark.parametrize(("found", "keys"), CASES)
def test_a_change_of_a_child_is_about_its_owner(
    found: dict[str, Any], keys: list[ObjectKey]
) -> None:
    assert list(owners_of(found)) == keys


def test_only_labelled_children_are_watched() -> None:
    found = settings(scan=False).watching.label_selectors
    for watched in CHILDREN:
        assert found[watched.group, watched.version, watched.plural] == watched.labels
        assert watched.labels


def test_confined_to_namespaces_kopf_needs_nothing_of_the_whole_cluster() -> None:
    assert settings(scan=False).scanning.disabled
    assert not settings(scan=True).scanning.disabled


def test_kopf_gets_our_credentials() -> None:
    found = connection(
        Credentials(server="https://k", ca=b"CA", certificate=b"C", key=b"K", static_token="t")
    )
    assert isinstance(found, kopf.ConnectionInfo)
    assert (found.server, found.token, found.insecure) == ("https://k", "t", False)
    assert found.ca_data == b"Q0E="


async def test_what_no_watch_has_told_of_is_found() -> None:
    fake, work = FakeApiServer(), loop()
    for name in ("told", "untold"):
        topic = manifest(TOPIC, name=name)
        topic["metadata"]["namespace"] = "mq"
        fake.put(topic)
    kube = Kubernetes(fake)  # type: ignore[arg-type]  # it has `call`
    audit = Audit(kube, work, ("mq",), lambda: NOW)
    work.seen(ObjectKey(TOPIC, "mq", "told"), gone=False)
    assert await audit.look() == [ObjectKey(TOPIC, "mq", "untold")]
    work.seen(ObjectKey(TOPIC, "mq", "untold"), gone=False)
    assert await audit.look() == []


async def test_what_goes_during_the_audit_is_not_missed() -> None:
    fake, work = FakeApiServer(), loop()
    topic = manifest(TOPIC, name="going")
    topic["metadata"]["namespace"] = "mq"
    fake.put(topic)

    def goes(call: Call) -> None:
        if (call.verb, call.name) == ("get", "going"):
            fake.objects.clear()

    fake.before = goes
    kube = Kubernetes(fake)  # type: ignore[arg-type]  # it has `call`
    assert await Audit(kube, work, ("mq",), lambda: NOW).look() == []


async def test_what_is_told_after_the_audit_is_no_longer_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("imago_operator.runtime.audit.EVERY_S", 0.0)
    fake, work = FakeApiServer(), loop()
    topic = manifest(TOPIC, name="late")
    topic["metadata"]["namespace"] = "mq"
    fake.put(topic)
    audit = Audit(Kubernetes(fake), work, ("mq",), lambda: NOW)  # type: ignore[arg-type]  # `call`
    running = asyncio.create_task(audit.run())
    async with asyncio.timeout(50):
        while not audit.missed:  # noqa: ASYNC110  it has no event to wait for
            await asyncio.sleep(0)
    running.cancel()
    work.seen(ObjectKey(TOPIC, "mq", "late"), gone=False)
    assert audit.missed == []


async def test_what_is_new_may_not_have_been_told_yet() -> None:
    fake = FakeApiServer()
    topic = manifest(TOPIC, name="new")
    topic["metadata"] |= {"namespace": "mq", "creationTimestamp": "2026-01-02T03:04:45Z"}
    fake.put(topic)
    kube = Kubernetes(fake)  # type: ignore[arg-type]  # it has `call`
    assert await Audit(kube, loop(), ("mq",), lambda: NOW).look() == []


async def test_health_and_figures_are_served() -> None:
    metrics, ill = Metrics(lambda: 1000.0), list[str]()
    work = loop()
    metrics.watch_work(lambda: work.depth, work.running)
    metrics.finished(TOPIC, "done", 0.2)
    metrics.called("list", "pods", 200)
    health = serving("127.0.0.1", 0, metrics.registry, ill=lambda: ill, unready=lambda: ["starts"])
    async with health as port, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(path) as answer:
                return answer.status, await answer.text()

        assert (await get("/healthz"))[0] == 200
        assert await get("/readyz") == (503, '{"ready": false, "reasons": ["starts"]}')
        ill.append("ImagoTopic mq/a does not return")
        assert (await get("/healthz"))[0] == 503
        text = (await get("/metrics"))[1]
    assert 'imago_operator_reconcile_total{kind="ImagoTopic",outcome="done"} 1.0' in text
    assert 'imago_operator_last_success_timestamp_seconds{kind="ImagoTopic"} 1000.0' in text
    assert "imago_operator_oldest_reconcile_start_timestamp_seconds 0.0" in text


def test_the_finalizer_of_topics_is_not_kopfs() -> None:
    """Kopf takes its own off whatever none of its handlers needs it for: that is, everything."""
    assert settings(scan=True).persistence.finalizer != FINALIZER
