"""ImagoMirrors on a server in memory: what is made, and what their processes say."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

from imago_mirror.settings import read_settings
from imago_operator.contents.mirrors.objects import PORT
from imago_operator.errors import RetryError
from imago_operator.reasons.mirror import TOLD
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.mirror import MirrorReconciler
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KIND = "ImagoMirror"
COPYING: dict[str, Any] = {
    "state": "copying",
    "begun": True,
    "sourceCluster": "a",
    "targetCluster": "b",
    "topics": {"orders": {}},
    "lagMessages": 3,
    "lagSeconds": 1.5,
    "lastCopiedMs": 1_000_000_000_000,
    "troubles": [],
    "failover": {},
}


class Mirrors(Stage):
    """A stage with a cluster, and the Secret of the other one's user."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, Any] | None = None
        self.kube.put(manifest("ImagoCluster"))
        self.secret("username", "password", "ca.crt")
        self.mirror = MirrorReconciler(self.context(mirrors=self.ask))

    def secret(self, *keys: str) -> None:
        metadata = {"name": "mirror-at-b", "namespace": "mq"}
        data = dict.fromkeys(keys, "eA==")
        self.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    async def ask(self, address: str, port: int) -> Mapping[str, Any]:
        assert (address, port) == ("10.0.0.9", PORT)
        if self.told is None:
            raise RetryError("silent", delay_s=1)
        return self.told

    def made(self, **spec: Any) -> None:
        self.kube.put(manifest(KIND, {f"spec.{key}": value for key, value in spec.items()}))

    def pod(self) -> None:
        deployment = self.object("Deployment")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        metadata = {"name": "demo-mirror-1", "namespace": "mq", "labels": labels}
        status = {"podIP": "10.0.0.9"}
        self.kube.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status})

    def object(self, kind: str) -> dict[str, Any]:
        return dict(self.kube.objects[kind, "mq", "demo-mirror"])

    async def look(self) -> float | None:
        return await self.mirror.reconcile(ObjectKey(KIND, "mq", "demo"))

    def status(self) -> dict[str, Any]:
        return dict(self.kube.status(KIND, "demo"))

    def ready(self) -> tuple[str, str]:
        (condition,) = [one for one in self.status()["conditions"] if one["type"] == "Ready"]
        return condition["status"], condition["reason"]


@pytest.fixture
def stage() -> Mirrors:
    return Mirrors()


async def test_its_process_is_made_and_followed(stage: Mirrors) -> None:
    stage.made()
    assert await stage.look()
    assert stage.ready() == ("False", "Starting")
    stage.pod()
    stage.told = COPYING
    await stage.look()
    assert stage.ready() == ("True", "Copying")
    status = stage.status()
    assert (status["lagMessages"], status["lagSeconds"], status["topics"]) == (3, 1, 1)
    assert (status["sourceCluster"], status["targetCluster"]) == ("a", "b")
    assert status["lastCopiedAt"] == "2001-09-09T01:46:40Z"
    before = dict(stage.kube.objects)
    await stage.look()
    assert before.keys() == stage.kube.objects.keys()


async def test_the_process_takes_the_file_that_it_is_given(stage: Mirrors, tmp_path: Path) -> None:
    stage.made(groups=["billing"])
    await stage.look()
    text = stage.object("ConfigMap")["data"]["mirror.toml"]
    found = tomllib.loads(text)
    assert found["source"] == {"bootstrap": "demo-bootstrap.mq.svc:9876"}
    assert found["target"]["password_file"] == "/etc/imago/target/password"
    (tmp_path / "username").write_text("mirror\n")
    read = read_settings(text.replace("/etc/imago/target", str(tmp_path)))
    assert (read.name, read.state, read.topics) == ("demo", "copying", ("orders", "pay-.*"))
    assert (read.target.user, read.host, read.port) == ("mirror", "0.0.0.0", PORT)
    pod = stage.object("Deployment")["spec"]["template"]["spec"]
    assert [each["name"] for each in pod["volumes"]] == ["config", "target"]
    assert pod["automountServiceAccountToken"] is False
    ways = stage.object("NetworkPolicy")["spec"]["ingress"]
    assert ways[0]["ports"] == [{"protocol": "TCP", "port": PORT}]


async def test_a_certificate_in_place_of_a_password(stage: Mirrors) -> None:
    stage.secret("tls.crt", "tls.key", "ca.crt")
    stage.made()
    await stage.look()
    target = tomllib.loads(stage.object("ConfigMap")["data"]["mirror.toml"])["target"]
    assert target["tls_certificate_file"] == "/etc/imago/target/tls.crt"
    assert "user_file" not in target


async def test_another_state_is_another_process(stage: Mirrors) -> None:
    stage.made()
    await stage.look()
    before = stage.object("Deployment")["spec"]["template"]
    stage.made(state="FailedOver")
    await stage.look()
    assert stage.object("Deployment")["spec"]["template"] != before
    stage.pod()
    stage.told = COPYING | {"state": "failed-over", "failover": {"lacks": {"orders": 7}}}
    await stage.look()
    assert stage.ready() == ("True", "FailedOver")
    assert stage.status()["lacks"] == 7


@pytest.mark.parametrize("reason", TOLD)
async def test_what_is_in_its_way_is_said(stage: Mirrors, reason: str) -> None:
    stage.made()
    await stage.look()
    stage.pod()
    trouble = {"reason": reason, "subject": "orders", "message": "why", "cure": "do this"}
    other = trouble | {"reason": "SomethingOfALaterVersion"}
    stage.told = COPYING | {"troubles": [other, trouble]}
    await stage.look()
    assert stage.ready() == ("False", reason)
    (condition,) = stage.status()["conditions"]
    assert condition["message"] == "orders: why. do this."


async def test_without_a_cluster_a_secret_or_a_right_to_it_nothing_runs(stage: Mirrors) -> None:
    stage.made(source={"clusterRef": {"name": "nosuch"}})
    await stage.look()
    assert stage.ready() == ("False", "ClusterNotFound")
    stage.made(target={"bootstrap": "b:9876", "secretName": "nosuch"})
    await stage.look()
    assert stage.ready() == ("False", "SecretNotFound")
    stage.made(source={"clusterRef": {"name": "demo", "namespace": "other"}})
    stage.kube.put(manifest("ImagoCluster", {"metadata.namespace": "other"}))
    await stage.look()
    assert stage.ready() == ("False", "NamespaceNotAllowed")
    assert ("Deployment", "mq", "demo-mirror") not in stage.kube.objects


async def test_a_process_that_ends_tells_why(stage: Mirrors) -> None:
    stage.made()
    await stage.look()
    stage.pod()
    pod = stage.kube.objects["Pod", "mq", "demo-mirror-1"]
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    last = {"terminated": {"message": "mirror.toml: no TOML"}}
    pod["status"]["containerStatuses"] = [{"state": waiting, "lastState": last}]
    await stage.look()
    (condition,) = stage.status()["conditions"]
    assert condition["message"] == "CrashLoopBackOff: mirror.toml: no TOML"
