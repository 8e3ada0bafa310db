"""Conditions of topics, consumer groups and rebalances."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from imago_operator.reasons.model import (
    BY_ITSELF,
    Happening,
    Reason,
    own_mistake,
    refused_by_kubernetes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: Final = (
    *("ImagoTopic", "ImagoConsumerGroup", "ImagoUser", "ImagoRebalance"),
    *("ImagoBackup", "ImagoScheduledBackup"),
)
CLAIMING: Final = KINDS[:3]
_topic, _group, _user, _moves, _backup, _schedule = (partial(Reason, kind) for kind in KINDS)


def _shared() -> Iterator[Reason]:
    for kind in KINDS:
        yield Reason(
            kind,
            "Ready",
            "ClusterNotFound",
            "There is no ImagoCluster of the name in `clusterRef`, or it is being deleted.",
            "Recreate the resource with the right `clusterRef`, or apply the cluster.",
        )
        yield Reason(
            kind,
            "Ready",
            "NamespaceNotAllowed",
            "The cluster's `allowedNamespaces` does not let the resource's namespace in.",
            "Change `allowedNamespaces` of the cluster, or the labels that it selects by.",
        )
        yield Reason(
            kind,
            "Ready",
            "ClusterNotReady",
            "No broker with ZooKeeper answers, or not all shards did what they were asked for."
            " Nothing happens until one does; the operator repeats its requests.",
            "`kubectl imago explain CLUSTER`.",
        )
        yield Reason(
            kind,
            "Ready",
            "BrokerRejected",
            "Brokers refuse it; the message quotes them. The operator repeats the request"
            " now and then.",
            "Correct the field that the message names.",
        )
        yield Reason(
            kind,
            "Ready",
            "InvalidSpec",
            "The spec is refused.",
            "Correct the field that the message names.",
        )
        yield Reason(
            kind,
            "Paused",
            "Annotation",
            "The annotation imago.dev/pause-reconciliation stops the operator.",
            "Remove the annotation.",
        )
        yield from refused_by_kubernetes(kind, "Ready", "Stalled")
        yield own_mistake(kind)


def _claiming() -> Iterator[Reason]:
    for kind in CLAIMING:
        yield Reason(kind, "Ready", "InSync", "Brokers have what the resource says.")
        yield Reason(
            kind,
            "Ready",
            "Conflict",
            "An older resource defines it; or, for a topic, brokers had it already and"
            " `adoptionPolicy` is FailIfExists. This resource does nothing, and removes nothing"
            " when it is deleted.",
            "Delete one of the two resources.",
        )
        yield Reason(kind, "Ready", "Deleting", "It is being deleted on all shards.", BY_ITSELF)


TOPIC: Final = (
    _topic(
        "Ready",
        "PartitionsCannotShrink",
        "Brokers have more partitions than the spec asks for: clients know their numbers, so"
        " they stay. All other settings are in force.",
        "Raise `partitions` to what the message says; or hide what the others hold, with the"
        " annotation imago.dev/hide-messages, whose value is the number of partitions left.",
    ),
    _topic(
        "Warning",
        "UnknownSettings",
        "The topic has settings that are not in the spec. They stay.",
        "Write them into `config`, or remove them with `imago topic`.",
    ),
    _topic(
        "Warning",
        "MoreShards",
        "The topic has queues on more shards than `placement` says: messages may be in them.",
        "Nothing, or move them away by an ImagoRebalance with `mode: Drain` and this topic.",
    ),
)
GROUP: Final = (
    _group(
        "Ready",
        "GroupActive",
        "The resource is deleted with `deletionPolicy: Delete`, and members consume.",
        "Stop the consumers.",
    ),
    _group(
        "LagHigh",
        "TooManyMessages",
        "The group has more messages to read than `maxLag.messages`.",
        "More consumers, or faster ones; `kubectl imago groups` shows by topic.",
    ),
    _group(
        "LagHigh",
        "TooOld",
        "The oldest message that the group has not read is older than `maxLag.time`.",
        "More consumers, or faster ones; `kubectl imago groups` shows by topic.",
    ),
    _group(
        "ResetPending",
        "GroupActive",
        "Offsets are reset only while the group has no members.",
        "Stop the consumers; the operator then resets by itself.",
    ),
    _group(
        "ResetPending",
        "ShardMissing",
        "A shard did not answer whether the group has members.",
        "`kubectl imago explain CLUSTER`.",
    ),
    _group(
        "ResetPending",
        "BrokerRejected",
        "Brokers did not set the offsets; the message quotes them.",
        BY_ITSELF,
    ),
)
USER: Final = (
    _user(
        "Ready",
        "SecretMissing",
        "The Secret of `passwordSecretRef` is not there, or lacks the entry.",
        "Create it; the operator checks again within half a minute.",
    ),
    _user(
        "Ready",
        "SecretNotOurs",
        "A Secret of the name that the user's is to have has another owner.",
        "Delete it, or recreate the ImagoUser with another `secretName`.",
    ),
    _user(
        "Ready",
        "ClientsAuthorityMissing",
        "Nobody signs certificates for clients of the cluster, or not with a key of ours.",
        "Set `spec.tls.clientsCa` of the ImagoCluster; its Secret needs `tls.crt` and `tls.key`.",
    ),
    _user(
        "Warning",
        "AuthorizationOff",
        "The cluster's brokers do not check rights: the user's rules have no effect.",
        "Set `spec.authorization.type: Simple` of the ImagoCluster.",
    ),
    _user(
        "Warning",
        "TokenInTheClear",
        "The cluster has no certificates, so its admin interface is called without TLS, and who"
        " sees the network can read the user's token.",
        "Set `spec.tls` of the ImagoCluster; then `kubectl imago user rotate`.",
    ),
)
MOVES: Final = (
    _moves("Ready", "Succeeded", "The queues are placed as requested."),
    _moves("Ready", "Approved", "It is about to begin.", BY_ITSELF),
    _moves(
        "Ready",
        "ApprovalRequired",
        "`approval` is Manual; `status.plan` shows what it would do.",
        "`kubectl imago approve CLUSTER NAME`.",
    ),
    _moves("Ready", "Running", "Topics are moving.", BY_ITSELF),
    _moves(
        "Ready",
        "NoRoom",
        "No shard takes the topics: those there are cordoned or have no master.",
        "Add a shard, or take one back.",
    ),
    _moves("Ready", "Stopping", "Brokers revert what they do for it.", BY_ITSELF),
    _moves(
        "Ready",
        "Stopped",
        "The annotation imago.dev/stop ended it. What was moved by name stays where it is.",
    ),
    _moves(
        "Ready",
        "TakenBack",
        "The drain was cancelled on the brokers' side, or by a new size of the cluster.",
        "Make another ImagoRebalance if it is still wanted.",
    ),
)
BACKUPS: Final = (
    _backup("Ready", "Succeeded", "The backup is complete. The message names damage in the log."),
    _backup("Ready", "Running", "Members send their logs.", BY_ITSELF),
    _backup(
        "Ready",
        "BackupFailed",
        "A member could not do its part; the message says why. It is tried again for a day, and"
        " goes on where it was.",
        "Correct what the message names: the bucket, its credentials, ZooKeeper, a shard without"
        " members.",
    ),
    _backup(
        "Ready",
        "NameTaken",
        "The bucket has a backup of this name that this resource did not begin.",
        "Give the resource another name.",
    ),
    _backup("Ready", "Deleting", "The backup is being deleted.", BY_ITSELF),
    _schedule("Ready", "Waiting", "The next backup is made when it is due.", BY_ITSELF),
    _schedule("Ready", "Suspended", "`suspend` is true: no backups are made."),
)
REASONS: Final = tuple(
    sorted(
        (*_shared(), *_claiming(), *TOPIC, *GROUP, *USER, *MOVES, *BACKUPS),
        key=lambda r: KINDS.index(r.kind),
    )
)
EVENTS: Final = tuple(
    Happening(kind, reason, means)
    for kind in (*CLAIMING, "ImagoBackup")
    for reason, means in (
        ("Retained", "The resource was deleted; its topic, group or user stays."),
        ("Deleted", "The resource was deleted, after its topic, group or user."),
        ("ClusterGone", "The resource was deleted after its cluster."),
        (
            "StillClaimed",
            "The resource was deleted; another one names the same topic, group or user, which"
            " stays.",
        ),
        (
            "ReleasedUnreachable",
            "The resource was deleted though no broker answered for --finalizer-release-after:"
            " brokers keep its topic, group or user.",
        ),
    )
)
