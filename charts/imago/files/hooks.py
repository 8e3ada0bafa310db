"""What Helm runs in the operator's image: `check` for `helm test`, `release` after an uninstall.

Standard library only. The environment says where to look: see the templates that run it.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
GROUP: Final = "/apis/imago.dev/v1alpha1"
FINALIZER: Final = "imago.dev/operator"
KINDS: Final = (
    "imagoclusters",
    "imagotopics",
    "imagoconsumergroups",
    "imagousers",
    "imagorebalances",
    "imagobackups",
    "imagoscheduledbackups",
    "imagomirrors",
    "imagopipelines",
)
CLUSTER: Final[dict[str, Any]] = {
    "apiVersion": "imago.dev/v1alpha1",
    "kind": "ImagoCluster",
    "metadata": {"name": "helm-test"},
    "spec": {
        "brokers": {"shards": 1, "storage": {"size": "1Gi"}},
        "zookeeper": {"managed": {"replicas": 3}},
    },
}
TRIES: Final = 60
BUSY: Final = (429, 500, 503, 504)
"""Answers of a server that will answer otherwise soon."""
BUSY_TRIES: Final = 20


class ApiError(RuntimeError):
    """The API server refused; `code` says how."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Api:
    """The API server, as the account of this pod."""

    def __init__(self, base: str, token: str, context: ssl.SSLContext | None) -> None:
        self._base, self._token, self._context = base, token, context

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """Return what a path answers; ApiError if that is no success, also a little later."""
        for left in range(BUSY_TRIES, -1, -1):
            try:
                return self._call(method, path, body, kind)
            except ApiError as error:
                if error.code not in BUSY or not left:
                    raise
            time.sleep(1)
        raise AssertionError("it returns or raises")

    def _call(self, method: str, path: str, body: Any, kind: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        asked = urllib.request.Request(self._base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=30, context=self._context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ApiError(error.code, error.read().decode(errors="replace")) from error


def in_cluster() -> Api:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    host = f"[{host}]" if ":" in host else host
    return Api(f"https://{host}:{port}", (ACCOUNT / "token").read_text(), context)


def check(api: Api, operator: str, namespace: str) -> None:
    """See that the operator is well, and that clusters are accepted, wrong ones refused."""
    if operator:
        for path in ("/healthz", "/readyz", "/metrics"):
            _well(operator + path)
            print(f"the operator answers {path}")
    path = f"{GROUP}/namespaces/{namespace}/imagoclusters?dryRun=All"
    api.call("POST", path, CLUSTER)
    print(f"a cluster would be accepted in {namespace}")
    wrong = json.loads(json.dumps(CLUSTER))
    wrong["spec"]["zookeeper"]["managed"]["replicas"] = 4
    try:
        api.call("POST", path, wrong)
    except ApiError as error:
        if error.code != 422 or "odd number" not in str(error):
            raise
        print("a wrong one would be refused, with its reason")
    else:
        raise SystemExit("a cluster with four ZooKeepers was accepted: the rules are missing")


def _well(url: str) -> None:
    for left in range(TRIES, 0, -1):
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError as error:
            if left == 1:
                raise SystemExit(f"{url}: {error}") from error
            time.sleep(1)
        else:
            return


def release(api: Api, namespaces: list[str], own: str, labels: str) -> int:
    """Take the operator's finalizer off everything, once no operator is left to put it back."""
    for left in range(TRIES, -1, -1):
        if not api.call("GET", f"/api/v1/namespaces/{own}/pods?labelSelector={labels}")["items"]:
            break
        if not left:
            raise SystemExit("the operator's pods are still there: nothing was released")
        time.sleep(1)
    places = [f"/namespaces/{name}" for name in namespaces] or [""]
    released = sum(_release(api, place, kind) for place in places for kind in KINDS)
    print(f"{released} resources were released")
    return released


def _release(api: Api, place: str, kind: str) -> int:
    try:
        found = api.call("GET", f"{GROUP}{place}/{kind}")["items"]
    except ApiError as error:
        if error.code == 404:  # the definition is gone, and its resources with it
            return 0
        raise
    done = 0
    for metadata in (item["metadata"] for item in found):
        finalizers = metadata.get("finalizers", [])
        if FINALIZER in finalizers:
            path = f"{GROUP}/namespaces/{metadata['namespace']}/{kind}/{metadata['name']}"
            at = f"/metadata/finalizers/{finalizers.index(FINALIZER)}"
            patch = [
                {"op": "test", "path": at, "value": FINALIZER},
                {"op": "remove", "path": at},
            ]
            api.call("PATCH", path, patch, "application/json-patch+json")
            done += 1
    return done


def main(arguments: list[str]) -> None:
    if arguments == ["check"]:
        check(in_cluster(), os.environ.get("OPERATOR", ""), os.environ["NAMESPACE"])
    else:
        namespaces = [name for name in os.environ.get("NAMESPACES", "").split(",") if name]
        release(in_cluster(), namespaces, os.environ["OWN_NAMESPACE"], os.environ["LABELS"])


if __name__ == "__main__":
    main(sys.argv[1:])
