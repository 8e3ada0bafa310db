"""Whether an ImagoCluster serves its clients, as conditions of it."""

from __future__ import annotations

from functools import partial
from typing import Final

from imago_operator.reasons.model import BY_ITSELF, OPERATOR_LOG, Reason

_of = partial(Reason, "ImagoCluster")

REFUSING: Final = (
    (
        "PutsRefused",
        "The masters of the shards named refuse messages, for the reason that the message has;"
        " consumers read as before.",
        "See *A disk runs full* if it is that. Too few members in sync: `kubectl imago status"
        " CLUSTER` shows which lack; `kubectl describe pod` why one does not run.",
    ),
    (
        "GetsRefused",
        "The masters of the shards named deliver nothing, for the reason that the message has.",
        "Nothing for a minute: a new master waits for the others. Then the log of its pod.",
    ),
    (
        "MasterSilent",
        "The masters of the shards named do not answer the operator's HTTP calls: it cannot tell"
        " whether clients are served.",
        "`kubectl imago explain CLUSTER`; then the log of the master's pod.",
    ),
)
READY: Final = (
    _of("Ready", "AllShardsServing", "Every shard has a master and all its members."),
    _of(
        "Ready",
        "NotYetReconciled",
        "The operator has not read all objects yet.",
        f"Nothing for two minutes; then look at the operator: {OPERATOR_LOG}.",
    ),
    _of(
        "Ready",
        "BrokersStarting",
        "Members of a shard are missing or not in sync. Shards with a master serve meanwhile.",
        "`kubectl imago status CLUSTER` shows which; `kubectl describe pod` why one does not run.",
    ),
    _of(
        "Ready",
        "DiskFull",
        "Brokers whose disk is full refuse messages; consumers read as before.",
        "Raise `spec.brokers.storage.size`; see *A disk runs full*.",
    ),
    _of(
        "Ready",
        "ShardOffline",
        "A shard has no master: its queues accept and deliver nothing.",
        "See *A shard without master*.",
    ),
    _of(
        "Ready",
        "ZooKeeperUnavailable",
        "No broker answers, or those that answer have no ZooKeeper.",
        "See *ZooKeeper is gone*.",
    ),
    _of(
        "Ready",
        "InvalidSpec",
        "The spec is refused, and no earlier one was accepted: nothing is made, observed or"
        " repaired.",
        "Correct the field that the message names.",
    ),
    _of(
        "Ready",
        "Paused",
        "The annotation imago.dev/pause-reconciliation stops the operator.",
        "`kubectl imago resume CLUSTER` when you are done.",
    ),
    *(
        _of(
            type_,
            "Fenced",
            "Members are fenced, by the annotation imago.dev/fenced. Available: all of a shard.",
            "`kubectl imago unfence CLUSTER` when you are done.",
        )
        for type_ in ("Ready", "Available")
    ),
    *(
        _of(
            type_,
            "Hibernated",
            "`spec.hibernated` is true, or was until a moment ago: no broker runs, no client is"
            " served; claims are kept.",
            "`spec.hibernated: false` wakes it.",
        )
        for type_ in ("Available", "Ready", "ZooKeeperConnected")
    ),
    _of(
        "Ready",
        "Deleting",
        "The cluster is being deleted; claims stay unless `whenDeleted` is Delete.",
    ),
    _of("Available", "EveryShardHasMaster", "Every shard accepts and delivers messages."),
    *(
        _of(type_, reason, means, cure)
        for type_ in ("Available", "Ready")
        for reason, means, cure in REFUSING
    ),
    _of(
        "Available",
        "ShardWithoutMaster",
        "The shards named have no master.",
        "See *A shard without master*.",
    ),
    _of("ZooKeeperConnected", "Connected", "Brokers have their session."),
    _of(
        "ZooKeeperConnected",
        "ZooKeeperUnavailable",
        "Brokers answer, and have no session with ZooKeeper. Masters stop acknowledging when their"
        " lease is over; nothing is restarted or removed.",
        "See *ZooKeeper is gone*.",
    ),
    _of(
        "Available",
        "NoBrokerAnswers",
        "No broker answers the operator: it cannot tell whether clients are served.",
        "See ZooKeeperConnected of the same reason.",
    ),
    _of(
        "Available",
        "NotObserved",
        "The operator does not observe the cluster now; `status.lookedAt` says when it last did.",
        "Correct what Ready and Stalled name; brokers serve meanwhile.",
    ),
    _of(
        "ZooKeeperConnected",
        "NoBrokerAnswers",
        "No broker answers the operator's HTTP calls. Clients may still be served.",
        "Are pods running? May the operator reach port 8080 (NetworkPolicy)? Is the Secret"
        " `CLUSTER-admin-token` the one that brokers have mounted?",
    ),
    _of(
        "ZooKeeperConnected",
        "OtherCluster",
        "Brokers report another cluster id than the one on record: ZooKeeper was replaced or"
        " emptied, or another cluster's address is in the spec. The operator removes nothing.",
        "See *ZooKeeper is gone*.",
    ),
)
FENCED: Final = (
    _of(
        "Reconciling",
        "Fenced",
        "The annotation imago.dev/fenced has members serve nobody. Nothing is restarted, moved or"
        " removed until it is gone.",
        "`kubectl imago unfence CLUSTER` when you are done.",
    ),
    _of(
        "Fenced",
        "Fencing",
        "Brokers of members that the annotation imago.dev/fenced names end in order; a leader hands"
        " over first.",
        BY_ITSELF,
    ),
    _of(
        "Fenced",
        "MembersFenced",
        "The members named keep their logs and serve nobody. Nothing is restarted, moved or removed"
        " meanwhile.",
        "`kubectl imago unfence CLUSTER` when you are done.",
    ),
    _of(
        "Fenced",
        "FenceHeld",
        "A member is to be fenced, and its shard needs it for now: the message says whom it waits"
        " for. Or there is no such member.",
        "Mend the others first; or `kubectl imago fence CLUSTER POD --anyway`: no message is lost,"
        " and clients are refused until the fence is lifted.",
    ),
)
