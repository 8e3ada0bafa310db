"""A cluster under test: its pods, who leads, who is in sync."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from imago_e2e.kube import KubeError, is_ready, until

if TYPE_CHECKING:
    from imago_e2e.kube import Kube

SETTLES_SECONDS_MAX = 120.0
_ASK = """\
import json, sys, urllib.error, urllib.request as http
path, method, body = sys.argv[1:4]
token = open("/etc/imago/token/token").read().strip()
head = {"Content-Type": "application/json", "Authorization": "Bearer " + token}
call = http.Request("http://127.0.0.1:8080" + path, body.encode() or None, head, method=method)
try:
    print(http.urlopen(call, timeout=10).read().decode())
except urllib.error.HTTPError as error:
    sys.exit(f"{error.code} {error.read().decode()}")
"""
_MODE = """\
import socket, sys
with socket.create_connection((sys.argv[1], 2181), timeout=5) as server:
    server.sendall(b"srvr")
    print(server.makefile().read())
"""


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers of one cluster, asked from inside of their pods, where the token is."""

    kube: Kube
    namespace: str
    name: str

    def pods(self, shard: int | None = None) -> list[dict[str, Any]]:
        """Return their pods."""
        chosen = f"imago.dev/cluster={self.name},imago.dev/component=broker"
        if shard is not None:
            chosen += f",imago.dev/shard={shard}"
        return self.kube.pods(self.namespace, chosen)

    def names(self) -> list[str]:
        """Return the names of the brokers' pods."""
        return [pod["metadata"]["name"] for pod in self.pods()]

    def uids(self) -> dict[str, str]:
        """Return name to identity of every pod of the cluster."""
        found = self.kube.pods(self.namespace, f"imago.dev/cluster={self.name}")
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found}

    def servers(self) -> list[dict[str, Any]]:
        """Return the pods of its ZooKeeper."""
        chosen = f"imago.dev/cluster={self.name},imago.dev/component=zookeeper"
        return self.kube.pods(self.namespace, chosen)

    def zookeeper_leader(self) -> str:
        """Return the pod of the server that leads ZooKeeper; KubeError while none does."""
        asker = self.names()[0]
        for server in self.servers():
            asked = ("python3", "-c", _MODE, server["status"]["podIP"])
            if "Mode: leader" in self.kube.execute(self.namespace, asker, *asked):
                return str(server["metadata"]["name"])
        raise KubeError(f"no server leads the ZooKeeper of {self.name}")

    def leases_lost(self) -> dict[str, int]:
        """How often each broker that runs has been without ZooKeeper for longer than its lease."""
        words = ("logs", "-n", self.namespace, "--tail=-1")
        return {
            name: self.kube.run(*words, name).count("registry_session state=lost")
            for name in self.names()
        }

    def claims(self) -> set[str]:
        """Return the names of the namespace's claims."""
        found = self.kube.get("pvc", "-n", self.namespace)["items"]
        return {each["metadata"]["name"] for each in found}

    def ask(self, pod: str, path: str, method: str = "GET", body: object = None) -> Any:
        """Call the admin interface of one broker."""
        text = "" if body is None else json.dumps(body)
        command = ("python3", "-c", _ASK, path, method, text)
        return json.loads(self.kube.execute(self.namespace, pod, *command, seconds_max=20))

    def snapshot(self) -> dict[str, Any]:
        """Return what any broker says of the cluster."""
        problems = []
        for pod in sorted(self.pods(), key=is_ready, reverse=True):
            try:
                found: dict[str, Any] = self.ask(pod["metadata"]["name"], "/admin/v1/cluster")
            except KubeError as error:
                problems.append(str(error))
            else:
                return found
        raise KubeError(f"no broker of {self.name} answers: {problems}")

    def master(self, shard: int = 0) -> str:
        """Return the pod of the master; KubeError while there is none."""
        of = self._shard(shard)
        for member in of["members"]:
            if member["uuid"] == of["master"]:
                return str(member["address"]).partition(".")[0]
        raise KubeError(f"shard {shard} of {self.name} has no master")

    def slaves(self, shard: int = 0) -> list[str]:
        """Return the pods of the others."""
        master = self.master(shard)
        names = [pod["metadata"]["name"] for pod in self.pods(shard)]
        return [name for name in names if name != master]

    def in_sync(self, shard: int = 0) -> int:
        """How many members are in sync."""
        return len(self._shard(shard)["inSync"])

    def node_of(self, pod: str) -> str:
        """Return the node of a pod."""
        return str(self.kube.get("pod", pod, "-n", self.namespace)["spec"]["nodeName"])

    def settled(
        self, shards: int = 1, replicas: int = 3, *, seconds_max: float = SETTLES_SECONDS_MAX
    ) -> float:
        """Wait until all members of all shards are ready and in sync; return the seconds."""

        def whole() -> bool:
            pods = self.pods()
            if len(pods) != shards * replicas or not all(map(is_ready, pods)):
                return False
            found = self.snapshot()["shards"]
            return all(len(shard["inSync"]) == replicas for shard in found if not shard["drained"])

        what = f"{shards} shards of {replicas} members in sync in {self.namespace}/{self.name}"
        return until(whole, what, seconds_max=seconds_max)

    def make_topic(self, topic: str, queues: int = 4) -> None:
        """Make a topic on every shard that does not have it."""
        path = f"/admin/v1/topics/{topic}"
        # A shard that was taken away stays on record, without members.
        for shard in (each for each in self.snapshot()["shards"] if each["members"]):
            master = self.master(shard["id"])
            try:
                self.ask(master, path)
            except KubeError as error:
                if "404" not in str(error):
                    raise
                self.ask(master, path, "PUT", {"queues": queues})

    def versions(self) -> set[str]:
        """Return what brokers say of their versions."""
        return {str(self.ask(pod, "/admin/v1/status")["version"]) for pod in self.names()}

    def stored(self, topic: str, shard: int = 0) -> int:
        """How many messages of a topic a shard has."""
        found = self.ask(self.master(shard), f"/admin/v1/topics/{topic}")
        return sum(each["maxOffset"] - each["minOffset"] for each in found["queues"])

    def consumed(self, group: str, topic: str, shard: int = 0) -> int:
        """Up to how many of them a group has committed."""
        found = self.ask(self.master(shard), f"/admin/v1/groups/{group}")
        return sum(each["offset"] for each in found["topics"].get(topic, []))

    def lead_on(self, node: str, shard: int) -> None:
        """Have the member of a shard that is on a node lead."""
        there = [p["metadata"]["name"] for p in self.pods(shard) if p["spec"]["nodeName"] == node]

        def leads() -> bool:
            master, of = self.master(shard), self._shard(shard)
            if master in there:
                return True
            by_pod = {m["address"].partition(".")[0]: m["uuid"] for m in of["members"]}
            wanted = next(by_pod[name] for name in there)
            self.ask(master, "/admin/v1/handover", "POST", {"target": wanted})
            return False

        until(leads, f"a member on {node} leads shard {shard}", seconds_max=60)

    def _shard(self, number: int) -> dict[str, Any]:
        for shard in self.snapshot()["shards"]:
            if shard["id"] == number:
                return dict(shard)
        raise KubeError(f"{self.name} has no shard {number}")

    @property
    def bootstrap(self) -> str:
        """What RocketMQ clients are given."""
        return f"{self.name}-bootstrap.{self.namespace}.svc:9876"

    @property
    def zookeeper(self) -> str:
        """What MetaQ clients are given."""
        return f"{self.name}-zookeeper.{self.namespace}.svc:2181"
