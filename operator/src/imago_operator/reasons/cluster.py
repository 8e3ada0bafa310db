"""Conditions of an ImagoCluster."""

from __future__ import annotations

from functools import partial
from typing import Final

from imago_operator.reasons import registry
from imago_operator.reasons.certificates import CERTIFICATES
from imago_operator.reasons.model import (
    BY_ITSELF,
    OPERATOR_LOG,
    Happening,
    Reason,
    own_mistake,
    refused_by_kubernetes,
)
from imago_operator.reasons.service import FENCED, READY

_of = partial(Reason, "ImagoCluster")
EXPLAIN: Final = "`kubectl imago explain CLUSTER` names what it waits for."

WORK: Final = (
    _of("ResourcesApplied", "Applied", "Every object has its desired state."),
    _of(
        "ResourcesApplied",
        "Applying",
        "Objects differ and are applied.",
        f"{BY_ITSELF} Where it stays, the operator is refused: {OPERATOR_LOG}.",
    ),
    _of("ConfigApplied", "Applied", "Running brokers have the settings of the spec."),
    _of(
        "ConfigApplied",
        "Applying",
        "Settings that may change at run time are being set.",
        f"{BY_ITSELF} Where it stays, a broker refuses a value: {OPERATOR_LOG}.",
    ),
    _of("Reconciling", "Reading", "Lists of Kubernetes are not complete yet.", BY_ITSELF),
    _of("Reconciling", "ApplyingObjects", "Objects are being created or changed.", BY_ITSELF),
    _of(
        "Reconciling",
        "RegistryUnavailable",
        "Waits for a broker, or for ZooKeeper.",
        "See *ZooKeeper is gone*.",
    ),
    _of(
        "Reconciling",
        "Bootstrapping",
        "A new cluster: pods start, brokers name the cluster in the registry and elect masters.",
        "Nothing for ten minutes; then `kubectl describe pod`: image, volumes, room on nodes.",
    ),
    _of(
        "Reconciling",
        "ReplacingMember",
        "The operator is about to give up a member whose disk was on a lost node.",
        "See *A node is lost*.",
    ),
    _of(
        "Reconciling",
        "ShardWithoutMaster",
        "Waits for an election.",
        "See *A shard without master*.",
    ),
    _of(
        "Reconciling",
        "Hibernating",
        "The cluster is put to sleep, or is woken and waits for its ZooKeeper.",
        EXPLAIN,
    ),
    _of("Reconciling", "RepairingPods", "Pods that never ran are recreated.", BY_ITSELF),
    _of("Reconciling", "LabellingRoles", "Labels follow a change of master.", BY_ITSELF),
    _of("Reconciling", "ApplyingSettings", "Settings are being changed.", BY_ITSELF),
    _of("Reconciling", "GrowingVolumes", "Volumes are growing.", "See StorageReady."),
    _of("Reconciling", "ScalingUp", "New shards start.", BY_ITSELF),
    _of("Reconciling", "Restarting", "Pods are being restarted.", "See Updating."),
    _of("Reconciling", "ChangingMembers", "Members join or leave.", BY_ITSELF),
    _of(
        "Reconciling",
        "AddingMembers",
        "Members that were added copy their shards. Until all are in sync, puts need no more of"
        " them than before.",
        "Nothing while they copy: `kubectl imago status` shows how far each is. A pod that does not"
        " start is in *Degraded*.",
    ),
    _of(
        "Reconciling",
        "RemovingMembers",
        "Members leave, one of a shard at a time, while those that stay are in sync.",
        "Nothing; where it waits, for the pods that the message names.",
    ),
    _of(
        "Reconciling",
        "MembersHeld",
        "More members are wanted, and brokers are of a version that lets nobody join a shard of"
        " one member while it runs.",
        "Set `spec.version` to 0.2 or later; members are added once the brokers have it.",
    ),
    _of(
        "Reconciling",
        "MovingMembers",
        "A member is given another claim, and copies its shard onto that.",
        "Nothing while it copies: `kubectl imago status` shows how far it is. A pod that does not"
        " start is in *Degraded*.",
    ),
    _of(
        "Reconciling",
        "MoveHeld",
        "A member is to have another claim, and may not go now.",
        "Nothing, or what the message names: more members, the others in sync, a window.",
    ),
    _of(
        "Reconciling",
        "ChangingServers",
        "ZooKeeper gets more servers, or fewer, or one on another node, one at a time.",
        "Nothing, or what the message names: a server that does not start, a template to approve.",
    ),
    _of("Reconciling", "TakingShardsBack", "A scale-down was cancelled.", BY_ITSELF),
    _of("Reconciling", "ScalingDown", "Shards are being removed.", "See ScalingDown."),
    _of(
        "Reconciling",
        "MembersMissing",
        "Waits for members to come back.",
        "`kubectl describe pod` of those named.",
    ),
)
CHANGE: Final = (
    _of(
        "Updating",
        "SpecChanged",
        "The spec changed the pods' template.",
        f"Nothing. Where it says *blocked by*: {EXPLAIN}",
    ),
    _of("Updating", "VersionChange", "Brokers get another version.", EXPLAIN),
    _of("Updating", "ConfigNeedsRestart", "A setting changed that needs a restart.", EXPLAIN),
    _of("Updating", "VolumeResize", "A restart lets a file system grow.", EXPLAIN),
    _of("Updating", "ManualRestart", "Somebody ordered a restart.", EXPLAIN),
    _of(
        "Updating",
        "TemplateEdited",
        "Pods were made of a StatefulSet's template that somebody had edited. It was put back; now"
        " they are restarted, one by one, to have what it says.",
        f"Nothing. Where it says *blocked by*: {EXPLAIN}",
    ),
    _of(
        "Updating",
        "OperatorTemplateChanged",
        "A new operator changes the pods' template, and somebody approved that.",
        EXPLAIN,
    ),
    _of(
        "Updating",
        "Repair",
        "Pods that never ran with an old template are deleted, so that they get the new one.",
        BY_ITSELF,
    ),
    _of(
        "UpdatePending",
        "OperatorTemplateChanged",
        "A new operator would change the pods' template; that alone restarts nothing.",
        "`kubectl imago approve CLUSTER` when it suits you. Nothing is wrong until then.",
    ),
    _of(
        "UpdatePending",
        "OutsideWindow",
        "Restarts wait for a window of `updatePolicy`.",
        "Wait, or `kubectl imago approve CLUSTER`.",
    ),
    _of(
        "UpdatePending",
        "ApprovalRequired",
        "`updatePolicy.mode` is Manual.",
        "`kubectl imago approve CLUSTER`.",
    ),
    _of("ScalingDown", "Cordoning", "The shards that go accept no new topics.", BY_ITSELF),
    _of(
        "ScalingDown",
        "Draining",
        "Their topics continue elsewhere; consumers read out what they hold, or it expires.",
        "Nothing. Where it does not end: see *A drain does not end*.",
    ),
    _of(
        "ScalingDown",
        "RemovingPods",
        "They are empty; pods and StatefulSets are being removed.",
        BY_ITSELF,
    ),
    _of(
        "ScalingDown",
        "RemovingClaims",
        "Claims are being removed, since whenScaled is Delete.",
        BY_ITSELF,
    ),
    _of(
        "ScalingDown",
        "NotEnoughShards",
        "An ImagoTopic needs more shards than would stay.",
        "Lower its `placement.count`, or keep the shards.",
    ),
    _of(
        "ScalingDown",
        "TopicPinned",
        "An ImagoTopic names a shard that is to go.",
        "Change its `placement.shardIds`, or name other shards in `removeShards`.",
    ),
)
TROUBLE: Final = (
    _of("StorageReady", "Bound", "Claims are bound and have the requested size."),
    _of(
        "StorageReady",
        "LargerThanSpec",
        "Somebody, or autoGrow, made claims larger than the spec: they stay.",
    ),
    _of(
        "StorageReady",
        "CoolingDown",
        "Disks are fuller than `storage.autoGrow.above`, and their claims grew not long ago.",
        f"{BY_ITSELF} If it is too slow, raise `storage.size`: that grows all claims at once.",
    ),
    _of(
        "StorageReady",
        "MaxReached",
        "Disks are fuller than `storage.autoGrow.above`, and their claims as large as its `max`.",
        "Raise `storage.autoGrow.max`, or keep messages for less time: see *A disk runs full*.",
    ),
    _of("StorageReady", "Expanding", "Volumes grow.", "Nothing for half an hour."),
    _of(
        "StorageReady",
        "FileSystemResizePending",
        "The file system grows at the pod's next start, which is planned.",
        BY_ITSELF,
    ),
    _of(
        "StorageReady",
        "ExpansionUnsupported",
        "The storage class cannot grow volumes. With more members than puts need, they begin on"
        " larger claims one by one; otherwise brokers keep what they have.",
        "Nothing while *Reconciling* is `MovingMembers`. Otherwise set `allowVolumeExpansion: true`"
        " on the class if its driver supports it, or raise `replicasPerShard` above `minInSync`.",
    ),
    _of(
        "StorageReady",
        "ClaimLost",
        "The volume of a claim is gone.",
        "See *A node is lost*: the others recreate the member.",
    ),
    _of(
        "Degraded",
        "ReplicasMissing",
        "Members are missing; shards with a master serve.",
        "`kubectl describe pod` of those missing. Do not restart others meanwhile.",
    ),
    registry.USER_LOST,
    *registry.OPEN,
    _of(
        "Degraded",
        "PodsUnschedulable",
        "No node takes the pods named; the message ends with the scheduler's own words.",
        "Give the cluster a node with the room that it names, or ask for less:"
        " `spec.brokers.resources`, `spec.zookeeper.managed.resources`.",
    ),
    _of(
        "Degraded",
        "ImageMissing",
        "The image that the message names cannot be pulled for the pods named.",
        "Correct `spec.image` or `spec.zookeeper.managed.image`, push the image, or name the"
        " Secret for its registry in `spec.imagePullSecrets`.",
    ),
    _of(
        "Degraded",
        "PodsFailing",
        "Containers of the pods named end again and again, or cannot begin; the message has their"
        " own last words.",
        "Correct what they name: a setting in `spec.brokers.config`, a Secret, a volume. The"
        " operator then replaces the pods. `kubectl logs POD --previous` has more.",
    ),
    _of(
        "Degraded",
        "ZooKeeperOnOneNode",
        "A majority of ZooKeeper's servers is on one node: when that node fails, nothing is"
        " acknowledged until it is back.",
        "Nothing if another node becomes free: the operator moves one. Otherwise add a node, or"
        " let volumes of ZooKeeper be mounted on other nodes.",
    ),
    _of(
        "Degraded",
        "NodeLost",
        "The node with a member's disk is gone; the operator gives the member up after five"
        " minutes if another one of its shard is in sync.",
        "See *A node is lost*.",
    ),
    _of(
        "MembersImpaired",
        "MemberStuck",
        "A member cannot do its part; the message has its own words, or its master's. The others of"
        " its shard serve.",
        f"{EXPLAIN} The log of its pod has the whole of it.",
    ),
    _of(
        "MembersImpaired",
        "MemberDamaged",
        "A part of a member's log is out of service. It gets that part from the other members of"
        " its shard, and leads only where no whole one can.",
        "Nothing for a few minutes; where it stays, see *A damaged log*.",
    ),
    _of(
        "MembersImpaired",
        "BucketAway",
        "A master does not reach the bucket of old messages. What is on the disks is served; who"
        " reads older messages waits, and disks keep what would have gone there.",
        "`kubectl exec POD -- imago cluster status` says why: endpoint, credentials, network.",
    ),
    _of(
        "DriftContested",
        "ChangedAgain",
        "Somebody changes a field again that the operator restored; the message has the field,"
        " its value and who sets it. The operator restores it again and again, less and less"
        " often.",
        "Stop what changes it. Put a lasting difference into the spec.",
    ),
    _of(
        "Stalled",
        "InvalidSpec",
        "The spec is refused. Until it is corrected the operator observes and repairs the cluster"
        " by the last one that it accepted (`status.acceptedSpec`); restarts and removal of"
        " shards wait.",
        "Correct the field that the message names.",
    ),
    _of(
        "Stalled",
        "UnsupportedVersion",
        "`spec.version` is newer than the operator, or more than one minor line older. Brokers"
        " keep what they have. Where it is newer, the operator repairs them by the last spec that"
        " it accepted; where they are too old for it, it observes them and does nothing to them.",
        "Upgrade the operator, or return to a version that runs the brokers; then continue one"
        " minor line at a time (docs/upgrade.md).",
    ),
    _of(
        "Stalled",
        "DowngradeRefused",
        "The version is older than what runs, or more than one minor step newer. The cluster is"
        " kept by the last spec that the operator accepted.",
        "Go in single minor steps; brokers of an older version are not supported on newer data.",
    ),
    _of(
        "Stalled",
        "DeadlineExceeded",
        "The operator waits for longer than it should. It goes on waiting.",
        f"{EXPLAIN} Then the entry for that.",
    ),
    _of(
        "Stalled",
        "InvalidWindow",
        "A window of `spec.updatePolicy.windows` cannot be read; it counts as never open."
        " Restarts wait for the other windows; repairs and everything else continue.",
        "Correct the schedule or the time zone that the message names. What waits is restarted at"
        " once with `kubectl imago approve CLUSTER`.",
    ),
    *refused_by_kubernetes("ImagoCluster", "Stalled"),
    own_mistake("ImagoCluster"),
    _of(
        "Hibernated",
        "Stopping",
        "`spec.hibernated` is true: all brokers stop, then ZooKeeper. Claims stay.",
        f"{BY_ITSELF} Where it waits for a broker to answer: see ZooKeeperConnected.",
    ),
    _of(
        "Hibernated",
        "Asleep",
        "No pod of the cluster runs; its claims are kept.",
        "`spec.hibernated: false` wakes it.",
    ),
    _of("Paused", "Annotation", "See Ready, Paused.", "`kubectl imago resume CLUSTER`."),
)
REASONS: Final = (*READY, *WORK, *CHANGE, *CERTIFICATES, *TROUBLE, *FENCED)

_did = partial(Happening, "ImagoCluster")
EVENTS: Final = (
    _did(
        "DriftCorrected",
        "Somebody changed a field that the operator applies, and the operator restored it; the"
        " message has the field, its value and who changed it. Put a lasting difference into"
        " the spec.",
    ),
    _did("Stop", "A drained shard's StatefulSet was scaled to no pods."),
    _did("Hibernate", "A StatefulSet was scaled to no pods, since `spec.hibernated` is true."),
    _did("DeleteChild", "An object that is no longer wanted was deleted."),
    _did("DeletePod", "A pod was deleted for a restart or a repair; the message says which."),
    _did("OwnClaim", "A claim goes with the cluster from now on, or stays when it goes."),
    _did("DeleteClaim", "A claim was deleted, with its data."),
    _did(
        "Handover", "A master handed leadership over before its restart, at the operator's request."
    ),
    _did("Elect", "A member that may lack messages was made master, as a person had approved."),
    _did(
        "FenceMember",
        "A member was fenced, as the annotation imago.dev/fenced asks: it serves nobody.",
    ),
    _did(
        "RaiseLevel",
        "Brokers use from now on what all of them understand; the version before does not start any"
        " more (docs/versions.md).",
    ),
    _did("Cordon", "A shard accepts no new topics from now on."),
    _did(
        "OperatedByAnother",
        "Another installation of the operator operates the cluster; this one does nothing to"
        " it, nor to resources that name it. See *The operator itself*.",
    ),
    _did(
        "DeletedForRoom",
        "Messages of a shard were deleted before they had expired, since no member in sync had room"
        " on its disk; the message has how many. One event for each stretch; `status.shards` has"
        " how far it went. See *A disk runs full*.",
    ),
    _did("MarkDrained", "A shard was recorded as empty."),
)
"""What was taken away, moved or stopped: one event each."""
