"""The operator's door to Kubernetes against a real API server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from imago_operator.errors import BlockedError, InvalidError, RetryError
from imago_operator.kube.access import exists, may
from imago_operator.kube.credentials import CredentialsError, from_file
from imago_operator.kube.http import ApiServer
from imago_operator.kube.objects import Kubernetes
from imago_testing.kubernetes.custom_resources import CLUSTER, manifest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from imago_testing.kubernetes.api_server import ApiServerProcess

pytestmark = pytest.mark.apiserver

T = TypeVar("T")


def run(kubeconfig: Path, work: Callable[[ApiServer, Kubernetes], Awaitable[T]]) -> T:
    """Have something done with a session of somebody."""

    async def inside() -> T:
        async with ApiServer(from_file(kubeconfig)) as api:
            return await work(api, Kubernetes(api))

    return asyncio.run(inside())


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def test_what_is_applied_again_changes_nothing(api: ApiServerProcess) -> None:
    async def work(_: ApiServer, kube: Kubernetes) -> list[str]:
        answers = [await kube.apply(config_map("same", a="1")) for _again in range(2)]
        return [answer["metadata"]["resourceVersion"] for answer in answers]

    first, second = run(api.kubeconfig(), work)
    assert first == second


def test_fields_of_others_stay_and_ours_are_taken_back(api: ApiServerProcess) -> None:
    async def work(_: ApiServer, kube: Kubernetes) -> Any:
        await kube.apply(config_map("shared", a="1", b="1"))
        patch = {"data": {"a": "theirs", "c": "theirs"}, "metadata": {"labels": {"x": "theirs"}}}
        api.must(
            "PATCH",
            "/api/v1/namespaces/default/configmaps/shared?fieldManager=somebody",
            patch,
            content="application/merge-patch+json",
        )
        return await kube.apply(config_map("shared", a="2"))

    found = run(api.kubeconfig(), work)
    assert found["data"] == {"a": "2", "c": "theirs"}
    assert found["metadata"]["labels"] == {"x": "theirs"}


def test_only_the_object_that_was_seen_is_deleted_or_changed(api: ApiServerProcess) -> None:
    async def work(_: ApiServer, kube: Kubernetes) -> None:
        found = await kube.apply(config_map("seen"))
        with pytest.raises(RetryError):
            await kube.delete("ConfigMap", "default", "seen", uid="another")
        with pytest.raises(RetryError):
            await kube.patch("ConfigMap", "default", "seen", uid="another", patch={"data": {}})
        assert await kube.get("ConfigMap", "default", "seen") is not None
        for _again in range(2):  # gone already is done
            await kube.delete("ConfigMap", "default", "seen", uid=found["metadata"]["uid"])
        assert await kube.get("ConfigMap", "default", "seen") is None
        with pytest.raises(RetryError):
            await kube.patch("ConfigMap", "default", "seen", uid="gone", patch={"data": {}})

    run(api.kubeconfig(), work)


def test_a_creation_leaves_what_is_there(api: ApiServerProcess) -> None:
    async def work(_: ApiServer, kube: Kubernetes) -> Any:
        await kube.create(config_map("once", a="1"))
        await kube.create(config_map("once", a="2"))
        return await kube.get("ConfigMap", "default", "once")

    assert run(api.kubeconfig(), work)["data"] == {"a": "1"}


def test_a_long_list_is_whole(api: ApiServerProcess) -> None:
    async def work(_: ApiServer, kube: Kubernetes) -> Any:
        names = [f"many-{n}" for n in range(1100)]
        for start in range(0, len(names), 50):
            made = (kube.create(labelled(name)) for name in names[start : start + 50])
            await asyncio.gather(*made)
        found = await kube.list("ConfigMap", "default", labels="many=yes")
        short = await kube.list("ConfigMap", "default", labels="many=yes", metadata_only=True)
        assert {item["kind"] for item in (*found, *short)} == {"ConfigMap"}
        return names, [[item["metadata"]["name"] for item in items] for items in (found, short)]

    def labelled(name: str) -> dict[str, Any]:
        made = config_map(name)
        made["metadata"]["labels"] = {"many": "yes"}
        return made

    names, lists = run(api.kubeconfig(), work)
    assert [sorted(found) for found in lists] == [sorted(names)] * 2


def test_a_status_has_an_owner_of_its_own_and_loses_what_is_no_longer_said(
    api: ApiServerProcess,
) -> None:
    async def work(_: ApiServer, kube: Kubernetes) -> tuple[Any, Any]:
        made = manifest(CLUSTER, name="stated")
        made["metadata"]["namespace"] = "default"
        created = await kube.apply(made)
        said = {k: made[k] for k in ("apiVersion", "kind", "metadata")}
        old = {"resourceVersion": created["metadata"]["resourceVersion"]}
        rollout = {"revision": "r", "cause": "SpecChanged", "startedAt": "2026-01-01T00:00:00Z"}
        await kube.apply_status({**said, "status": {"clusterId": "c", "rollout": rollout}})
        await kube.apply_status({**said, "status": {"clusterId": "c"}})
        late = {**said, "metadata": {**said["metadata"], **old}}
        with pytest.raises(RetryError):
            await kube.apply_status({**late, "status": {"clusterId": "d"}})
        found = await kube.get(CLUSTER, "default", "stated")
        await kube.delete(CLUSTER, "default", "stated", uid=created["metadata"]["uid"])
        return created, found

    created, found = run(api.kubeconfig(), work)
    assert found["status"]["clusterId"] == "c"
    assert "rollout" not in found["status"]
    assert found["metadata"]["generation"] == created["metadata"]["generation"]
    managers = {(m["manager"], m.get("subresource")) for m in found["metadata"]["managedFields"]}
    assert managers == {("imago-operator", None), ("imago-operator-status", "status")}


def test_each_refusal_says_what_helps(api: ApiServerProcess) -> None:
    async def as_admin(_: ApiServer, kube: Kubernetes) -> None:
        with pytest.raises(InvalidError, match="data"):
            await kube.apply({**config_map("wrong"), "data": 3})
        with pytest.raises(BlockedError) as absent:
            await kube.apply({**config_map("x"), "metadata": {"name": "x", "namespace": "none"}})
        assert "namespace" in absent.value.until

    async def as_nobody(_: ApiServer, kube: Kubernetes) -> None:
        with pytest.raises(BlockedError) as forbidden:
            await kube.list("Pod", "default")
        assert forbidden.value.until == "the operator may list pods"
        with pytest.raises(BlockedError, match="configmaps mine"):
            await kube.apply(config_map("mine"))

    run(api.kubeconfig(), as_admin)
    run(api.kubeconfig("nobody"), as_nobody)


def test_a_client_certificate_is_as_good_as_a_token(api: ApiServerProcess) -> None:
    async def work(_: ApiServer, kube: Kubernetes) -> Any:
        return await kube.get("Namespace", "", "default")

    found = run(api.kubeconfig_with_certificate(), work)
    assert found["metadata"]["name"] == "default"


def test_what_one_may_do_is_asked_of_the_server(api: ApiServerProcess) -> None:
    async def work(server: ApiServer, _: Kubernetes) -> list[bool]:
        return [
            await may(server, "list", "", "pods", "default"),
            await exists(server, "imago.dev", "v1alpha1", "imagotopics"),
            await exists(server, "imago.dev", "v1alpha1", "imagonothings"),
            await exists(server, "nobody.example", "v1", "things"),
        ]

    assert run(api.kubeconfig(), work) == [True, True, False, False]
    assert run(api.kubeconfig("nobody"), work) == [False, True, False, False]


def test_a_kubeconfig_that_helps_nobody_is_refused_with_the_cure(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\n")
    with pytest.raises(CredentialsError, match="current context"):
        from_file(path)
