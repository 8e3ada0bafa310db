"""Files that only some pods have, and the settings of brokers that name them.

Each pod is told them by its own environment. The file that all pods share changes under those that
run: a container of such a pod that begins again would look for files that its pod does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.model.listeners import are_apart
from imago_operator.spec.cluster.listeners import ListenerAuthenticationType, ListenerType
from imago_operator.spec.cluster.tls import Strictness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from imago_operator.broker_rules.keys import Scalar
    from imago_operator.spec.cluster.backups import BackupPlace
    from imago_operator.spec.cluster.cluster import ClusterSpec
    from imago_operator.spec.cluster.listeners import ExternalListener
    from imago_operator.spec.cluster.tiered import TieredStorage
    from imago_operator.spec.cluster.tls import Tls
    from imago_operator.spec.cluster.zookeeper import ExternalZooKeeper

_SHOWN: Final = ListenerAuthenticationType.TLS
METAQ_TLS_PORT: Final = 8124
TLS_FOLDER: Final = "/etc/imago/tls"
LISTENERS_FOLDER: Final = "/etc/imago/listeners"
CLIENTS_CA_FOLDER: Final = "/etc/imago/clients-ca"
ZOOKEEPER_TLS_FOLDER: Final = "/etc/imago/zookeeper-tls"
ZOOKEEPER_USER_FOLDER: Final = "/etc/imago/zookeeper-user"
BACKUP_FOLDER: Final = "/etc/imago/backup"
"""Credentials of the bucket."""
BACKUP_CLAIM_FOLDER: Final = "/backups"
RECOVERY_FOLDER: Final = "/etc/imago/recovery"
RECOVERY_CLAIM_FOLDER: Final = "/recovery"
ACCOUNT_FOLDER: Final = "/etc/imago/account"
BUCKET_FOLDER: Final = "/etc/imago/bucket"
TLS_SECTION: Final = "tls."


def pod_settings(spec: ClusterSpec, given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return what a pod is told; `given`: settings that the spec names one by one."""
    found = registry_settings(spec.zookeeper.external) | tier_settings(spec.brokers.tiered_storage)
    if spec.authorization.token_review:
        found |= {
            "token_review.url": "https://kubernetes.default.svc",
            "token_review.ca_file": f"{ACCOUNT_FOLDER}/ca.crt",
            "token_review.token_file": f"{ACCOUNT_FOLDER}/token",
        }
    if spec.backup is not None:
        found |= backup_settings(spec.backup)
    if spec.tls is not None:
        found |= {name: said for name, said in given.items() if name.startswith(TLS_SECTION)}
        asked = str(found.get("tls.client_auth", "optional"))
        found |= tls_settings(spec.tls, spec)
        found |= client_settings(spec.tls, spec.listeners, asked)
    return found


def tier_settings(tiered: TieredStorage | None) -> dict[str, Scalar]:
    """Return the brokers' settings of a bucket for old messages."""
    if tiered is None:
        return {}
    found: dict[str, Scalar] = {
        "tier.url": tiered.url,
        "tier.local_retention_ms": round(tiered.local_retention.seconds * 1000),
        "tier.cache_bytes_max": tiered.cache_size.bytes,
    }
    if tiered.endpoint is not None:
        found["tier.endpoint"] = tiered.endpoint
    if tiered.region is not None:
        found["tier.region"] = tiered.region
    if tiered.credentials_secret_name is not None:
        found["tier.credentials_folder"] = BUCKET_FOLDER
    return found


def backup_settings(place: BackupPlace) -> dict[str, Scalar]:
    """Return the brokers' settings of where backups go."""
    said = {
        "backup.url": place.url or f"file://{BACKUP_CLAIM_FOLDER}",
        "backup.endpoint": place.endpoint or "",
        "backup.region": place.region or "",
        "backup.credentials_folder": BACKUP_FOLDER if place.credentials_secret_name else "",
    }
    return {name: value for name, value in said.items() if value}


def tls_settings(tls: Tls, spec: ClusterSpec) -> dict[str, Scalar]:
    """Return the brokers' settings of TLS; their files are those of their shard's Secret."""
    strict = tls.clients is Strictness.ENFORCING or any(map(_concerns_all(spec), spec.listeners))
    members = tls.members.value.lower()
    return {
        "tls.certificate_file": f"{TLS_FOLDER}/tls.crt",
        "tls.key_file": f"{TLS_FOLDER}/tls.key",
        "tls.ca_file": f"{TLS_FOLDER}/ca.crt",
        "tls.mode": "enforcing" if strict else "permissive",
        "tls.metaq_port": METAQ_TLS_PORT,
        "tls.replication": members,
        "tls.calls": members,
    }


def _concerns_all(spec: ClusterSpec) -> Callable[[ExternalListener], bool]:
    """Return whether a listener's TLS is asked of all clients: one with ports of its own has it
    there, but certificates are asked for everywhere or nowhere."""
    shared = not are_apart(spec)

    def concerns_all(way: ExternalListener) -> bool:
        shown = way.authentication is not None and way.authentication.type is _SHOWN
        return bool(way.tls) and (shared or shown or way.type is ListenerType.INTERNAL)

    return concerns_all


def client_settings(
    tls: Tls, listeners: Iterable[ExternalListener], asked: str
) -> dict[str, Scalar]:
    """Return the brokers' settings of clients' certificates; `asked`: what the config says.

    The operator shows none, and is known by its token.
    """
    if tls.clients_ca is None:
        return {}
    wanted = [way.authentication.type for way in listeners if way.authentication is not None]
    return {
        "tls.client_ca_file": f"{CLIENTS_CA_FOLDER}/ca.crt",
        "tls.client_auth": "required" if ListenerAuthenticationType.TLS in wanted else asked,
        "tls.admin_client_auth": "none",
    }


def registry_settings(external: ExternalZooKeeper | None) -> dict[str, Scalar]:
    """Return the brokers' settings of an external ZooKeeper's TLS and of who they are there.

    The name of the user comes with its password, from a Secret, by the pod's environment.
    """
    found: dict[str, Scalar] = {}
    if external is not None and external.tls is not None:
        found["zookeeper.tls_ca_file"] = f"{ZOOKEEPER_TLS_FOLDER}/ca.crt"
        if external.tls.client_certificate:
            found["zookeeper.tls_certificate_file"] = f"{ZOOKEEPER_TLS_FOLDER}/tls.crt"
            found["zookeeper.tls_key_file"] = f"{ZOOKEEPER_TLS_FOLDER}/tls.key"
    if external is not None and external.auth is not None:
        found["zookeeper.password_file"] = f"{ZOOKEEPER_USER_FOLDER}/password"
        found["zookeeper.protect"] = external.auth.protect
    return found
