"""The conditions of an ImagoCluster about its certificates."""

from __future__ import annotations

from functools import partial
from typing import Final

from imago_operator.reasons.model import BY_ITSELF, Reason

_ends = partial(Reason, "ImagoCluster", "CertificateEndsSoon")
_of = partial(Reason, "ImagoCluster", "CertificatesValid")

CERTIFICATES: Final = (
    _of("Issued", "Members and ZooKeeper have certificates."),
    _of(
        "Issuing",
        "Members, or ZooKeeper, have no certificate yet; their pods wait for it.",
        "Nothing, with the operator's own authority. With cert-manager: `kubectl describe"
        " certificate` of those named.",
    ),
    _of(
        "ReplacingAuthority",
        "Another authority takes the place of the one before, in three phases. Clients need"
        " `ca.crt` of a user's Secret anew before the last one ends.",
        BY_ITSELF,
    ),
    _of(
        "AuthorityMissing",
        "The Secret of `spec.tls.ca.secretName` has no authority. Members keep what they have.",
        "Write `tls.crt`, `tls.key` and `ca.crt` into it.",
    ),
    _of(
        "AddressNotNamed",
        "A listener of type NodePort has no `advertisedHostTemplate`: brokers advertise the address"
        " of their node, and certificates name no node. Clients that check names refuse them,"
        " inside of the cluster too; Java's clients do not check.",
        "Set the listener's `advertisedHostTemplate` to names that lead to the nodes of the pods:"
        " certificates name them at once, and the brokers are restarted to advertise them.",
    ),
    _of(
        "SecretRefused",
        "The operator may not read the Secrets of ZooKeeper's certificate: `CLUSTER-zookeeper-tls`,"
        " or `CLUSTER-ca`. Brokers reach ZooKeeper without TLS, unless they had it before.",
        "Name both in the chart's `rbac.secrets`, or say that no TLS is meant:"
        " `spec.zookeeper.managed.tls: None`.",
    ),
    _of(
        "ReplacingClientsAuthority",
        "Another authority takes the place of the one that signs for clients, in three phases. The"
        " last one begins once all ImagoUsers of type Tls have certificates of the next one.",
        "Nothing; where users are named for long, their own conditions say what they wait for:"
        " delete those that nobody needs.",
    ),
    _of(
        "ClientsAuthorityMissing",
        "The Secret of `spec.tls.clientsCa.secretName` has no authority. Pods that run keep what"
        " they have, and none restarts for it.",
        "Write `ca.crt` into it, and for ImagoUsers of type Tls `tls.crt` and `tls.key`.",
    ),
    _ends(
        "NobodyReplacesIt",
        "A certificate that the operator has not made ends within 30 days: an authority of yours."
        " All that it has signed is refused from then on.",
        "Write another one into the Secret; let clients trust both first. *A certificate ends*.",
    ),
    _ends(
        "NotReplaced",
        "A certificate is still there though half of the time has passed in which it was to be"
        " replaced (`renewBefore`, at most 60 days).",
        "*CertificatesValid* and the operator's log say what it waits for; with cert-manager"
        " `kubectl describe certificate`. *A certificate ends*.",
    ),
)
