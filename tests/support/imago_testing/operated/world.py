"""A model of Kubernetes and of brokers, on which the operator's plans are carried out."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from imago_operator.manifests.brokers import TLS
from imago_operator.manifests.config import config_of
from imago_operator.model import names
from imago_operator.model.desired import Desired
from imago_operator.model.state import (
    STATEFUL_SET,
    Claim,
    Observed,
    OwnedObject,
    Pod,
    Probe,
    Shard,
    ShardBroker,
)
from imago_operator.plan import ReconcilePlan, plan
from imago_operator.plan.look import ClusterLook
from imago_operator.plan.restarts.staging import staged
from imago_operator.reporting.status import status_of
from imago_operator.spec.cluster.zookeeper import RegistryAccess
from imago_operator.spec.schema.values import Quantity
from imago_testing.operated.rules import violations
from imago_testing.operated.servers import FILELESS, HOMELESS, Servers
from imago_testing.operated.things import Disk, meeting, number_of, replication_of
from imago_testing.operated.wrong_edits import wrongly_edited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_operator.model.actions import (
        Action,
        Apply,
        Cordon,
        CreateRegistryUser,
        CreateToken,
        DeleteChild,
        DeleteClaim,
        DeletePod,
        Elect,
        GrowClaim,
        Handover,
        Hibernate,
        LabelPod,
        MarkDrained,
        OwnClaim,
        SetConfig,
        Stop,
        Uncordon,
    )
    from imago_operator.model.desired import UnreadableSpec
    from imago_operator.spec.cluster.cluster_status import ClusterStatus


@dataclass
class ClusterWorld(Servers):
    """A cluster in which things happen."""

    # ---- one look, and what comes of it ----------------------------------------------------

    def look(self, dies_after: int | None = None) -> tuple[Observed, ReconcilePlan]:
        """Plan once, write the status, carry the actions out, let a second pass.

        `dies_after`: how many of its calls the operator makes before it ends.
        """
        seen, unserved = self.observe(), self.unserved()
        desired = self._staged(seen)
        found = plan(desired, seen, self.now)
        broken = violations(desired, seen, found, self.now)
        assert not broken, f"{broken} by {found.actions}"
        calls: list[Callable[[], None]] = []
        if found.record:
            calls.append(partial(self._write, replace(self.status, **found.record)))
        calls += [partial(self.do, action) for action in found.actions]
        calls.append(partial(self._write, status_of(desired, seen, found, self.now)))
        for call in calls[:dies_after]:
            call()
        if dies_after is None:
            self._check_told(desired, seen, unserved)
        self.now += timedelta(seconds=1)
        return seen, found

    def _check_told(
        self, desired: Desired | UnreadableSpec, seen: Observed, unserved: set[int]
    ) -> None:
        """Hold what is said against what clients got when it was looked."""
        told = {c.type: c.status.value for c in self.status.conditions}
        if not isinstance(desired, Desired) or desired.resource.deleting:
            return
        stay = ClusterLook(desired, seen, self.now).targets
        lacking = sorted(unserved & set(stay))
        if lacking:
            assert told["Available"] != "True", f"shards {lacking} take nothing"
            assert told["Ready"] != "True", f"shards {lacking} take nothing"
        for shard in self.status.shards:
            assert shard.id not in unserved or shard.puts != "Accepted", f"shard-{shard.id}"

    def _staged(self, seen: Observed) -> Desired | UnreadableSpec:
        desired = wrongly_edited(self.desired, seen.status) if self.wrong else self.desired
        return staged(desired, seen) if isinstance(desired, Desired) else desired

    def _write(self, status: ClusterStatus) -> None:
        self.status = status

    def do(self, action: Action) -> None:
        self.done.append(action)
        getattr(self, f"_{type(action).__name__.lower()}")(action)

    def _apply(self, action: Apply | Stop | Hibernate) -> None:
        manifest: Mapping[str, Any] = json.loads(json.dumps(action.manifest))
        metadata = manifest["metadata"]
        key = manifest["kind"], metadata["name"]
        before = self.children.get(key)
        self.check_fewer(key, manifest)
        self.manifests[key] = manifest
        self.children[key] = OwnedObject(
            kind=key[0],
            name=key[1],
            uid=before.uid if before else self.uid(key[1]),
            annotations=metadata.get("annotations", {}),
            shard=number_of(manifest),
            replicas=manifest.get("spec", {}).get("replicas"),
            live=manifest,
        )

    _stop = _hibernate = _apply

    def _createtoken(self, action: CreateToken) -> None:
        key = ("Secret", action.name)
        self.children[key] = OwnedObject(kind="Secret", name=action.name, uid=self.uid("secret"))

    def _createregistryuser(self, action: CreateRegistryUser) -> None:
        assert action.name == names.registry_user("demo")
        users = (p for p in self.pods.values() if p.registry_access is not RegistryAccess.NONE)
        old = [pod.name for pod in users if pod.broker is not None]
        assert not old, f"another password than that of {old}"
        assert not self.nodes_closed, "another password than that of who closed the nodes"
        self.registry_user = True

    def _deletechild(self, action: DeleteChild) -> None:
        key = action.kind, action.name
        assert self.children[key].uid == action.uid
        shard = self.children.pop(key).shard
        del self.manifests[key]
        if action.kind == STATEFUL_SET and not action.orphan:
            self.pods = {n: p for n, p in self.pods.items() if p.shard != shard}

    def _deletepod(self, action: DeletePod) -> None:
        pod = self.pods[action.name]
        assert pod.uid == action.uid
        self._take_note(pod)
        self._end(pod)

    def _end(self, pod: Pod) -> None:
        """Have a pod stop: one that serves, or whose node is off, stays on the list meanwhile."""
        serves = pod.broker is not None or (pod.shard is None and self.runs(pod))
        if pod.node in self.dark or (self.grace and serves):
            self.pods[pod.name] = replace(pod, deleting=True)
        else:
            self._vanish(pod.name)

    def _take_note(self, pod: Pod) -> None:
        """Count what the operator itself takes away, whatever it may remember of it."""
        if pod.shard is None:
            self._note_server(pod)
        if self.in_sync(pod):
            self.hurt[pod.name] = pod.uid
        hurt = [name.rpartition("-")[0] for name in self.hurt]
        assert len(hurt) == len(set(hurt)), f"several members of a shard: {sorted(self.hurt)}"
        policy = getattr(self.desired, "spec", None) and self.desired.spec.update_policy  # type: ignore[union-attr]
        if self.in_sync(pod) and policy:
            assert len(hurt) <= policy.max_unavailable_shards, f"shards: {sorted(self.hurt)}"

    def _labelpod(self, action: LabelPod) -> None:
        self.pods[action.name] = replace(self.pods[action.name], role_label=action.role)

    def _growclaim(self, action: GrowClaim) -> None:
        size = Quantity(action.size).bytes
        self.claims[action.name] = replace(self.claims[action.name], requested=size, capacity=size)

    def _ownclaim(self, action: OwnClaim) -> None:
        self.claims[action.name] = replace(self.claims[action.name], owned=action.owned)

    def _deleteclaim(self, action: DeleteClaim) -> None:
        assert self.claims.pop(action.name).uid == action.uid
        self.disks.pop(action.name, None)

    def _setconfig(self, action: SetConfig) -> None:
        self.config[self.pods[action.pod].uid].update(action.values)

    def _handover(self, action: Handover) -> None:
        shard = self.shards[action.shard]
        assert shard.master == action.uuid
        better = sorted(shard.in_sync - {action.uuid})
        if better:
            self._lead(shard, action.target if action.target in better else better[0])

    def _elect(self, action: Elect) -> None:
        self._lead(self.shards[action.shard], action.uuid)

    def _cordon(self, action: Cordon) -> None:
        self.shards[action.shard] = replace(self.shards[action.shard], cordoned=True)

    def _uncordon(self, action: Uncordon) -> None:
        shard = self.shards[action.shard]
        self.shards[action.shard] = replace(shard, cordoned=False, drained=False)

    def _markdrained(self, action: MarkDrained) -> None:
        assert self.unread == 0
        self.shards[action.shard] = replace(self.shards[action.shard], drained=True)

    # ---- Kubernetes and brokers ------------------------------------------------------------

    def turn(self) -> None:
        """Let Kubernetes make pods, and brokers start, catch up and elect."""
        going = [p for p in self.pods.values() if p.deleting and p.node not in self.dark]
        for pod in [p for p in going if self._after("go", p.uid, self.grace)]:
            self._vanish(pod.name)
        for key, manifest in list(self.manifests.items()):
            if key[0] == STATEFUL_SET:
                self._pods(key[1], manifest)
        for name in list(self.pods):
            self._start(name)
            self._catch_up(name)
        self.reconfigure()
        for name in list(self.pods):
            self._probe_readiness(name)
        for shard in self.shards.values():
            if shard.master is None and shard.in_sync and self.connected:
                self._lead(shard, min(shard.in_sync))
        self.unread = max(0, self.unread - 1) if self._draining() else self.unread
        self._forgive()
        self._forgive_servers()
        self.check_ports()
        self.check_quorum()

    def _after(self, what: str, pod: str, turns: int) -> bool:
        """Whether something has been under way for that many turns."""
        self._turns[what, pod] = passed = self._turns.get((what, pod), -1) + 1
        if passed < turns:
            return False
        del self._turns[what, pod]
        return True

    def _catch_up(self, name: str) -> None:
        pod = self.pods[name]
        if pod.shard is None:
            if (
                self.runs(pod)
                and pod.uid not in self.joined
                and self._after("catch up", pod.uid, self.behind)
            ):
                self.joined.add(pod.uid)
            return
        if pod.broker is None:
            return
        shard = self.shards[pod.shard]
        if not self._understands(pod, shard):
            self._note_sync(pod, in_sync=False)
        elif self.in_sync(pod) or not self.is_joined(pod, shard):
            return
        elif self.connected and shard.master and self._after("catch up", pod.uid, self.behind):
            self._note_sync(pod, in_sync=True)

    @property
    def strict(self) -> bool:
        """Whether a member serves others over TLS alone, or will when it starts."""
        ways = {self.replication.get(pod.uid) for pod in self.pods.values()}
        sets = [made for key, made in self.manifests.items() if key[0] == STATEFUL_SET]
        return "enforcing" in ways | {replication_of(made["spec"]["template"]) for made in sets}

    def _note_sync(self, pod: Pod, *, in_sync: bool) -> None:
        assert pod.broker is not None
        assert pod.shard is not None
        uuid, shard = pod.broker.uuid, self.shards[pod.shard]
        members = tuple(
            replace(m, in_sync=in_sync if m.uuid == uuid else m.in_sync) for m in shard.members
        )
        self.shards[pod.shard] = replace(shard, members=members)

    def _understands(self, pod: Pod, shard: Shard) -> bool:
        """Whether a member and its master copy the log in a way that both of them know."""
        leading = (
            p for p in self.pods.values() if p.broker and p.broker.uuid == shard.master is not None
        )
        master = next(leading, pod)
        ways = {self.replication.get(one.uid, "disabled") for one in (pod, master)}
        return ways != {"disabled", "enforcing"}

    def _probe_readiness(self, name: str) -> None:
        """Have the pod as ready as its broker is: at once if it is not, later if it is."""
        pod = self.pods[name]
        serves = self._takes_part(pod) if pod.shard is None else self.in_sync(pod)
        may_be = self.runs(pod) and serves and self.connected and name not in self.full
        if not may_be:
            self._turns.pop(("be ready", pod.uid), None)
        if pod.ready != may_be and (not may_be or self._after("be ready", pod.uid, self.unready)):
            self.pods[name] = replace(pod, ready=may_be, turned=self.now)

    def _forgive(self) -> None:
        """Forget what was taken away and is back, or is no longer to be there."""
        sets = {n: child.replicas for n, child in self.observe().sets().items()}
        for name, uid in list(self.hurt.items()):
            pod = self.pods.get(name)
            back = pod is not None and pod.uid != uid and self.in_sync(pod)
            number = int(name.rpartition("-")[0].rpartition("-s")[2])
            if back or int(name.rpartition("-")[2]) >= (sets.get(number) or 0):
                del self.hurt[name]

    def _pods(self, name: str, manifest: Mapping[str, Any]) -> None:
        spec, shard = manifest["spec"], number_of(manifest)
        for ordinal in range(spec["replicas"]):
            self._pod(f"{name}-{ordinal}", ordinal, shard, spec)
        beyond = [p for p in list(self.pods.values()) if p.shard == shard and not p.deleting]
        for pod in beyond:
            if pod.ordinal >= spec["replicas"]:
                self._end(pod)

    def _pod(self, name: str, ordinal: int, shard: int | None, spec: Mapping[str, Any]) -> None:
        if name not in self.pods and self._after("be made", name, self.absence):
            template = spec["template"]
            image = template["spec"]["containers"][0]["image"]
            bad = image in self.broken_images
            self.pods[name] = Pod(
                name=name,
                uid=self.uid(name),
                shard=shard,
                ordinal=ordinal,
                annotations=template["metadata"]["annotations"],
                turned=self.now,
                waiting="ImagePullBackOff" if bad else None,
                missing_image=image if bad else "",
                config=config_of(template) if shard is not None else "",
                certified=any(v["name"] == TLS for v in template["spec"].get("volumes", ())),
                **meeting(template),
            )
            self.replication[self.pods[name].uid] = replication_of(template)
        claim = f"data-{name}"
        if shard is not None and claim not in self.claims and "volumeClaimTemplates" in spec:
            said = spec["volumeClaimTemplates"][0]["spec"]
            size = Quantity(said["resources"]["requests"]["storage"]).bytes
            self.claims[claim] = Claim(
                name=claim,
                uid=self.uid(claim),
                shard=shard,
                ordinal=ordinal,
                requested=size,
                capacity=size,
                storage_class=said.get("storageClassName"),
            )

    def _start(self, name: str) -> None:
        pod = self.pods[name]
        if pod.waiting not in {None, HOMELESS, FILELESS} or pod.deleting or pod.broker is not None:
            return
        if pod.node is None:
            node = self._place(pod)
            pod = replace(pod, node=node, waiting=None if node else HOMELESS)
        if pod.shard is not None and (self.runs(pod) or pod.waiting == FILELESS):
            pod = self._read(replace(pod, waiting=None))
        if pod.shard is not None and self.runs(pod) and self.connected and self.lets_in(pod):
            pod = replace(pod, broker=self._join(pod))
        self.pods[name] = pod

    def _join(self, pod: Pod) -> Probe:
        assert pod.shard is not None
        disk = self.disks.setdefault(f"data-{pod.name}", Disk(uuid=self.uid("broker")))
        shard = self.shards.get(pod.shard) or Shard(id=pod.shard, master=None, epoch=0)
        members = tuple(m for m in shard.members if m.uuid != disk.uuid)
        holders = self.holders.get(shard.id, frozenset({disk.uuid}))
        joins = not self.behind and self.is_joined(pod, shard)
        in_sync = disk.uuid in holders if shard.master is None else joins
        member = ShardBroker(uuid=disk.uuid, in_sync=in_sync, lag_bytes=0)
        self.shards[pod.shard] = replace(shard, members=(*members, member))
        self.config[pod.uid] = self.read(pod)
        version = pod.annotations.get(names.VERSION, "")
        return Probe(uuid=disk.uuid, shard=pod.shard, role="slave", settled=True, version=version)

    def _lead(self, shard: Shard, uuid: str) -> None:
        now = self.shards[shard.id]
        self.shards[shard.id] = replace(now, master=uuid, epoch=(now.epoch or 0) + 1)

    def settle(self, looks: int = 400) -> list[tuple[Observed, ReconcilePlan]]:
        """Look and let things happen until nothing is left to do; return every look."""
        found = []
        for _ in range(looks):
            found.append(self.look())
            self.turn()
            if not found[-1][1].actions and found[-1][1].wait is None and self._still():
                return found
        raise AssertionError(f"does not settle: {found[-1][1].explain()}\n{found[-1][1].actions}")

    def check_asleep(self) -> None:
        """Raise AssertionError unless nothing runs, and all that members had is kept."""
        assert not self.pods, sorted(self.pods)
        assert all(c.replicas == 0 for c in self.children.values() if c.kind == STATEFUL_SET)
        lost = {n for n, shard in self.shards.items() if not shard.drained} - self.holders.keys()
        assert not lost, f"nobody has all of {sorted(lost)}"
        kept = {disk.uuid for name, disk in self.disks.items() if name in self.claims}
        for number, uuids in self.holders.items():
            assert uuids & kept, f"shard-{number} lost the claims of {sorted(uuids)}"

    def _still(self) -> bool:
        seen = self.observe()
        after = plan(self._staged(seen), seen, self.now)
        return not (after.actions or after.wait or after.record)
