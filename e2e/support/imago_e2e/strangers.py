"""Somebody in a pod who reaches a cluster's ZooKeeper and is nobody there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from imago_e2e.kube import is_ready, until

if TYPE_CHECKING:
    from imago_e2e.brokers import Brokers
    from imago_e2e.kube import Kube

POD: Final = "stranger"
_BROKERS_USER: Final = """\
import json, sys
from kazoo.client import KazooClient
word = open("/etc/imago/zookeeper-user/password").read().strip()
client = KazooClient(sys.argv[1], auth_data=[("digest", "imago:" + word)])
client.start(timeout=20)
def below(path):
    yield path
    for name in client.get_children(path):
        yield from below(path.rstrip("/") + "/" + name)
print(json.dumps([path for root in ("/imago", "/meta") for path in below(root)]))
"""
"""Says every node of a cluster; only the brokers' user sees them all."""
_NOBODY: Final = """\
import json, sys
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE
client = KazooClient(sys.argv[1])
client.start(timeout=20)
paths, done = json.load(sys.stdin), []
def attempt(what, call, *words):
    try:
        call(*words)
    except (NoAuthError, NoNodeError):
        return  # of a session that has ended meanwhile, or refused
    except Exception as error:
        what += " " + type(error).__name__
    done.append(what)
for path in sorted(paths, reverse=True):
    attempt("change " + path, client.set, path, b"taken")
    attempt("give away " + path, client.set_acls, path, OPEN_ACL_UNSAFE)
    if path.count("/") > 1:
        attempt("extend " + path, client.create, path + "/taken", b"")
        attempt("delete " + path, client.delete, path)
    if path.startswith("/imago/"):
        attempt("read " + path, client.get, path)
print(json.dumps(done))
"""
"""Tries everything that nobody but the brokers may do; says what was not refused."""


def start(kube: Kube, brokers: Brokers, namespace: str) -> None:
    """Start a pod that has Python and a client of ZooKeeper, and no file of the cluster."""
    image = brokers.pods()[0]["spec"]["containers"][0]["image"]
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": POD,
        "image": image,
        "command": ["python3", "-c", "import time; time.sleep(3600)"],
        "securityContext": security,
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 1}
    metadata = {"name": POD, "namespace": namespace}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    until(
        lambda: is_ready(kube.get("pod", POD, "-n", namespace)),
        f"the pod of a stranger in {namespace} is ready",
        seconds_max=60,
    )


def nodes_of(brokers: Brokers) -> list[str]:
    """Return every node of the cluster in ZooKeeper, as its brokers see them."""
    asked = ("python3", "-c", _BROKERS_USER, brokers.zookeeper)
    told = brokers.kube.execute(brokers.namespace, brokers.names()[0], *asked, seconds_max=60)
    return [str(path) for path in json.loads(told)]


def taken(kube: Kube, brokers: Brokers, namespace: str, paths: list[str]) -> list[str]:
    """Have the stranger try all that nobody but brokers may do; return what was not refused."""
    asked = ("exec", "-i", "-n", namespace, POD, "--", "python3", "-c", _NOBODY, brokers.zookeeper)
    told = kube.run(*asked, text=json.dumps(paths), seconds_max=60)
    return [str(what) for what in json.loads(told)]
