"""Where a cluster is, for its clients."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.certificates.state import TRUSTED
from imago_operator.errors import InvalidError
from imago_operator.manifests.services import ADMIN, NAME_SERVICE, SDKS
from imago_operator.model import names
from imago_operator.model.desired import resource_of, zookeeper_for_clients
from imago_operator.model.listeners import serves_sdks
from imago_operator.spec.cluster.tls import ClientsAuthority
from imago_operator.spec.kinds import CLUSTER
from imago_operator.spec.schema.values import Duration

if TYPE_CHECKING:
    from imago_operator.contents.belonging import Manifest

KIND: Final = "imago"


def entries_of(cluster: Manifest, trusted: str = "") -> dict[str, str]:
    """Return the entries of a client's Secret that say where the cluster is, and whom to trust.

    `type`, `provider`, `host` and `port` are what service bindings have; a cluster whose spec is
    wrong has no ZooKeeper, and no endpoints of SDKs, that anybody could name.
    """
    metadata = cluster["metadata"]
    name, namespace = metadata["name"], metadata.get("namespace", "default")
    scheme = "https" if trusted else "http"
    host = f"{names.bootstrap(name)}.{namespace}.svc"
    found = {
        "type": KIND,
        "provider": names.GROUP,
        "host": host,
        "port": str(NAME_SERVICE),
        "bootstrap": f"{host}:{NAME_SERVICE}",
        "admin": f"{scheme}://{names.admin(name)}.{namespace}.svc:{ADMIN}",
    }
    if trusted:
        found[TRUSTED] = trusted
    try:
        spec = CLUSTER.read(cluster)
    except InvalidError:
        return found
    if serves_sdks(spec):
        found["grpc"] = f"{host}:{SDKS}"
    zookeeper = zookeeper_for_clients(resource_of(cluster), spec)
    return found | ({"zookeeper": zookeeper} if zookeeper else {})


def has_certificates(cluster: Manifest) -> bool:
    """Whether a cluster's brokers have certificates."""
    return "tls" in (cluster.get("spec") or {})


def secret_that_signs(cluster: Manifest) -> str | None:
    """Return the Secret with the authority that signs for clients; None: nobody does."""
    said = ((cluster.get("spec") or {}).get("tls") or {}).get("clientsCa")
    if said is None:
        return None
    return said.get("secretName") or names.clients_authority(cluster["metadata"]["name"])


def overlap_of(cluster: Manifest) -> timedelta:
    """Return how long brokers know an authority before it signs for clients."""
    said = cluster["spec"]["tls"]["clientsCa"].get("overlap")
    span = Duration(said) if said else ClientsAuthority().overlap
    return timedelta(seconds=span.seconds)


def checks_rights(cluster: Manifest) -> bool:
    """Whether a cluster's brokers check who may do what."""
    spec = cluster.get("spec", {})
    if (spec.get("authorization") or {}).get("type", "None") != "None":
        return True
    config = (spec.get("brokers") or {}).get("config") or {}
    return str(config.get("acl.enabled", "false")).lower() == "true"


def super_users(cluster: Manifest) -> frozenset[str]:
    """Return the users that may do everything."""
    said = cluster.get("spec", {}).get("authorization") or {}
    return frozenset(said.get("superUsers") or ())


def may_have(cluster: Manifest, user: str, namespace: str) -> bool:
    """Whether a namespace may say who a user is: of super users the cluster's own alone may.

    Who has a super user's password owns the cluster; being let in is not owning it.
    """
    own = cluster["metadata"].get("namespace", "default")
    return namespace == own or user not in super_users(cluster)
