"""Conditions of an ImagoMirror."""

from __future__ import annotations

from functools import partial
from typing import Final

from imago_operator.reasons.model import BY_ITSELF, Reason, own_mistake, refused_by_kubernetes

KIND: Final = "ImagoMirror"
_of = partial(Reason, KIND)
_RIGHTS: Final = "Give the mirror's user its rights: docs/mirror.md has the table."

TROUBLES: Final = (
    _of("Ready", "SameCluster", "Source and target are one cluster, by whatever address.",
        "Correct `spec.target`."),
    _of("Ready", "TargetRefused", "The target refuses what the mirror asks; the message quotes it.",
        _RIGHTS),
    _of("Ready", "SourceRefused", "The source refuses what the mirror asks; the message quotes it.",
        _RIGHTS),
    _of("Ready", "TargetAway", "The target does not answer. Copying goes on when it does; nothing"
                               " is lost as long as the source keeps its messages.",
        "See the target's conditions, and `spec.target`."),
    _of("Ready", "SourceAway", "The source does not answer. Copying goes on when it does.",
        "See the source's conditions, and `spec.source`. To go on without it:"
        " `spec.state: FailedOver`."),
    _of("Ready", "MessageRefused", "A queue stands still: the target does not take a message.",
        "Raise the target's `rocketmq.message_bytes_max`, or see what the message says."),
    _of("Ready", "SourceWentBack", "The source has lost messages that were copied.", BY_ITSELF),
    _of("Ready", "MessagesExpired", "The source deleted messages before they were copied.",
        "Keep messages longer at the source, or find out why the mirror fell behind."),
    _of("Ready", "TopicMissing", "A topic of `spec.topics` is not at the source.",
        "Make it, or take it out."),
    _of("Ready", "NotMirrored", "A topic of `spec.topics` is of a kind that stays in its cluster.",
        "Take it out."),
)  # fmt: skip
"""The worst first."""
TOLD: Final = tuple(one.reason for one in TROUBLES)
"""Reasons that the process itself gives."""
REASONS: Final = (
    _of("Ready", "Copying", "Messages are copied as they come."),
    _of("Ready", "Suspended", "`spec.state` is Suspended: nothing is copied."),
    _of("Ready", "FailedOver", "It has stopped; the message says what the target lacks.",
        "Nothing; the way back: docs/mirror.md."),
    _of("Ready", "Starting", "The process starts, or finds out how far it is. The message says what"
                             " its pod is at.",
        "`kubectl describe pod -l imago.dev/mirror=NAME`, where it takes minutes."),
    *TROUBLES,
    _of("Ready", "SecretNotFound", "The Secret of a side is not there.",
        "Make it, or correct `secretName`."),
    _of("Ready", "ClusterNotFound", "There is no such ImagoCluster, or it is going.",
        "Correct `clusterRef`, or make the cluster."),
    _of("Ready", "NamespaceNotAllowed", "The cluster does not let this namespace in.",
        "Change `allowedNamespaces` of the cluster."),
    _of("Ready", "InvalidSpec", "The spec is refused.",
        "Correct the field that the message names."),
    _of("Paused", "Annotation",
        "The annotation imago.dev/pause-reconciliation stops the operator.",
        "Remove the annotation."),
    *refused_by_kubernetes(KIND, "Ready", "Stalled"),
    own_mistake(KIND),
)  # fmt: skip
