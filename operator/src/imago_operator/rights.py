"""What the operator may do in Kubernetes: one table, from which the chart's roles are made.

A right is there because a call needs it; a test compares the table with the calls. In namespaces
that the operator is confined to it has the rights of `Where.NAMESPACE`, in its own those of
`Where.OWN`, and nothing in the cluster's scope.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from imago_operator.model.names import GROUP

SEE: Final = ("list", "watch")
APPLY: Final = ("create", "patch")
"""Applying from the server's side creates what is missing, and needs both."""


class Where(Enum):
    """Part of the chart's roles that a right belongs to."""

    NAMESPACE = "namespace"
    """In every namespace that is looked after."""
    PIPELINES = "pipelines"
    """There, too, if pipelines are wanted."""
    SPARK_OPERATOR = "sparkOperator"
    """There, too, if kubeflow's operator is to run them."""
    OWN = "own"
    """In the operator's own namespace."""
    FACTS = "facts"
    """In the cluster's scope: read what no namespace has."""
    CLUSTER = "cluster"
    """In the cluster's scope, where all namespaces are looked after."""


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on resources of one API group, and what they are for."""

    where: Where
    group: str
    """Empty: the core."""
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str

    @property
    def rule(self) -> dict[str, list[str]]:
        """The rule of a Role."""
        return {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }


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
_N, _P = Where.NAMESPACE, Where.PIPELINES
RIGHTS: Final[tuple[Right, ...]] = (
    Right(_N, GROUP, KINDS, SEE, "the desired state"),
    Right(_N, GROUP, KINDS, ("get",), "the same, as it is now"),
    Right(_N, GROUP, tuple(f"{kind}/status" for kind in KINDS), ("patch",), "what became of it"),
    Right(
        _N,
        GROUP,
        ("imagotopics", "imagoconsumergroups", "imagousers", "imagobackups"),
        ("patch",),
        "the finalizer of those whose topic, group, user or backup goes with them",
    ),
    Right(_N, GROUP, ("imagorebalances",), (*APPLY, "delete"), "drains and fills"),
    Right(_N, GROUP, ("imagobackups",), ("create", "delete"), "backups of a schedule"),
    Right(
        _N,
        GROUP,
        ("imagoclusters/finalizers", "imagopipelines/finalizers"),
        ("update",),
        "owner references that block, where the API server asks for this",
    ),
    Right(
        _N,
        "",
        ("configmaps", "services"),
        (*SEE, *APPLY, "delete"),
        "configuration and ways in",
    ),
    Right(_N, "", ("serviceaccounts",), (*SEE, *APPLY), "accounts without rights, of brokers"),
    Right(
        _N,
        "",
        ("secrets",),
        ("get", *APPLY),
        "the token of the brokers' administration; certificates of members, authorities; what"
        " clients of an ImagoUser need",
    ),
    Right(
        _N,
        "cert-manager.io",
        ("certificates",),
        ("list", *APPLY),
        "certificates of members, where cert-manager's issuer signs them",
    ),
    Right(
        _N,
        "",
        ("pods",),
        ("get", *SEE, "patch", "delete"),
        "where brokers are, who leads; restarts, one by one",
    ),
    Right(
        _N,
        "",
        ("persistentvolumeclaims",),
        (*SEE, "patch", "delete"),
        "growth, owners; those of drained shards go where the spec asks for it",
    ),
    Right(
        _N,
        "coordination.k8s.io",
        ("leases",),
        ("get",),
        "whether another installation, which a cluster names as its own, still lives",
    ),
    Right(_N, "", ("events",), APPLY, "what happened, for people"),
    Right(_N, "apps", ("deployments",), ("list", *APPLY), "processes of mirrors"),
    Right(_N, "apps", ("statefulsets",), (*SEE, *APPLY, "delete"), "a shard each"),
    Right(
        _N,
        "apps",
        ("controllerrevisions",),
        ("get",),
        "whether a pod was made of a template that somebody had edited",
    ),
    Right(
        _N,
        "policy",
        ("poddisruptionbudgets",),
        (*SEE, *APPLY, "delete"),
        "at most one member of a shard is disturbed",
    ),
    Right(
        _N,
        "networking.k8s.io",
        ("networkpolicies",),
        (*SEE, *APPLY, "delete"),
        "who reaches what",
    ),
    Right(
        _P,
        "batch",
        ("jobs", "cronjobs"),
        (*SEE, *APPLY, "delete"),
        "runs of spark-submit, also by schedule: begun, suspended, ended",
    ),
    Right(_P, "", ("persistentvolumeclaims",), ("create",), "checkpoints"),
    Right(_P, GROUP, ("imagousers",), ("create", "delete"), "users of pipelines"),
    Right(
        Where.SPARK_OPERATOR,
        "sparkoperator.k8s.io",
        ("sparkapplications", "scheduledsparkapplications"),
        (*SEE, *APPLY, "delete"),
        "runs by kubeflow's operator, also by schedule",
    ),
    Right(Where.OWN, "coordination.k8s.io", ("leases",), ("get", "create", "update"), "who works"),
    Right(Where.FACTS, "", ("nodes",), ("list",), "whether the node of a lost member is gone"),
    Right(Where.FACTS, "", ("persistentvolumes",), ("get",), "which node a volume is bound to"),
    Right(
        Where.FACTS, "storage.k8s.io", ("storageclasses",), ("list",), "whether volumes can grow"
    ),
    Right(
        Where.CLUSTER, "", ("namespaces",), ("list",), "labels that `allowedNamespaces` selects by"
    ),
    Right(
        Where.CLUSTER,
        "apiextensions.k8s.io",
        ("customresourcedefinitions",),
        SEE,
        "kinds that come and go",
    ),
)


def rules(where: Where) -> list[dict[str, list[str]]]:
    """Return the rules of one part of the roles."""
    return [right.rule for right in RIGHTS if right.where is where]
