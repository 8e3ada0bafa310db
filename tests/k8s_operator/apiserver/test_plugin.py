"""`kubectl imago` with the real kubectl and a real API server: orders, rights, and a handover.

There are no nodes: `kubectl exec` runs here, and what answers in place of brokers is made up.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from rig.build import programs

from imago_operator.kube.resources import RESOURCES
from imago_testing.kubernetes import local_exec_kubectl
from imago_testing.kubernetes.custom_resources import CLUSTER, REBALANCE, manifest
from imago_testing.kubernetes.plugin import Kube

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from imago_testing.kubernetes.api_server import ApiServerProcess
    from imago_testing.kubernetes.plugin import Done

pytestmark = [pytest.mark.apiserver]

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
LOOK: list[dict[str, Any]] = [
    {"apiGroups": ["imago.dev"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
]
ORDER: list[dict[str, Any]] = [
    {
        "apiGroups": ["imago.dev"],
        "resources": ["imagoclusters", "imagorebalances"],
        "verbs": ["patch"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
]
"""What docs/operator.md says that somebody needs who only looks, and who gives orders."""
PODS = ("demo-s0-0", "demo-s0-1", "demo-s1-0")


@pytest.fixture(scope="module")
def namespace(api: ApiServerProcess) -> str:
    """A namespace with a cluster and pods of it, one viewer and one who may give orders."""
    name = api.namespace("plugin")
    for person, rules in (("viewer", LOOK), ("orderer", [*LOOK, *ORDER])):
        api.must("POST", f"{RBAC}/{name}/roles", {"metadata": {"name": person}, "rules": rules})
        group = "rbac.authorization.k8s.io"
        binding = {
            "metadata": {"name": person},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": person},
            "subjects": [{"apiGroup": group, "kind": "User", "name": person}],
        }
        api.must("POST", f"{RBAC}/{name}/rolebindings", binding)
    api.must("POST", RESOURCES[CLUSTER].path(name), manifest(CLUSTER))
    for pod in PODS:
        api.must("POST", f"/api/v1/namespaces/{name}/pods", broker_pod(pod))
    return name


def broker_pod(name: str) -> dict[str, Any]:
    labels = {
        "imago.dev/cluster": "demo",
        "imago.dev/component": "broker",
        "imago.dev/shard": name.removeprefix("demo-s").partition("-")[0],
    }
    container = {"name": "broker", "image": "imago/broker"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}


class Plugin:
    """Calls of the plugin by one person."""

    def __init__(self, api: ApiServerProcess, namespace: str, kube: Kube, person: str) -> None:
        self._api, self._namespace, self._kube = api, namespace, kube
        self._options = ("--kubeconfig", str(api.kubeconfig(person, namespace)))

    def run(self, *words: str) -> Done:
        return self._kube.run(*words, *self._options)

    def notes(self, kind: str, name: str) -> dict[str, str]:
        """Return the annotations that an object has."""
        path = RESOURCES[kind].path(self._namespace, name)
        found: dict[str, str] = self._api.must("GET", path)["metadata"].get("annotations", {})
        return found


@pytest.fixture(name="kube")
def _kube(
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Kube:
    program = tmp_path / "kubectl"
    program.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -I -S {local_exec_kubectl.__file__} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("KUBECTL", str(program))
    monkeypatch.setenv("LOCAL_EXEC", str(tmp_path / "exec.json"))
    # kubectl keeps there what the server can do.
    monkeypatch.setenv("KUBECACHEDIR", str(tmp_path_factory.getbasetemp() / "kubectl"))
    told(tmp_path, {})
    return Kube(tmp_path / "world.json", capsys, monkeypatch)


def told(folder: Path, brokers: dict[str, int]) -> None:
    """Tell the kubectl of this test which ports stand for brokers."""
    known = {"kubectl": str(programs() / "kubectl"), "brokers": brokers}
    (folder / "exec.json").write_text(json.dumps(known))


@pytest.fixture(name="orderer")
def _orderer(api: ApiServerProcess, namespace: str, kube: Kube) -> Plugin:
    return Plugin(api, namespace, kube, "orderer")


def test_a_pause_is_set_and_taken_away(orderer: Plugin) -> None:
    assert orderer.run("pause", "demo").code == 0
    assert orderer.notes(CLUSTER, "demo")["imago.dev/pause-reconciliation"] == "true"
    assert orderer.run("pause", "demo").code == 0, "again is no fault"
    assert orderer.run("resume", "demo").code == 0
    assert "imago.dev/pause-reconciliation" not in orderer.notes(CLUSTER, "demo")
    assert orderer.run("resume", "demo").code == 0


def test_a_restart_is_ordered_of_all_and_of_one(orderer: Plugin) -> None:
    assert orderer.run("restart", "demo").code == 0
    assert orderer.notes(CLUSTER, "demo")["imago.dev/restart"]
    assert orderer.run("restart", "demo", "--pod", PODS[1]).code == 0
    noted = {pod: orderer.notes("Pod", pod).get("imago.dev/restart") for pod in PODS}
    assert [pod for pod, note in noted.items() if note] == [PODS[1]]


def test_a_held_restart_is_approved(api: ApiServerProcess, namespace: str, orderer: Plugin) -> None:
    assert "nothing of demo waits" in orderer.run("approve", "demo").err
    desired = {"id": "roll-1", "kind": "Restart", "summary": "Restart 6 pods."}
    put_status(api, namespace, CLUSTER, "demo", {"pendingApprovals": [desired]})
    assert orderer.run("approve", "demo").code == 0
    assert orderer.notes(CLUSTER, "demo")["imago.dev/approve"] == "roll-1"
    put_status(api, namespace, CLUSTER, "demo", {"pendingApprovals": []})


def test_a_proposed_rebalance_is_approved(
    api: ApiServerProcess, namespace: str, orderer: Plugin
) -> None:
    move = manifest(REBALANCE, {"spec.approval": "Manual"}, "move")
    api.must("POST", RESOURCES[REBALANCE].path(namespace), move)
    put_status(api, namespace, REBALANCE, "move", {"phase": "Proposed"})
    assert orderer.run("approve", "demo", "move").code == 0
    assert orderer.notes(REBALANCE, "move")["imago.dev/approve"] == "true"
    api.must("DELETE", RESOURCES[REBALANCE].path(namespace, "move"))


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("restart",)])
def test_who_may_only_look_is_refused_in_words(
    api: ApiServerProcess, namespace: str, kube: Kube, words: tuple[str, ...]
) -> None:
    viewer = Plugin(api, namespace, kube, "viewer")
    looked = viewer.run("status", "demo")
    assert "NotYetReconciled" in looked.out  # no operator works here, and it ends with 1 for that
    assert (looked.code, looked.err) == (1, "")
    before = viewer.notes(CLUSTER, "demo")
    done = viewer.run(*words, "demo")
    assert done.code == 1
    assert "(Forbidden)" in done.err
    assert "ask for the right that is named" in done.err
    assert viewer.notes(CLUSTER, "demo") == before


def test_what_is_not_there_is_said(orderer: Plugin) -> None:
    done = orderer.run("pause", "nobody")
    assert (done.code, "(NotFound)" in done.err) == (1, True)


def put_status(
    api: ApiServerProcess, namespace: str, kind: str, name: str, status: dict[str, Any]
) -> None:
    path = f"{RESOURCES[kind].path(namespace, name)}/status"
    api.must("PATCH", path, {"status": status}, content="application/merge-patch+json")


class Broker(HTTPServer):
    """What answers in place of one member of shard 0."""

    def __init__(self, uuid: str) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.uuid = uuid
        self.asked: list[dict[str, Any]] = []


class Answers(BaseHTTPRequestHandler):
    """Answers of a broker: demo-s0-1 leads shard 0 in epoch 4, and gives it away once."""

    @property
    def broker(self) -> Broker:
        assert isinstance(self.server, Broker)
        return self.server

    def do_GET(self) -> None:
        shard = {"id": 0, "name": "shard-0", "master": "u-1", "epoch": 4}
        said: dict[str, dict[str, Any]] = {
            "/admin/v1/cluster": {"shards": [shard], "zooKeeperConnected": True},
            "/admin/v1/status": {"uuid": self.broker.uuid},
        }
        self._say(200, said[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.broker.asked.append({"path": self.path, **body})
        if body["epoch"] != 4 or self.broker.uuid != body["brokerId"]:
            self._say(409, {"error": "stale_epoch", "message": "not I", "cure": "look again"})
        else:
            self._say(200, {"epoch": 5})

    def _say(self, status: int, said: dict[str, Any]) -> None:
        raw = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving(*uuids: str) -> Iterator[list[Broker]]:
    brokers = [Broker(uuid) for uuid in uuids]
    threads = [threading.Thread(target=broker.serve_forever) for broker in brokers]
    for thread in threads:
        thread.start()
    try:
        yield brokers
    finally:
        for broker, thread in zip(brokers, threads, strict=True):
            broker.shutdown()
            thread.join()
            broker.server_close()


@pytest.mark.parametrize("to", [None, PODS[0]])
def test_the_master_is_asked_to_hand_over_in_the_epoch_that_was_seen(
    orderer: Plugin, tmp_path: Path, to: str | None
) -> None:
    with serving("u-0", "u-1") as brokers:
        ports = (broker.server_port for broker in brokers)
        told(tmp_path, dict(zip(PODS, ports, strict=False)))
        desired = ("--to", to) if to else ()
        done = orderer.run("handover", "demo", "0", *desired)
    assert (done.code, done.err) == (0, "shard-0: handed over, epoch 5\n")
    assert brokers[0].asked == []
    (asked,) = brokers[1].asked
    assert asked.pop("requestId")
    target = {"target": "u-0"} if to else {}
    assert asked == {"path": "/admin/v1/handover", "brokerId": "u-1", "epoch": 4, **target}


def test_a_shard_is_handed_to_its_own_members_alone(orderer: Plugin, tmp_path: Path) -> None:
    with serving("u-0", "u-1") as brokers:
        ports = (broker.server_port for broker in brokers)
        told(tmp_path, dict(zip(PODS, ports, strict=False)))
        done = orderer.run("handover", "demo", "0", "--to", PODS[2])
        assert done.code == 1
        assert f"shard-0 has no pod {PODS[2]}" in done.err
        assert [broker.asked for broker in brokers] == [[], []]
