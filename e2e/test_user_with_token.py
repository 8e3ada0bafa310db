"""A user with a token: it calls the admin interface over TLS, gets another token, is deleted."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from imago_e2e import clusters
from imago_e2e.kube import is_ready, until
from imago_e2e.operator import until_ready

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube
    from imago_e2e.operator import Operator

NAMESPACE, USER, POD = "e2e-tokens", "ci", "caller"
FOLLOWED_SECONDS_MAX: Final = 150
"""Within this a pod's files follow its Secret, by the kubelet's own period."""
OVERLAP_SECONDS: Final = 180
SOON_SECONDS: Final = 5
CALLER: Final = """\
import pathlib, ssl, time, urllib.error, urllib.request
have = pathlib.Path("/user")
def said(name):
    return (have / name).read_text().strip()
trusting = ssl.create_default_context(cafile=str(have / "ca.crt"))
def call(path, token):
    asked = urllib.request.Request(said("admin") + path)
    if token:
        asked.add_header("Authorization", "Bearer " + token)
    try:
        return urllib.request.urlopen(asked, timeout=10, context=trusting).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return type(error).__name__
first = said("token")
while True:
    now = said("token")
    which = "new" if now != first else "first"
    cluster, users, nobody = (
        call("/admin/v1/cluster", now), call("/admin/v1/users", now), call("/admin/v1/cluster", "")
    )
    print("CALLED", which, cluster, users, nobody, call("/admin/v1/cluster", first), flush=True)
    time.sleep(0.5)
"""
"""Calls what its user may, what it may not, and with nothing, by the files of the user's Secret."""


@pytest.fixture(name="closed", scope="module")
def _closed(kube: Kube, operator: Operator) -> Iterator[Brokers]:
    """A cluster that checks rights, with TLS."""
    assert operator.installed()
    given = clusters.manifest(
        kube.namespace(NAMESPACE),
        "closed",
        zookeeper={"managed": {"replicas": 1, "storage": {"size": "1Gi"}}},
        authorization={"type": "Simple"},
        tls={"clients": "Permissive", "members": "Enforcing"},
    )
    yield clusters.make(kube, given)
    kube.delete_namespace(NAMESPACE)


def _user() -> dict[str, Any]:
    return {
        "apiVersion": "imago.dev/v1alpha1",
        "kind": "ImagoUser",
        "metadata": {"name": USER, "namespace": NAMESPACE},
        "spec": {
            "clusterRef": {"name": "closed"},
            "authentication": {
                "type": "Token",
                "validity": "24h",
                "renewBefore": "1h",
                "overlap": f"{OVERLAP_SECONDS}s",
            },
            "authorization": {
                "acls": [{"resource": {"type": "Cluster"}, "operations": ["describe"]}]
            },
        },
    }


def _start(kube: Kube, image: str) -> None:
    container = {
        "name": POD,
        "image": image,
        "command": ["python3", "-u", "-c", CALLER],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "user", "mountPath": "/user", "readOnly": True}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "user", "secret": {"secretName": USER, "defaultMode": 0o444}}],
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
    }
    metadata = {"name": POD, "namespace": NAMESPACE}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    until(
        lambda: is_ready(kube.get("pod", POD, "-n", NAMESPACE)),
        "the pod with the user's files is ready",
        seconds_max=120,
    )


def _called(kube: Kube) -> list[tuple[str, ...]]:
    """Return what the pod's calls were answered: which token it has; with that, with that to what
    it may not, with none, with the first token."""
    lines = kube.run("logs", POD, "-n", NAMESPACE).splitlines()
    return [tuple(line.split()[1:]) for line in lines if line.startswith("CALLED")]


def _secret(kube: Kube) -> dict[str, str]:
    data = kube.get("secret", USER, "-n", NAMESPACE)["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def test_a_token_is_served_until_its_object_is_deleted(
    kube: Kube, closed: Brokers, account: list[str]
) -> None:
    kube.apply(_user())
    until_ready(kube, "imu", NAMESPACE, USER, seconds_max=60)
    given, pods = _secret(kube), closed.uids()
    assert given["admin"].startswith("https://")
    assert "password" not in given
    _start(kube, closed.pods()[0]["spec"]["containers"][0]["image"])
    until(lambda: len(_called(kube)) > 10, "it calls", seconds_max=60)
    assert set(_called(kube)) == {("first", "200", "403", "401", "200")}

    kube.run("annotate", "imu", USER, "-n", NAMESPACE, "imago.dev/force-renew=1")
    until(lambda: _secret(kube)["token"] != given["token"], "another token", seconds_max=60)
    until(
        lambda: _called(kube)[-1][0] == "new",
        "the pod has the new token",
        seconds_max=FOLLOWED_SECONDS_MAX,
    )
    until(
        lambda: _called(kube)[-1] == ("new", "200", "403", "401", "401"),
        "the first token has ended, and the new one counts",
        seconds_max=2 * OVERLAP_SECONDS,
    )
    served = _called(kube)
    assert {call[1:4] for call in served} == {("200", "403", "401")}, "no call was refused"

    began = time.monotonic()
    kube.run("delete", "imu", USER, "-n", NAMESPACE, "--wait=false")
    until(lambda: _called(kube)[-1][1] == "401", "it is refused", seconds_max=SOON_SECONDS)
    account.append(
        f"{len(served)} calls with one token and the next, none refused; deleted: refused after"
        f" {time.monotonic() - began:.1f} s"
    )
    until(lambda: kube.find("imu", USER, "-n", NAMESPACE) is None, "it is gone", seconds_max=30)
    until(lambda: kube.find("secret", USER, "-n", NAMESPACE) is None, "its Secret", seconds_max=30)
    assert closed.uids() == pods, "no pod of the cluster was disturbed"
