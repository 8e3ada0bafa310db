"""A user of a closed cluster: made, used, given another password under load, deleted."""

from __future__ import annotations

import base64
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters
from imago_e2e.clients import Load, drivers_in_pod
from imago_e2e.kube import is_ready, until
from imago_e2e.operator import until_ready
from imago_testing.interop.drivers import ROCKETMQ5
from imago_testing.interop.pairs import rocketmq_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator
    from imago_testing.interop.streams import Stream

NAMESPACE, USER = "e2e-users", "ann"
FOLLOWED_SECONDS_MAX: Final = 150
"""Within this a pod's files follow its Secret, by the kubelet's own period."""
SOON_SECONDS: Final = 5
FOLLOWER: Final = """\
import asyncio, pathlib, sys
from imago_client import Client, ClientConfig, Message
have = pathlib.Path("/user")
def said(name):
    return (have / name).read_text().strip()
async def main():
    config = ClientConfig(
        bootstrap=(said("bootstrap"),), user=said("username"),
        password_file=str(have / "password"), tls_ca_file=str(have / "ca.crt"),
    )
    sent = wrong = 0
    first = said("password")
    async with Client(config) as client:
        producer = client.producer()
        while True:
            try:
                await producer.send(Message(sys.argv[1], b"x"))
                sent += 1
            except Exception as error:
                wrong += 1
                print("ERROR", type(error).__name__, error, flush=True)
            if (sent + wrong) % 20 == 0:
                which = "new" if said("password") != first else "old"
                print("SENT", sent, wrong, which, flush=True)
            await asyncio.sleep(0.05)
asyncio.run(main())
"""
"""Sends with what the user's Secret says, mounted as files, and says which password it has."""


@pytest.fixture(name="closed", scope="module")
def _closed(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster that checks rights, with TLS for clients and between members."""
    assert operator.installed()
    managed = {"replicas": 1, "storage": {"size": "1Gi"}}
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        "closed",
        zookeeper={"managed": managed},
        authorization={"type": "Simple"},
        tls={"clients": "Permissive", "members": "Enforcing"},
    )
    yield clusters.make(kube, given)
    kube.delete_namespace(NAMESPACE)


def _user(topic: str) -> dict[str, Any]:
    def allow(kind: str, *operations: str) -> dict[str, Any]:
        resource = {"type": kind, "name": topic, "patternType": "prefix"}
        return {"resource": resource, "operations": list(operations)}

    return {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": "ImagoUser",
        "metadata": {"name": USER, "namespace": NAMESPACE},
        "spec": {
            "clusterRef": {"name": "closed"},
            "authorization": {
                "acls": [
                    allow("Topic", "publish", "subscribe", "create", "alter", "describe"),
                    allow("Group", "subscribe"),
                ]
            },
        },
    }


def _secret(kube: Kube) -> dict[str, str]:
    data = kube.get("secret", USER, "-n", NAMESPACE)["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def _follower(kube: Kube, image: str, topic: str) -> None:
    container = {
        "name": "follower",
        "image": image,
        "command": ["python3", "-u", "-c", FOLLOWER, topic],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "user", "mountPath": "/user", "readOnly": True}],
    }
    volumes = [{"name": "user", "secret": {"secretName": USER, "defaultMode": 0o444}}]
    spec = {
        "containers": [container],
        "volumes": volumes,
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
    }
    metadata = {"name": "follower", "namespace": NAMESPACE}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    until(
        lambda: is_ready(kube.get("pod", "follower", "-n", NAMESPACE)),
        "the pod with the user's files is ready",
        seconds_max=60,
    )


def _told(kube: Kube) -> tuple[int, int, str, list[str]]:
    """Return how often the follower sent, how often it failed, its password, its errors."""
    lines = kube.run("logs", "follower", "-n", NAMESPACE).splitlines()
    counts = [line.split() for line in lines if line.startswith("SENT")]
    last = counts[-1] if counts else ["", "0", "0", "old"]
    return int(last[1]), int(last[2]), last[3], [x for x in lines if x.startswith("ERROR")]


def _replace(kube: Kube, running: Load, given: dict[str, str]) -> None:
    """Have the password replaced: neither client is told of an error, and one goes on with it."""
    kube.run("annotate", "imu", USER, "-n", NAMESPACE, "imago.dev/force-renew=1")
    until(
        lambda: _secret(kube)["password"] != given["password"],
        "the user has another password",
        seconds_max=30,
    )
    until(
        lambda: _told(kube)[2] == "new",
        "the follower has the new password",
        seconds_max=FOLLOWED_SECONDS_MAX,
    )
    sent = _told(kube)[0]
    until(lambda: _told(kube)[0] > sent + 50, "it sends with it", seconds_max=60)
    running.go_on(100)
    assert _told(kube)[3] == []
    running.unharmed()


def _cut_off(kube: Kube, stream: Stream) -> float:
    """Delete the user: both clients are refused soon, and for good; return after how long."""
    began = time.monotonic()
    kube.run("delete", "imu", USER, "-n", NAMESPACE, "--wait=false")
    until(lambda: bool(stream.errors), "the original client is refused", seconds_max=SOON_SECONDS)
    until(lambda: bool(_told(kube)[3]), "the follower is refused", seconds_max=SOON_SECONDS)
    seconds = time.monotonic() - began
    acknowledged = len(stream.acknowledged)
    until(lambda: len(stream.errors) > 20, "it stays refused", seconds_max=60)
    assert len(stream.acknowledged) == acknowledged
    assert USER in str(next(iter(stream.errors.values())))
    return seconds


def test_a_user_is_served_until_its_object_is_deleted(
    kube: Kube, closed: Brokers, client_pod: str, topic: str, tmp_path: Path, account: list[str]
) -> None:
    kube.apply(_user(topic))
    until_ready(kube, "imu", NAMESPACE, USER, seconds_max=30)
    given, pods = _secret(kube), closed.uids()
    assert given["bootstrap"] == closed.bootstrap
    image = closed.pods()[0]["spec"]["containers"][0]["image"]
    flags = (f"-Dinterop.user={USER}", f"-Dinterop.password={given['password']}")
    with ExitStack() as stack:
        started = drivers_in_pod(client_pod, tmp_path, (ROCKETMQ5,), flags=flags)
        driver = stack.enter_context(started)[ROCKETMQ5]
        named = f"{topic}-java"
        closed.make_topic(named)
        stream, reader = rocketmq_pair(stack, driver, 5, closed.bootstrap, named, make=False)
        stack.enter_context(reader)
        stack.enter_context(stream)
        running = Load([(stream, reader)])
        running.go_on(100)
        closed.make_topic(f"{topic}-python")
        _follower(kube, image, f"{topic}-python")
        until(lambda: _told(kube)[0] > 50, "the follower sends", seconds_max=60)
        _replace(kube, running, given)
        sent = len(stream.acknowledged), _told(kube)[0]
        seconds = _cut_off(kube, stream)
        account.append(
            f"{sent[0]} sent by the original client and {sent[1]} by the one that follows its"
            f" Secret, over another password, without an error; deleted: refused after"
            f" {seconds:.1f} s"
        )
    until(lambda: kube.find("imu", USER, "-n", NAMESPACE) is None, "it is gone", seconds_max=30)
    until(lambda: kube.find("secret", USER, "-n", NAMESPACE) is None, "its Secret", seconds_max=30)
    assert closed.uids() == pods, "no pod of the cluster was disturbed"
