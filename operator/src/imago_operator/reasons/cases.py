"""What each case of the planner is, in the order in which they are asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Case:
    """One case: when it holds, what is done, after how long a wait counts as late."""

    title: str
    holds: str
    does: str
    late: str = ""
    additive: bool = False
    """Whether it is done in every look, whichever case decides."""


CASES: Final = (
    Case("Deleting", "deletionTimestamp", "nothing: children go by their owner references"),
    Case("Paused", 'imago.dev/pause-reconciliation is "true"', "status only"),
    Case(
        "InvalidSpec",
        "the spec is wrong; the operator does not run the version, or it goes down, or up by"
        " more than one minor step",
        "+ and what repairs, by the last spec that was accepted (status.acceptedSpec); restarts"
        " and removal wait. Where there is none: nothing; brokers keep what they have",
    ),
    Case("Reading", "Kubernetes' lists are not complete", "nothing", late="2 min"),
    Case(
        "ApplyingObjects",
        "objects are missing, differ or are no longer wanted",
        "server-side apply; Services, ConfigMaps that no pod names, NetworkPolicies and"
        " PodDisruptionBudgets that are no longer wanted are deleted. A new template of pods goes"
        " to one shard first. No restart begins in the same reconciliation",
        additive=True,
    ),
    Case(
        "Hibernating",
        "spec.hibernated is true; or it is false again, and ZooKeeper does not serve yet",
        "all brokers stop, at once, once one of them has answered that it has ZooKeeper; ZooKeeper"
        " stops when none is left; claims stay. Nothing is restarted, moved or removed meanwhile."
        " Waking: ZooKeeper, then all brokers at once",
        late="10 min",
    ),
    Case(
        "RegistryUnavailable",
        "no broker answers, none that answers has ZooKeeper, or they belong to another cluster",
        "remove nothing; wait",
        late="5 min",
    ),
    Case(
        "Bootstrapping", "the cluster has no id yet", "wait for brokers to name it", late="10 min"
    ),
    Case(
        "ReplacingMember",
        "the node that a member's volume is bound to has no Node object any more, its pod does not"
        " run, another member is in sync",
        "note it in the status; after 5 min delete claim and pod, one member a shard at a time",
    ),
    Case(
        "ShardWithoutMaster",
        "a shard has no master",
        "wait: its members elect one. With imago.dev/allow-data-loss and nobody in sync, after"
        " 60 s: make the member with the longest log master",
        late="60 s",
    ),
    Case(
        "RepairingPods",
        "a pod does not run (image, configuration, scheduling) and has an old template",
        "delete it, one in each shard, whether or not the shard is healthy",
    ),
    Case("LabellingRoles", "labels of roles are old", "label pods", additive=True),
    Case(
        "ApplyingSettings",
        "running brokers have other values of settings that may change",
        "set them over HTTP; no restart",
        additive=True,
    ),
    Case(
        "GrowingVolumes",
        "claims are smaller than requested, or nearly full where autoGrow is set",
        "grow them, also while no broker answers or leads; recreate StatefulSets, their pods"
        " stay. Nothing else waits for volumes",
        late="30 min",
    ),
    Case(
        "ScalingUp",
        "shards are missing; new ones serve",
        "create them; put them back into use; an ImagoRebalance of mode Fill if requested",
        additive=True,
    ),
    Case(
        "Restarting",
        "pods have an old template, and may be restarted now (policy, window, approval)",
        "ZooKeeper's servers first; then in each shard a member that is not in sync, then members"
        " that follow, then the master after it has handed over; only while all other members of"
        " the shard are in sync, whether or not they are ready, and the broker's own restart check"
        " has no objection; as many shards as maxUnavailableShards says, all in one rack",
        late="readyTimeout",
    ),
    Case(
        "ChangingMembers",
        "shards have more or fewer members than replicasPerShard says, or puts count on fewer",
        "more: add all of them, wait until every shard has all in sync, then have puts count on"
        " them; fewer: have puts count on those that stay, then the last of each shard leaves, one"
        " at a time, while the others are in sync; a leader hands over first; then its claim goes"
        " (whenScaled Delete), once the status has named it",
        late="leaving: 10 min",
    ),
    Case(
        "MovingMembers",
        "a member is to have another claim: spec.brokers.storage.storageClassName, a size to which"
        " its class cannot grow, imago.dev/move-member on its pod, or a volume that no node of its"
        " shard's pool reaches",
        "one member of the cluster at a time, while all other members are in sync and enough for"
        " puts: note it in the status → a leader hands over → its StatefulSet goes, pods stay → its"
        " pod goes → its claim goes → the StatefulSet comes back → wait until it is in sync",
        late="1 h",
    ),
    Case(
        "ChangingServers",
        "ZooKeeper has more or fewer servers than spec.zookeeper.managed.replicas says, or a"
        " majority of them on one node while another is free",
        "one at a time, while all members serve. More: a server begins as an observer, and the one"
        " that leads takes it in once it has everything. Fewer: the one that leads does without"
        " the last, which is not ready from then on; then its pod goes, and its claim stays."
        " A majority on one node: one of them is restarted",
        late="10 min",
    ),
    Case(
        "TakingShardsBack",
        "a shard that was being removed is wanted again",
        "uncordon it, stop its drain",
    ),
    Case(
        "ScaleDownBlocked",
        "shards should go, and a topic needs them",
        "nothing; wait for the topic or the spec to change",
    ),
    Case(
        "ScalingDown",
        "there are more shards than wanted",
        "note the victims → cordon → ImagoRebalance of mode Drain or Seal → wait until they are"
        " read out → mark them drained, under the operator's epoch → list their claims in the"
        " status (whenScaled Delete) → no pods → claims go → StatefulSet goes"
        " → the ImagoRebalance goes",
        late="scaleDown.timeout",
    ),
    Case(
        "Fenced",
        "the annotation imago.dev/fenced names members, or `*`",
        "have their brokers keep their logs and serve nobody, once all others of the shard are in"
        " sync; all members of a shard, or one with `!`, at once. Lift it when the name is gone."
        " Nothing is restarted, moved or removed meanwhile; what repairs goes on",
    ),
    Case(
        "MembersMissing",
        "members are missing and nothing else needs doing",
        "wait: Kubernetes starts them",
        late="10 min",
    ),
    Case("Settled", "nothing differs", "nothing; look again at events, and every 5 min ± 20 %"),
)
