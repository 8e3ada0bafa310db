"""ImagoBackup and ImagoScheduledBackup: backups of a cluster, as objects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.schema.column import AGE, CLUSTER_OF, MESSAGE, READY, Column
from imago_operator.spec.schema.common import (
    ClusterRef,
    Conditions,
    conditions_field,
    generation_field,
)
from imago_operator.spec.schema.fields import described
from imago_operator.spec.topic import DeletionPolicy


class BackupPhase(StrEnum):
    """How far a backup is."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSpec:
    """The backup. Immutable: create another object for another one."""

    cluster_ref: ClusterRef = described("Cluster to back up; its spec.backup says where to.")
    bytes_a_second: int | None = described(
        "How fast each member may read its log; 0: unbounded. Unless given, what brokers have as"
        " backup.bytes_a_second.",
        default=None,
        low=0,
        high=1 << 40,
    )
    deletion_policy: DeletionPolicy = described(
        "Whether the backup itself is deleted with this resource, as far as no other backup"
        " needs it: also where the whole namespace is deleted.",
        default=DeletionPolicy.RETAIN,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupStatus:
    """The backup as brokers tell it."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    phase: BackupPhase | None = described("How far it is.", default=None)
    started_at: str | None = described("When it was begun.", default=None, size_max=40)
    until: str | None = described(
        "What was readable by then is in it: the cut of the shard that was first.",
        default=None,
        size_max=40,
    )
    size_bytes: int | None = described(
        "Bytes of all that it names, what it shares with other backups, too.", default=None, low=0
    )
    progress: str | None = described("How much is sent.", default=None, size_max=16)


BACKUP_COLUMNS: Final = (
    READY,
    Column("Phase", ".status.phase"),
    CLUSTER_OF,
    Column("Progress", ".status.progress"),
    Column("Until", ".status.until"),
    Column("Bytes", ".status.sizeBytes", "integer"),
    AGE,
    MESSAGE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRetention:
    """Which backups of the schedule stay: those that either says."""

    keep: int = described("The newest so many.", default=7, low=1, high=1000)
    days: int = described("Those of the last so many days.", default=0, low=0, high=36500)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledBackupSpec:
    """When backups are taken, and how long they stay."""

    cluster_ref: ClusterRef = described("Cluster to back up; its spec.backup says where to.")
    schedule: str = described(
        "Five fields of cron: minute, hour, day, month, weekday.", size_min=9, size_max=128
    )
    time_zone: str = described(
        "Time zone of these, by its name.", default="UTC", size_min=1, size_max=64
    )
    suspend: bool = described("Whether none are taken for now.", default=False)
    retention: BackupRetention = described(
        "Which backups of this schedule stay.", default=BackupRetention
    )
    bytes_a_second: int | None = described(
        "How fast each member may read its log; 0: unbounded.", default=None, low=0, high=1 << 40
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledBackupStatus:
    """What the schedule has done."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    last_scheduled_at: str | None = described(
        "The last time that it was due and a backup was made.", default=None, size_max=40
    )
    last_backup: str | None = described("That backup.", default=None, size_max=253)
    last_succeeded: str | None = described(
        "The newest backup that is complete.", default=None, size_max=253
    )


SCHEDULE_COLUMNS: Final = (
    READY,
    CLUSTER_OF,
    Column("Schedule", ".spec.schedule"),
    Column("Suspended", ".spec.suspend", "boolean"),
    Column("Last", ".status.lastBackup"),
    Column("Succeeded", ".status.lastSucceeded"),
    AGE,
    MESSAGE,
)
