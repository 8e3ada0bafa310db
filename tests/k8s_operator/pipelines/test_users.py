"""Pipelines on clusters that check rights: each is a user of its own, or one that is named."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from imago_operator.contents.users import rule_of
from imago_operator.model.desired import OperatorInfo
from imago_operator.pipelines import render, user
from imago_operator.pipelines.desired import PipelineAccess, desired_pipeline
from imago_operator.pipelines.state import PipelineRecord
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.pipeline import PipelineReconciler
from imago_operator.spec.kinds import PIPELINE, USER
from imago_testing.kubernetes.custom_resources import manifest
from imago_testing.kubernetes.fake_kube_port import Stage
from imago_testing.operated.pipelines import desired

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN = "lake-pipeline"
SOURCE = {"topics": ["refunds", "orders"], "groupName": "lake"}


class Brokers:
    """Those of a cluster that lets every run write."""

    async def record(self, brokers: Sequence[str], name: str) -> PipelineRecord:  # noqa: ARG002  any
        return PipelineRecord(epoch=0)

    async def raise_pipeline(
        self, brokers: Sequence[str], name: str, epoch: int, *, operator_epoch: int
    ) -> None:
        pass


class Pipelines(Stage):
    """A cluster, a pipeline on it, and an operator."""

    def __init__(self, **spec: Any) -> None:
        super().__init__(pipelines=Brokers())
        self.kube.forbidden = frozenset({"SparkApplication"})
        self.kube.put(manifest("ImagoCluster", {"spec.authorization": {"type": "Simple"}}))
        account = {"kind": "ServiceAccount", "apiVersion": "v1"}
        self.kube.put(account | {"metadata": {"name": "imago-spark"}})
        said = {f"spec.{name}": value for name, value in ({"source": SOURCE} | spec).items()}
        self.kube.put(manifest(PIPELINE.name, said, "lake"))
        self.reconciler = PipelineReconciler(self.context())

    async def look(self, times: int = 6) -> None:
        for _ in range(times):
            await self.reconciler.reconcile(ObjectKey(PIPELINE.name, "mq", "lake"))

    def ready(self) -> tuple[str, str] | None:
        return self.kube.condition(PIPELINE.name, "lake")

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [one for (kind, *_), one in self.kube.objects.items() if kind == "Job"]

    def user(self, name: str = OWN) -> dict[str, Any] | None:
        return self.kube.objects.get((USER.name, "mq", name))

    def settle_user(self, name: str = OWN, secret: str = OWN) -> None:
        """Have brokers know the user."""
        found = self.kube.objects[USER.name, "mq", name]
        found["status"] = {
            "observedGeneration": found["metadata"]["generation"],
            "secretName": secret,
            "conditions": [{"type": "Ready", "status": "True", "reason": "InSync"}],
        }


def driver_of(run: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return environment and volumes of a run's driver, by name."""
    spec = run["spec"]["template"]["spec"]
    env = {one["name"]: one for one in spec["containers"][0]["env"]}
    return env, {one["name"]: one for one in spec["volumes"]}


async def test_a_pipeline_gets_a_user_that_may_read_its_topics_and_no_more() -> None:
    stage = Pipelines(user={})
    await stage.look()
    assert (stage.ready(), stage.runs) == (("False", "UserNotReady"), [])
    made = stage.user()
    assert made is not None
    assert made["metadata"]["ownerReferences"][0]["kind"] == PIPELINE.name
    spec = USER.read(made)
    assert spec.user_name == "mq.lake"
    rules = [rule_of(acl) for acl in spec.authorization.acls]
    assert [(r["resource"]["type"], r["resource"]["name"], *r["operations"]) for r in rules] == [
        ("Topic", "orders", "subscribe"),
        ("Topic", "refunds", "subscribe"),
        ("Group", "IMAGO_SPARK", "subscribe"),
        ("Group", "lake", "subscribe"),
        ("Pipeline", "mq.lake", "publish"),
    ]
    assert all("patternType" not in rule["resource"] for rule in rules)
    stage.settle_user()
    await stage.look()
    (run,) = stage.runs
    env, volumes = driver_of(run)
    name = {"secretKeyRef": {"name": OWN, "key": "username"}}
    assert env["IMAGO_USER"]["valueFrom"] == name
    assert env["IMAGO_PASSWORD_FILE"]["value"] == "/etc/imago/user/password"
    assert "IMAGO_TLS_CA" not in env
    assert volumes["credentials"] == {"name": "credentials", "secret": {"secretName": OWN}}
    executor = json.loads(
        stage.kube.objects["ConfigMap", "mq", "lake-pipeline"]["data"]["executor.json"]
    )
    assert volumes["credentials"] in executor["spec"]["volumes"]
    mounts = executor["spec"]["containers"][0]["volumeMounts"]
    assert {"name": "credentials", "mountPath": "/etc/imago/user", "readOnly": True} in mounts


async def test_without_a_user_nothing_is_made_and_nothing_is_mounted() -> None:
    stage = Pipelines()
    await stage.look()
    (run,) = stage.runs
    env, volumes = driver_of(run)
    assert "IMAGO_USER" not in env
    assert "credentials" not in volumes
    assert stage.user() is None


async def test_a_run_talks_to_brokers_with_certificates_over_tls() -> None:
    stage = Pipelines(user={})
    stage.kube.edit("ImagoCluster", "demo", {"tls": {}})
    await stage.look(1)
    stage.settle_user()
    await stage.look()
    env, _ = driver_of(stage.runs[0])
    assert env["IMAGO_TLS_CA"]["value"] == "/etc/imago/user/ca.crt"


async def test_rights_follow_the_topics_before_the_next_run_begins() -> None:
    stage = Pipelines(user={})
    await stage.look(1)
    stage.settle_user()
    await stage.look()
    stage.kube.edit(PIPELINE.name, "lake", {"source": {"topics": ["bills"]}})
    await stage.look()
    assert stage.runs == []
    made = stage.user()
    assert made is not None
    named = [acl["resource"]["name"] for acl in made["spec"]["authorization"]["acls"]]
    assert named == ["bills", "IMAGO_SPARK", "mq.lake"]
    made["metadata"]["generation"] += 1
    await stage.look()
    assert (stage.ready(), stage.runs) == (("False", "UserNotReady"), [])
    stage.settle_user()
    await stage.look()
    assert len(stage.runs) == 1


async def test_a_user_that_is_named_is_taken_as_it_is() -> None:
    stage = Pipelines(user={"name": "etl"})
    await stage.look()
    assert (stage.ready(), stage.runs) == (("False", "UserNotReady"), [])
    stage.kube.put(manifest(USER.name, {}, name="etl"))
    stage.settle_user("etl", "etl-secret")
    await stage.look()
    env, volumes = driver_of(stage.runs[0])
    assert env["IMAGO_USER"]["valueFrom"]["secretKeyRef"]["name"] == "etl-secret"
    assert volumes["credentials"]["secret"] == {"secretName": "etl-secret"}
    assert stage.user() is None


async def test_a_user_of_another_cluster_is_of_no_use() -> None:
    stage = Pipelines(user={"name": "etl"})
    stage.kube.put(manifest(USER.name, {"spec.clusterRef": {"name": "other"}}, name="etl"))
    stage.settle_user("etl")
    await stage.look()
    assert (stage.ready(), stage.runs) == (("False", "UserNotReady"), [])


async def test_somebody_elses_user_is_not_taken_over() -> None:
    stage = Pipelines(user={})
    theirs = stage.kube.put(manifest(USER.name, {}, name=OWN))
    stage.settle_user()
    before = json.dumps(theirs["spec"])
    await stage.look()
    assert (stage.ready(), stage.runs) == (("False", "UserNotOurs"), [])
    assert stage.kube.condition(PIPELINE.name, "lake", "Stalled") == ("True", "UserNotOurs")
    assert json.dumps(stage.kube.objects[USER.name, "mq", OWN]["spec"]) == before


async def test_an_own_user_goes_when_it_is_no_longer_wanted() -> None:
    stage = Pipelines(user={})
    await stage.look(1)
    stage.settle_user()
    await stage.look()
    stage.kube.edit(PIPELINE.name, "lake", {"user": {"name": "etl"}})
    await stage.look()
    assert stage.user() is None


def test_names_of_users_are_short_enough_and_of_one_pipeline_each() -> None:
    assert user.user_name(desired({"spec.user": {}})) == "data.lake"
    names = set()
    for ending in "ab":
        made = manifest(PIPELINE.name, {"spec.user": {}}, "p" * 39 + ending)
        made["metadata"] |= {"namespace": "n" * 63, "uid": "u"}
        read = desired_pipeline(made, OperatorInfo(version="0.1.0"))
        names.add(user.user_name(read))
        USER.read(user.own_user(read))
    assert len(names) == 2
    assert {len(name) for name in names} == {64}


def test_a_user_with_a_certificate_shows_it_and_has_no_password() -> None:
    access = PipelineAccess(secret="s", encrypted=True, shows=True)
    made = replace(desired({"spec.user": {"name": "ann"}}), access=access)
    env, _ = driver_of(json.loads(json.dumps(render.run(made, render.JOB, 1))))
    assert env["IMAGO_TLS_CERTIFICATE"]["value"].endswith("/tls.crt")
    assert env["IMAGO_TLS_KEY"]["value"].endswith("/tls.key")
    assert not {"IMAGO_USER", "IMAGO_PASSWORD_FILE"} & set(env)
    ann = manifest(USER.name, {"spec.authentication": {"type": "Tls"}}, name="ann")
    ann["metadata"]["uid"] = "u"
    assert user.seen_user(ann, "").shows


def test_a_user_with_a_token_is_nobody_to_a_run() -> None:
    for way, is_ready in (("Password", True), ("Token", False)):
        ann = manifest(USER.name, {"spec.authentication": {"type": way}}, name="ann")
        ann["metadata"] |= {"uid": "u", "generation": 1}
        conditions = [{"type": "Ready", "status": "True", "reason": "InSync"}]
        ann["status"] = {
            "observedGeneration": 1,
            "secretName": "ann",
            "conditions": conditions,
        }
        seen = user.seen_user(ann, "")
        assert bool(seen.secret) == is_ready
        assert ("a token, which opens the admin interface alone" in seen.said) != is_ready


@pytest.mark.parametrize("kind", [render.JOB, render.SPARK_APPLICATION])
def test_no_object_of_a_run_has_a_secret_in_it(kind: str) -> None:
    """They name the Secret; who may read Jobs reads no password."""
    made = replace(desired({"spec.user": {}}), access=PipelineAccess(secret="s", encrypted=True))
    text = yaml.safe_dump(json.loads(json.dumps([render.run(made, kind, 1)])))
    assert "secretName: s" in text
    assert "IMAGO_PASSWORD_FILE" in text
    assert "IMAGO_PASSWORD\n" not in text
