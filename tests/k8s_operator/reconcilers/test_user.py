"""ImagoUsers on a server and brokers in memory: no client ever reads a password that is refused."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_operator.contents.belonging import FINALIZER
from imago_operator.contents.users import EVERY_OPERATION
from imago_operator.contents.values import SeenUser
from imago_operator.errors import InvalidError, OperatorError, RetryError
from imago_operator.reconcile import ObjectKey
from imago_testing.kubernetes.custom_resources import USER, manifest
from imago_testing.operated.users import Users
from imago_testing.searching import examples

if TYPE_CHECKING:
    from collections.abc import Mapping

RULE = {
    "effect": "Allow",
    "resource": {"type": "Topic", "name": "orders", "patternType": "prefix"},
    "operations": ["describe", "publish"],
}


@pytest.fixture(name="stage")
def _stage() -> Users:
    return Users()


async def test_a_user_gets_a_password_rules_and_a_secret_and_is_left_alone(stage: Users) -> None:
    stage.apply()
    assert await stage.rest() is None
    secret = stage.secret()
    assert secret == {
        "type": "imago",
        "provider": "imago.dev",
        "host": "demo-bootstrap.mq.svc",
        "port": "9876",
        "bootstrap": "demo-bootstrap.mq.svc:9876",
        "grpc": "demo-bootstrap.mq.svc:8081",
        "zookeeper": "demo-zookeeper.mq.svc:2181",
        "admin": "http://demo-admin.mq.svc:8080",
        "username": "ann",
        "password": stage.counting()[0],
    }
    ann = stage.brokers.users_by_name["ann"]
    assert (list(ann.rules), ann.is_super, ann.signs) == ([RULE], False, True)
    assert stage.ready() == ("True", "InSync")
    status = stage.kube.status(USER, "ann")
    assert (status["userName"], status["secretName"], status["binding"]) == (
        "ann", "ann", {"name": "ann"},
    )  # fmt: skip
    assert status["credentialsGeneration"] == 1
    assert stage.counting()[0] not in str(status)
    owner = stage.kube.objects["Secret", "mq", "ann"]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["controller"]) == (USER, True)
    assert stage.kube.objects[USER, "mq", "ann"]["metadata"]["finalizers"] == [FINALIZER]
    writes, calls = stage.kube.status_writes, len(stage.brokers.calls)
    for _ in range(5):
        stage.pass_time(300)
        assert await stage.look() is None
    assert (stage.kube.status_writes, len(stage.brokers.calls)) == (writes, calls)
    assert stage.brokers.epochs == {7}


async def test_the_resource_wins_over_what_brokers_were_told(stage: Users) -> None:
    stage.apply()
    await stage.rest()
    before = stage.secret()
    stage.brokers.users_by_name["ann"] = SeenUser(name="ann", signs=True, enabled=False)
    stage.pass_time(300)
    await stage.rest()
    ann = stage.brokers.users_by_name["ann"]
    assert (list(ann.rules), ann.enabled) == ([RULE], True)
    del stage.brokers.users_by_name["ann"], stage.brokers.passwords["ann"]
    stage.pass_time(300)
    await stage.rest()
    assert stage.secret() == before, "who has it goes on"
    assert before is not None
    assert stage.counting() == (before["password"],)


async def test_rules_are_written_as_brokers_show_them(stage: Users) -> None:
    acls = [
        {"resource": {"type": "Cluster"}, "operations": ["list", "describe"]},
        {
            "effect": "Deny",
            "resource": {"type": "Any", "patternType": "prefix"},
            "operations": ["all"],
            "hosts": ["10.0.0.0/8"],
        },
    ]
    stage.apply(authorization={"acls": acls})
    await stage.rest()
    assert list(stage.brokers.users_by_name["ann"].rules) == [
        {
            "effect": "Allow",
            "resource": {"type": "Cluster"},
            "operations": ["describe", "list"],
        },
        {
            "effect": "Deny",
            "resource": {"type": "Any", "name": "", "patternType": "prefix"},
            "operations": list(EVERY_OPERATION),
            "hosts": ["10.0.0.0/8"],
        },
    ]


async def test_limits_of_a_user_are_kept_to(stage: Users) -> None:
    stage.apply(quotas={"producerBytesPerSecond": 1 << 20, "connections": 5})
    await stage.rest()
    quotas = {"producerBytesPerSecond": 1 << 20, "connections": 5}
    assert stage.brokers.users_by_name["ann"].quotas == quotas
    stage.brokers.users_by_name["ann"] = replace(stage.brokers.users_by_name["ann"], quotas={})
    stage.pass_time(300)
    await stage.rest()
    assert stage.brokers.users_by_name["ann"].quotas == quotas
    stage.kube.edit(USER, "ann", {"quotas": {}})
    await stage.rest()
    assert stage.brokers.users_by_name["ann"].quotas == {}


async def test_super_users_are_those_that_the_cluster_lists(stage: Users) -> None:
    stage.apply("root")
    await stage.rest("root")
    assert stage.brokers.users_by_name["root"].is_super
    stage.kube.edit("ImagoCluster", "demo", {"authorization": {"type": "Simple"}})
    stage.pass_time(300)
    await stage.rest("root")
    assert not stage.brokers.users_by_name["root"].is_super


async def test_super_users_are_made_in_the_namespace_of_their_cluster_alone(stage: Users) -> None:
    """Who may make users in another namespace does not become the cluster's owner by it."""
    stage.kube.edit("ImagoCluster", "demo", {"allowedNamespaces": {"from": "All"}})
    reference = {"name": "demo", "namespace": "mq"}
    for name, user in (("root", "root"), ("other", "root"), ("ann", "ann")):
        found = manifest(USER, {"spec.userName": user, "spec.clusterRef": reference}, name=name)
        found["metadata"]["namespace"] = "apps"
        stage.kube.put(found)
    for name in ("root", "other", "ann"):
        await stage.rest(name, namespace="apps")
    assert set(stage.brokers.users_by_name) == {"ann"}
    assert stage.ready("root", namespace="apps") == ("False", "NamespaceNotAllowed")
    assert stage.ready("other", namespace="apps") == ("False", "NamespaceNotAllowed")
    stage.pass_time(10)
    stage.apply("root")
    await stage.rest("root")
    assert stage.ready("root") == ("True", "InSync"), (
        "who was there first and may not does not count"
    )
    assert stage.brokers.users_by_name["root"].is_super

    authorization = {"type": "Simple", "superUsers": ["root", "ann"]}
    stage.kube.edit("ImagoCluster", "demo", {"authorization": authorization})
    stage.pass_time(300)
    await stage.rest("ann", namespace="apps")
    assert not stage.brokers.users_by_name["ann"].is_super
    assert stage.ready("ann", namespace="apps") == ("False", "NamespaceNotAllowed")
    stage.kube.remove(USER, "ann", namespace="apps")
    await stage.reconciler.reconcile(ObjectKey(USER, "apps", "ann"))
    assert "ann" not in stage.brokers.users_by_name, "what it had let in goes with it"


async def test_clients_of_brokers_with_certificates_learn_whom_to_trust(stage: Users) -> None:
    stage.kube.edit("ImagoCluster", "demo", {"tls": {}})
    stage.put_secret("demo-s0-tls", **{"ca.crt": "PEM 1"})
    stage.apply()
    await stage.rest()
    secret = stage.secret()
    assert secret is not None
    assert (secret["ca.crt"], secret["admin"]) == ("PEM 1", "https://demo-admin.mq.svc:8080")
    password, calls = secret["password"], len(stage.brokers.calls)
    stage.put_secret("demo-s0-tls", **{"ca.crt": "PEM 2"})
    stage.pass_time(300)
    await stage.rest()
    secret = stage.secret()
    assert secret is not None
    assert (secret["ca.crt"], secret["password"]) == ("PEM 2", password)
    assert len(stage.brokers.calls) == calls, "brokers know the password"
    stage.kube.objects["ImagoCluster", "mq", "demo"]["spec"].pop("tls")
    stage.pass_time(300)
    await stage.rest()
    assert "ca.crt" not in (stage.secret() or {})


async def test_a_password_is_replaced_in_time_and_the_one_before_counts_on(stage: Users) -> None:
    stage.apply(authentication={"rotateEvery": "24h"})
    again = await stage.rest()
    assert again is not None
    assert 86_000 < again <= 86_400
    first = stage.counting()[0]
    stage.pass_time(again)
    await stage.rest()
    secret = stage.secret()
    assert secret is not None
    assert stage.counting() == (secret["password"], first)
    assert stage.asked("put_user")[-1][2]["formerSeconds"] == 600
    assert stage.kube.status(USER, "ann")["credentialsGeneration"] == 2
    assert "password.next" not in secret


async def test_a_password_is_replaced_when_somebody_asks_once(stage: Users) -> None:
    stage.apply()
    await stage.rest()
    first = stage.counting()[0]
    stage.kube.annotate(USER, "ann", **{"force-renew": "1"})
    await stage.rest()
    second = stage.counting()[0]
    assert second != first
    stage.pass_time(300)
    await stage.rest()
    assert stage.counting()[0] == second


async def test_a_password_that_somebody_keeps(stage: Users) -> None:
    stage.apply(authentication={"passwordSecretRef": {"name": "mine", "key": "pass"}})
    await stage.rest()
    assert stage.ready() == ("False", "SecretMissing")
    assert stage.brokers.calls == []
    stage.put_secret("mine", **{"pass": "of-my-own\n"})
    stage.pass_time(30)
    assert await stage.rest() == 30
    assert stage.counting() == ("of-my-own",)
    stage.put_secret("mine", **{"pass": "another-one"})
    stage.pass_time(30)
    await stage.rest()
    assert stage.counting() == ("another-one", "of-my-own")
    secret = stage.secret()
    assert secret is not None
    assert secret["password"] == "another-one"


async def test_who_writes_a_password_into_the_secret_has_it(stage: Users) -> None:
    stage.apply()
    await stage.rest()
    data = stage.kube.objects["Secret", "mq", "ann"]["data"]
    data["password"] = base64.b64encode(b"by-hand-it-is").decode()
    stage.kube.objects["Secret", "mq", "ann"]["metadata"]["resourceVersion"] = "9999"
    stage.pass_time(300)
    await stage.rest()
    assert stage.counting() == ("by-hand-it-is",)


async def test_a_secret_that_was_deleted_is_made_again(stage: Users) -> None:
    stage.apply()
    await stage.rest()
    first = stage.counting()[0]
    del stage.kube.objects["Secret", "mq", "ann"]
    stage.pass_time(300)
    await stage.rest()
    secret = stage.secret()
    assert secret is not None
    assert stage.counting() == (secret["password"], first)


async def test_a_secret_of_somebody_else_is_left_alone(stage: Users) -> None:
    stage.put_secret("ann", theirs="yes")
    stage.apply()
    await stage.rest()
    assert stage.ready() == ("False", "SecretNotOurs")
    assert stage.secret() == {"theirs": "yes"}
    assert stage.brokers.calls == []


async def test_one_that_others_vouch_for_has_no_password(stage: Users) -> None:
    stage.apply(authentication={"type": "External"})
    await stage.rest()
    secret = stage.secret()
    assert secret is not None
    assert "password" not in secret
    assert stage.counting() == ()
    stage.kube.edit(USER, "ann", {"authentication": {"type": "Password"}})
    await stage.rest()
    assert stage.counting()
    stage.kube.edit(USER, "ann", {"authentication": {"type": "External"}})
    await stage.rest()
    assert stage.counting() == (), "what it had counts no more"


async def test_whoever_shows_no_credentials_has_rules_alone(stage: Users) -> None:
    stage.apply("anonymous", authentication={"type": "External"})
    await stage.rest("anonymous")
    assert [call[2] for call in stage.asked("put_user")] == [{"rules": [RULE], "quotas": {}}]
    secret = stage.secret("anonymous")
    assert secret is not None
    assert not {"username", "password"} & set(secret)


async def test_a_cluster_that_checks_nothing_is_said(stage: Users) -> None:
    stage.kube.edit("ImagoCluster", "demo", {"authorization": {"type": "None"}})
    stage.apply()
    await stage.rest()
    assert stage.kube.condition(USER, "ann", "Warning") == ("True", "AuthorizationOff")
    config = {"acl.enabled": "true"}
    brokers = stage.kube.objects["ImagoCluster", "mq", "demo"]["spec"]["brokers"]
    stage.kube.edit("ImagoCluster", "demo", {"brokers": {**brokers, "config": config}})
    stage.pass_time(300)
    await stage.rest()
    assert stage.kube.condition(USER, "ann", "Warning") is None


async def test_a_deleted_user_is_cut_off_before_its_resource_goes(stage: Users) -> None:
    stage.apply()
    await stage.rest()
    stage.kube.remove(USER, "ann")
    assert await stage.look() is None
    assert stage.asked("delete_user") == [("delete_user", "ann")]
    assert (USER, "mq", "ann") not in stage.kube.objects
    assert stage.brokers.users_by_name == {}


async def test_a_deleted_user_waits_for_brokers_but_not_for_ever(stage: Users) -> None:
    stage.apply()
    await stage.rest()
    stage.kube.remove(USER, "ann")
    stage.brokers.silent = True
    assert await stage.look() == 10
    assert stage.ready() == ("False", "ClusterNotReady")
    stage.pass_time(901)
    assert await stage.look() is None
    assert (USER, "mq", "ann") not in stage.kube.objects
    assert ("ann", "Warning", "ReleasedUnreachable") in stage.kube.events


async def test_one_shard_that_does_not_know_holds_the_resource(stage: Users) -> None:
    stage.apply()
    await stage.rest()
    stage.kube.remove(USER, "ann")
    stage.brokers.trouble = lambda what: (
        RetryError("shard-1 lacks it", delay_s=1) if what == "delete_user" else None
    )
    assert await stage.look() == 10
    assert (USER, "mq", "ann") in stage.kube.objects
    stage.brokers.trouble = lambda _: None
    stage.pass_time(10)
    await stage.look()
    assert (USER, "mq", "ann") not in stage.kube.objects


async def test_a_user_that_is_kept(stage: Users) -> None:
    stage.apply(deletionPolicy="Retain")
    await stage.rest()
    stage.kube.remove(USER, "ann")
    assert await stage.look() is None
    assert "ann" in stage.brokers.users_by_name


async def test_of_two_resources_the_older_counts(stage: Users) -> None:
    stage.apply()
    await stage.rest()
    stage.pass_time(10)
    stage.kube.put(manifest(USER, {"spec.userName": "ann"}, name="second"))
    await stage.rest("second")
    assert stage.ready("second") == ("False", "Conflict")
    stage.kube.remove(USER, "second")
    assert "ann" in stage.brokers.users_by_name


async def test_what_brokers_refuse_is_said(stage: Users) -> None:
    stage.brokers.trouble = lambda _: InvalidError("no such user can be")
    stage.apply()
    assert await stage.rest() == 30
    assert stage.ready() == ("False", "BrokerRejected")


@given(st.lists(st.integers(0, 12), max_size=6), st.booleans())
@settings(max_examples=examples(80), deadline=None)
def test_whatever_is_cut_short_no_client_reads_a_refused_password(
    deaths: list[int], rotates: bool
) -> None:
    """The operator dies at any call; whoever reads the Secret has a password that counts."""
    asyncio.run(_with_deaths(deaths, rotates))


async def _with_deaths(deaths: list[int], rotates: bool) -> None:
    stage = Users()
    stage.apply(authentication={"rotateEvery": "1h"} if rotates else {})
    calls, due = count(), set(deaths)

    def dying(_: str) -> OperatorError | None:
        return RetryError("cut off", delay_s=1) if next(calls) in due else None

    write = stage.kube.apply

    async def apply(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        if error := dying(""):
            raise error
        return await write(manifest)

    stage.brokers.trouble = dying
    stage.kube.apply = apply  # type: ignore[method-assign]
    for step in range(40):
        try:
            await stage.look()
        except OperatorError:
            stage.start()
        if step % 9 == 8:
            stage.start()
            stage.kube.annotate(USER, "ann", **{"force-renew": str(step)})
        seen = stage.secret() or {}
        assert seen.get("password") in (None, *stage.counting())
        stage.pass_time(120)
    secret = stage.secret()
    assert secret is not None
    assert secret["password"] == stage.counting()[0]
