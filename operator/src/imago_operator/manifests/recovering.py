"""Where backups go in a broker's pod, and what makes its data folder of one before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_operator.manifests.common import CONTAINER_SECURITY, LAST_WORDS, merged, resources
from imago_operator.model.desired import recovery_of
from imago_operator.model.podfiles import (
    BACKUP_CLAIM_FOLDER,
    BACKUP_FOLDER,
    RECOVERY_CLAIM_FOLDER,
    RECOVERY_FOLDER,
)

if TYPE_CHECKING:
    from imago_operator.manifests.common import Manifest
    from imago_operator.model.desired import Desired
    from imago_operator.spec.cluster.backups import BackupPlace, Recovery

BACKUP, RECOVERY = "backup", "recovery"
"""Volumes."""


def backup_mounts(desired: Desired) -> list[Manifest]:
    """Return where a broker finds the claim of its backups, or the bucket's credentials."""
    return _mounts(desired.spec.backup, BACKUP, BACKUP_FOLDER, BACKUP_CLAIM_FOLDER)


def volumes(desired: Desired) -> list[Manifest]:
    """Return the volumes of both."""
    found = _volumes(desired.spec.backup, BACKUP)
    return found + (_volumes(recovery_of(desired.spec), RECOVERY) if desired.recovers else [])


def containers(desired: Desired, shard: int) -> list[Manifest]:
    """Return what runs before the broker of a member that may have no data yet; none afterwards.

    All members of a shard begin with the same log, so it is the same whoever leads first. Where
    there are data it does nothing.
    """
    wanted = recovery_of(desired.spec)
    if wanted is None or not desired.recovers:
        return []
    template = desired.spec.brokers.template.container
    container: Manifest = {
        "name": "recovery",
        "image": desired.image,
        "imagePullPolicy": desired.spec.image_pull_policy.value,
        "args": _command(wanted, shard),
        "resources": resources(desired.spec.brokers.resources),
        "securityContext": merged(CONTAINER_SECURITY, template.security_context),
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  the pod's own
            *_mounts(wanted, RECOVERY, RECOVERY_FOLDER, RECOVERY_CLAIM_FOLDER),
        ],
        **LAST_WORDS,
    }
    return [{key: value for key, value in container.items() if value != {}}]


def _command(wanted: Recovery, shard: int) -> list[str]:
    source = wanted.url or f"file://{RECOVERY_CLAIM_FOLDER}"
    found = ["backup", "restore", wanted.backup, "--from", source, "--to", "/data"]
    found += ["--shard", f"shard-{shard}", "--once"]
    if wanted.point_in_time:
        found += ["--until", wanted.point_in_time]
    if wanted.endpoint:
        found += ["--endpoint", wanted.endpoint]
    if wanted.region:
        found += ["--region", wanted.region]
    if wanted.credentials_secret_name:
        found += ["--credentials-folder", RECOVERY_FOLDER]
    return found


def _mounts(place: BackupPlace | None, name: str, folder: str, claim: str) -> list[Manifest]:
    if place is not None and place.claim_name:
        return [{"name": name, "mountPath": claim}]
    if place is not None and place.credentials_secret_name:
        return [{"name": name, "mountPath": folder, "readOnly": True}]
    return []


def _volumes(place: BackupPlace | None, name: str) -> list[Manifest]:
    if place is not None and place.claim_name:
        return [{"name": name, "persistentVolumeClaim": {"claimName": place.claim_name}}]
    if place is not None and place.credentials_secret_name:
        secret = {"secretName": place.credentials_secret_name, "defaultMode": 0o440}
        return [{"name": name, "secret": secret}]
    return []
