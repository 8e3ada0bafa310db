"""A fake Kubernetes with the model of brokers behind it, and operators that may die at any call.

The operator's real code runs against it but for sockets: what it reads are manifests, and what it
sends are the API's own calls. Brokers answer through the port that their HTTP client implements.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from imago_operator.errors import BlockedError, OperatorError, RetryError
from imago_operator.kube.objects import Kubernetes
from imago_operator.manifests.brokers import TLS
from imago_operator.manifests.config import CONFIG
from imago_operator.model import names
from imago_operator.model.accepted import in_force
from imago_operator.model.actions import (
    Apply,
    Cordon,
    CreateRegistryUser,
    DeleteChild,
    DeletePod,
    Elect,
    Handover,
    LabelPod,
    MarkDrained,
    SetConfig,
    Uncordon,
)
from imago_operator.model.desired import OperatorInfo, desired_of, fingerprint
from imago_operator.observing.observed import Observer, shard_of_set
from imago_operator.observing.volumes import Volumes, size_of
from imago_operator.reconcile import Context, ObjectKey, Reached
from imago_operator.reconcilers.cluster import LOOK_EVERY, ClusterReconciler
from imago_testing.kubernetes.copying import copied
from imago_testing.kubernetes.fake_api_server import FakeApiServer, Manifest, merged
from imago_testing.operated.fenced_brokers import FencedBrokers
from imago_testing.operated.objects import pod_status, told_of_registry
from imago_testing.operated.resources import OPERATOR
from imago_testing.operated.world import ClusterWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from imago_operator.model.actions import Action
    from imago_operator.model.state import Claim, Pod, Probe, RegistryView, RemainingContent


_SECOND = timedelta(seconds=1)


class Died(BaseException):
    """The operator's process has ended, wherever it was."""


@dataclass
class Brokers(FencedBrokers):
    """The brokers' HTTP: `reconcile.Brokers` and `ports.AdminPort` in one, over the model."""

    world: ClusterWorld
    changes: Callable[[str], None] = lambda _: None
    """Told of each call that changes something, before it does; may raise."""
    epoch: int = 0

    async def __call__(self, namespace: str, cluster: str) -> Reached:
        return await self.of_pods(namespace, cluster, ())

    async def of_pods(
        self,
        namespace: str,  # noqa: ARG002  one cluster
        cluster: str,  # noqa: ARG002
        pods: Sequence[Mapping[str, Any]],
    ) -> Reached:
        found = tuple(_url(pod["metadata"]["name"]) for pod in pods if pod["status"].get("podIP"))
        return Reached(
            admin=self,
            contents=self,  # type: ignore[arg-type]  # nobody asks
            pipelines=self,  # type: ignore[arg-type]  # likewise
            brokers=found,
            epoch=self.raised,
        )

    async def raised(self) -> int:
        return self.epoch

    async def registry(self, brokers: Sequence[str]) -> RegistryView | None:
        return self.world.observe().registry if brokers else None

    async def probe(self, broker: str) -> Probe | None:
        name = _pod_of(broker)
        return next((p.broker for p in self.world.observe().pods if p.name == name), None)

    async def remaining(self, brokers: Sequence[str], shard: int) -> RemainingContent | None:
        return self.world.observe().remaining.get(shard) if brokers else None

    async def raise_epoch(self, brokers: Sequence[str]) -> int:  # noqa: ARG002  a port's
        self.epoch += 1
        return self.epoch

    async def handover(
        self, broker: str, *, uuid: str, epoch: int, operator_epoch: int, target: str = ""
    ) -> None:
        pod = self._pod(broker)
        shard = self.world.shards[pod.shard or 0]
        if shard.master != uuid or shard.epoch != epoch:
            raise BlockedError("it no longer leads", until="somebody looks again")
        self._do(Handover(pod.name, uuid, shard.id, epoch, target), operator_epoch)

    async def elect(self, broker: str, *, uuid: str, operator_epoch: int) -> None:
        pod = self._pod(broker)
        self._do(Elect(pod.name, uuid, pod.shard or 0), operator_epoch)

    async def set_config(
        self, broker: str, values: Mapping[str, object], *, operator_epoch: int
    ) -> None:
        typed = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        self._do(SetConfig(self._pod(broker).name, typed), operator_epoch)

    async def cordon(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:  # noqa: ARG002
        self._do(Cordon(shard), operator_epoch)

    async def uncordon(self, brokers: Sequence[str], shard: int, *, operator_epoch: int) -> None:  # noqa: ARG002
        self._do(Uncordon(shard), operator_epoch)

    async def mark_drained(
        self,
        brokers: Sequence[str],  # noqa: ARG002
        shard: int,
        *,
        operator_epoch: int,
    ) -> None:
        if self.world.unread:
            raise BlockedError("messages are left", until="they are read")
        self._do(MarkDrained(shard), operator_epoch)

    def _pod(self, broker: str) -> Pod:
        name = _pod_of(broker)
        if name not in self.world.pods:
            raise RetryError(f"{name} does not answer", delay_s=1)
        return self.world.pods[name]

    def _do(self, action: Action, epoch: int) -> None:
        assert epoch == self.epoch, "an operator that was replaced"
        self.changes(type(action).__name__)
        self.world.do(action)


def _url(pod: str) -> str:
    return f"http://{pod}:8080"


def _pod_of(url: str) -> str:
    """Return the pod behind an address: with a certificate or without."""
    return url.rpartition("/")[2].removesuffix(":8080")


@dataclass
class OperatedCluster:
    """One ImagoCluster in a fake Kubernetes, with an operator that can be started anew."""

    manifest: Manifest
    operator: OperatorInfo = OPERATOR
    kubernetes: FakeApiServer = field(default_factory=FakeApiServer)

    def __post_init__(self) -> None:
        stored = self.kubernetes.put(self.manifest)
        self.key = ObjectKey(
            "ImagoCluster", stored["metadata"]["namespace"], stored["metadata"]["name"]
        )
        self.world = ClusterWorld(desired_of(stored, self.operator))
        self.brokers = Brokers(self.world)
        self.made_of: dict[str, str] = {}
        """The revisions that pods were made of, by the pods' uids."""
        self.shown: dict[str, Pod] = {}
        """Pods as Kubernetes has been told of them."""
        self.kubernetes.changed.append(self._take_in)
        self._show_nodes()
        self.errors: list[OperatorError] = []
        self.enqueued: list[ObjectKey] = []
        """Objects that the operator wants to look at again."""
        self.start()

    # ---- the operator ----------------------------------------------------------------------

    def start(self) -> None:
        """Start an operator: a new process, which knows nothing."""
        self.brokers.epoch += 1
        kube = Kubernetes(self.kubernetes)  # type: ignore[arg-type]  # it has `call`
        context = Context(
            kube=kube,
            brokers=self.brokers,
            operator=self.operator,
            now=lambda: self.world.now,
            leading=lambda: None,
            enqueue=self.enqueued.append,
            clock=self._clock,
        )
        observer = Observer(context, Volumes(kube, context.clock))
        self.reconciler = ClusterReconciler(context, observer, lambda: "token")

    def _clock(self) -> float:
        return self.world.now.timestamp()

    async def look(self) -> float | None:
        """Let the operator look once, then the world go on for a second."""
        again: float | None = 1.0
        try:
            again = await self.reconciler.reconcile(self.key)
        except OperatorError as error:
            self.errors.append(error)
        except Died:
            self.start()
        self.turn()
        return again

    async def settle(self, looks_max: int = 1200) -> int:
        """Look until nothing is left to do; return how often."""
        for count in range(looks_max):
            before = self.kubernetes.version
            again = await self.look()
            idle = again is None or again >= LOOK_EVERY.total_seconds()
            if idle and before == self.kubernetes.version:
                return count
        said = self.cluster.get("status", {}).get("progress")
        raise AssertionError(f"does not settle: {said} {self.errors[-3:]}")

    def run(self, looks_max: int = 1200) -> int:
        return asyncio.run(self.settle(looks_max))

    # ---- what there is ---------------------------------------------------------------------

    @property
    def cluster(self) -> Manifest:
        found = self.kubernetes.find(*self.key)
        assert found is not None
        return found

    def edit(self, **fields: Any) -> None:
        """Change fields of the spec: `brokers={"shards": 2}` is merged."""
        self._edit({"spec": fields})

    def annotate(self, **notes: str) -> None:
        self._edit({"metadata": {"annotations": {f"imago.dev/{k}": v for k, v in notes.items()}}})

    def _edit(self, patch: Manifest) -> None:
        stored = self.kubernetes.put(merged(self.cluster, patch))
        self.world.desired = in_force(stored, self.operator)

    def condition(self, type_: str) -> tuple[str, str] | None:
        """Return status and reason of a condition."""
        found = self.cluster.get("status", {}).get("conditions", ())
        return next(((c["status"], c["reason"]) for c in found if c["type"] == type_), None)

    def end(self) -> dict[str, Any]:
        """Return what a user sees of the cluster once it is settled, without what is random."""
        shards = self.world.shards
        return {
            "sets": {
                i["metadata"]["name"]: (i["spec"]["replicas"], i["metadata"]["annotations"])
                for i in self.kubernetes.all("StatefulSet")
            },
            "pods": {
                i["metadata"]["name"]: i["metadata"]["annotations"].get(names.TEMPLATE_HASH)
                for i in self.kubernetes.all("Pod")
            },
            "claims": sorted(
                (i["metadata"]["name"], i["spec"]["resources"]["requests"]["storage"])
                for i in self.kubernetes.all("PersistentVolumeClaim")
            ),
            "shards": {n: (s.cordoned, s.drained, s.master is not None) for n, s in shards.items()},
            "conditions": sorted(
                (c["type"], c["status"], c["reason"]) for c in self.cluster["status"]["conditions"]
            ),
        }

    # ---- Kubernetes' own controllers -------------------------------------------------------

    def turn(self) -> None:
        """Let a second pass in the world, and show what came of it."""
        before, claims = self.shown, set(self.world.claims)
        self.world.turn()
        for name in set(before) - set(self.world.pods):
            self.kubernetes.drop("Pod", self.key.namespace, name)
        for name, pod in self.world.pods.items():
            if before.get(name) != pod:
                self.kubernetes.put(self._pod(pod))
        self.shown = dict(self.world.pods)
        for name in set(self.world.claims) - claims:
            self.kubernetes.put(self._claim(self.world.claims[name]))
        self._note_revisions()
        self.world.now += _SECOND

    def _note_revisions(self) -> None:
        """Say on each set which revision its template is, as its controller does."""
        for found in self.kubernetes.all("StatefulSet"):
            status = {"updateRevision": self._revision_of(found)}
            if found.get("status") != status:
                self.kubernetes.put({**found, "status": status}, by="statefulset-controller")

    def _revision_of(self, owner: Manifest) -> str:
        """Return the name of the revision that a set's template is; it is kept as an object."""
        template, namespace = owner["spec"]["template"], self.key.namespace
        name = f"{owner['metadata']['name']}-{fingerprint(template)}"
        if self.kubernetes.find("ControllerRevision", namespace, name) is None:
            metadata = {"name": name, "namespace": namespace}
            data = {"spec": {"template": copied(template)}}
            revision = {"kind": "ControllerRevision", "metadata": metadata, "data": data}
            self.kubernetes.put(revision)
        return name

    def _show_nodes(self) -> None:
        for name, node in self.world.nodes.items():
            labels = {"topology.kubernetes.io/zone": node.rack, "kubernetes.io/hostname": name}
            self.kubernetes.put({"kind": "Node", "metadata": {"name": name, "labels": labels}})
        notes = {"storageclass.kubernetes.io/is-default-class": "true"}
        metadata = {"name": "standard", "annotations": notes}
        self.kubernetes.put(
            {"kind": "StorageClass", "metadata": metadata, "allowVolumeExpansion": True}
        )

    def _pod(self, pod: Pod) -> Manifest:
        owner = self._set_of(pod.name)
        metadata: Manifest = {
            "name": pod.name,
            "namespace": self.key.namespace,
            "annotations": dict(pod.annotations),
            "labels": {names.CLUSTER_LABEL: self.key.name},
        }
        if pod.role_label:
            metadata["labels"][names.ROLE_LABEL] = pod.role_label
        if owner is not None:
            made_of = self.made_of.setdefault(pod.uid, self._revision_of(owner))
            metadata["labels"]["controller-revision-hash"] = made_of
            reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}
            said = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
            metadata["ownerReferences"] = [reference | said]
        status = pod_status(pod)
        spec: Manifest = {"nodeName": pod.node} if pod.node else {}
        spec["volumes"] = [{"name": CONFIG, "configMap": {"name": pod.config}}]
        if pod.certified and pod.shard is not None:
            secret = {"secretName": names.certificate(self.key.name, pod.shard)}
            spec["volumes"].append({"name": TLS, "secret": secret})
        component = names.ZOOKEEPER if pod.shard is None else names.BROKER
        spec["containers"] = [{"name": component, "env": told_of_registry(pod)}]
        return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

    def _claim(self, claim: Claim) -> Manifest:
        size = str(claim.requested)
        return {
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": claim.name,
                "namespace": self.key.namespace,
                "labels": {names.CLUSTER_LABEL: self.key.name},
            },
            "spec": {"resources": {"requests": {"storage": size}}},
            "status": {"phase": "Bound", "capacity": {"storage": size}},
        }

    def _set_of(self, pod: str) -> Manifest | None:
        name = pod.rpartition("-")[0]
        return self.kubernetes.find("StatefulSet", self.key.namespace, name)

    def _take_in(self, what: str, manifest: Manifest) -> None:
        """Have the model follow what the operator does to objects."""
        kind = manifest["kind"]
        if kind == "Pod":
            self._pod_changed(what, manifest)
        elif kind == "PersistentVolumeClaim":
            self._claim_changed(what, manifest)
        elif what == "DELETED":
            self._child_gone(manifest)
        elif kind in ("StatefulSet", "ImagoRebalance"):
            self.world.do(Apply(manifest))
        elif kind == "Secret" and manifest["metadata"]["name"] == names.registry_user(
            self.key.name
        ):
            self.world.do(CreateRegistryUser(manifest["metadata"]["name"]))
        elif kind == "ConfigMap":
            self.world.manifests[kind, manifest["metadata"]["name"]] = manifest

    def _child_gone(self, manifest: Manifest) -> None:
        key = manifest["kind"], manifest["metadata"]["name"]
        if key[0] == "ConfigMap":
            self.world.manifests.pop(key, None)
        if key not in self.world.children:
            return
        uid = self.world.children[key].uid
        before = set(self.world.pods)
        self.world.do(DeleteChild(*key, uid, orphan=manifest["orphaned"]))
        for name in before - set(self.world.pods):
            self.kubernetes.drop("Pod", self.key.namespace, name)
        shard = shard_of_set(key[1], self.world.desired)  # type: ignore[arg-type]  # it is readable
        if manifest["orphaned"]:
            for pod in self.world.pods.values():
                if pod.shard == shard:
                    self.kubernetes.put(self._pod(pod))

    def _pod_changed(self, what: str, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        pod = self.world.pods[name]
        if what == "DELETED":
            self.world.do(DeletePod(name, pod.uid, pod.shard, "by the operator"))
        else:
            role = manifest["metadata"].get("labels", {}).get(names.ROLE_LABEL)
            self.world.do(LabelPod(name, pod.uid, role))

    def _claim_changed(self, what: str, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        if what == "DELETED":
            self.world.claims.pop(name)
            self.world.disks.pop(name, None)
            return
        size = size_of(manifest["spec"]["resources"]["requests"]["storage"])
        old = self.world.claims[name]
        self.world.claims[name] = replace(old, requested=size, capacity=size)
        self.kubernetes.put({**manifest, "status": self._claim(self.world.claims[name])["status"]})
