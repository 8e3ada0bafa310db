"""ImagoPipeline: a Spark job on topics, run by spark-operator or by spark-submit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.applications import NAMES
from imago_operator.spec.schema.column import AGE, CLUSTER_OF, MESSAGE, READY, STATUS, Column
from imago_operator.spec.schema.common import (
    GROUP_SIZE_MAX,
    MESSAGE_NAME_PATTERN,
    NAME_SIZE_MAX,
    TOPIC_SIZE_MAX,
    ClusterRef,
    Conditions,
    Resources,
    conditions_field,
    generation_field,
)
from imago_operator.spec.schema.fields import IntOrText, Json, described
from imago_operator.spec.schema.values import Duration, Quantity
from imago_operator.spec.user import OBJECT_PATTERN


class Engine(StrEnum):
    """Who runs it."""

    AUTO = "Auto"
    SPARK_OPERATOR = "SparkOperator"
    SPARK_SUBMIT = "SparkSubmit"


class StartPosition(StrEnum):
    """Where a pipeline without a checkpoint begins."""

    EARLIEST = "Earliest"
    LATEST = "Latest"


class RestartPolicy(StrEnum):
    """When it is started again."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What it reads."""

    topics: tuple[str, ...] = described(
        "Topics to read.",
        size_min=1,
        size_max=64,
        item_pattern=MESSAGE_NAME_PATTERN,
        item_size_max=TOPIC_SIZE_MAX,
    )
    group_name: str | None = described(
        "Group that records the progress, so that tools show its lag.",
        default=None,
        pattern=MESSAGE_NAME_PATTERN,
        size_max=GROUP_SIZE_MAX,
    )
    start_from: StartPosition = described(
        "Where a pipeline without a checkpoint starts.", default=StartPosition.EARLIEST
    )
    max_rows_per_trigger: int | None = described(
        "Maximum number of messages of one batch.", default=None, low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """The application that comes with Imago: topics become Parquet files, by date."""

    path: str = described(
        "Target folder, on a mounted volume or, as s3://BUCKET/PATH, in a bucket.",
        pattern=r"^(/|s3://)[^ ]+$",
        size_max=1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """Another application that comes with Imago."""

    name: str = described("Which one.", one_of=NAMES)
    path: str | None = described(
        "Folder of its table, on a mounted volume; config may say it, too.",
        default=None,
        pattern=r"^/[^ ]+$",
        size_max=1024,
    )
    args: tuple[str, ...] = described(
        "Further arguments, such as --deep for audit.",
        default=(),
        size_max=16,
        item_size_max=1024,
        plain_list=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSchedule:
    """When it runs, where it is to run now and then and to end by itself."""

    cron: str = described(
        "Five fields of cron: minute, hour, day, month, weekday.", size_min=9, size_max=128
    )
    time_zone: str = described(
        "Time zone of these, by its name.", default="UTC", size_min=1, size_max=64
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """An application of your own."""

    main_file: str = described(
        "Main file inside the image, as local:///….", pattern=r"^local://[^ ]+$", size_max=1024
    )
    args: tuple[str, ...] = described(
        "Arguments of the application.",
        default=(),
        size_max=64,
        item_size_max=1024,
        plain_list=True,
    )
    py_files: tuple[str, ...] = described(
        "Additional Python files inside the image.", default=(), size_max=32, item_size_max=1024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeMount:
    """A claim that driver and executors see."""

    name: str = described(
        "Name of the volume.", pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", size_max=40
    )
    claim_name: str = described("Name of the claim.", size_max=253, size_min=1)
    mount_path: str = described("Mount path.", pattern=r"^/[^ :]+$", size_max=512)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointClaim:
    """A claim that the operator makes; it outlives every run."""

    size: Quantity = described("Size of the claim.", default=Quantity("1Gi"))
    storage_class_name: str | None = described(
        "Storage class; the cluster's default unless given.", default=None, size_max=253
    )
    access_mode: str = described(
        "ReadWriteMany lets driver and executors run on different nodes.",
        default="ReadWriteOnce",
        one_of=("ReadWriteOnce", "ReadWriteMany"),
    )
    retain: bool = described("Whether the claim stays when the pipeline is deleted.", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlace:
    """Where it remembers how far it is: exactly one of the two."""

    claim: CheckpointClaim | None = described("A claim for the checkpoint alone.", default=None)
    path: str | None = described(
        "A path in an object store.",
        default=None,
        pattern=r"^[a-z][a-z0-9]*://[^ ]+$",
        size_max=1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """What driver and executors ask for."""

    driver: Resources = described("Resource requests and limits of the driver.", default=Resources)
    executor: Resources = described(
        "Resource requests and limits of each executor.", default=Resources
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    "Settings of Spark itself."

    version: str = described(
        "Version of Spark in the image.",
        default="4.3.0",
        pattern=r"^4\.[0-9]+\.[0-9]+$",
        size_max=20,
    )
    conf: Mapping[str, str] = described(
        "Spark configuration.", default=dict, size_max=128, item_size_max=4096
    )
    driver_template: Json = described("Merged into the driver's pod.", default=dict)
    executor_template: Json = described("Merged into the executors' pods.", default=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """When it is started again, and how often."""

    policy: RestartPolicy = described(
        "Always for streams; OnFailure or Never for batch jobs.", default=RestartPolicy.ALWAYS
    )
    backoff: Duration = described("Pause before the next start.", default=Duration("30s"))
    max_per_hour: int = described(
        "Restarts per hour above which the operator reports the pipeline as stalled.",
        default=10,
        low=1,
        high=360,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineUser:
    """Who it is to brokers."""

    name: str | None = described(
        "An ImagoUser of the same namespace and cluster. Unless given, the operator makes one,"
        " NAME-pipeline, that may read the source's topics and report progress, and nothing else.",
        default=None,
        pattern=OBJECT_PATTERN,
        size_max=253,
        size_min=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """Desired state of the pipeline: exactly one of ingest, application and code."""

    cluster_ref: ClusterRef = described("Cluster to read. Immutable.")
    paused: bool = described(
        "Whether the pipeline is suspended; its checkpoint stays.", default=False
    )
    replicas: int = described("Number of executors.", default=1, low=1, high=1000)
    engine: Engine = described(
        "What runs it. Auto: spark-operator where installed, otherwise spark-submit in a Job.",
        default=Engine.AUTO,
    )
    image: str | None = described(
        "Image with Spark and imago; unless given, imago/spark-apps of the operator's version.",
        default=None,
        size_max=512,
    )
    service_account_name: str = described(
        "ServiceAccount of the driver.", default="imago-spark", size_max=NAME_SIZE_MAX
    )
    source: Source = described("Topics to read, and from where.")
    ingest: Ingest | None = described("Write the topics as Parquet files.", default=None)
    application: Application | None = described(
        "Run another application of the image.", default=None
    )
    code: Code | None = described("Run an application of your own.", default=None)
    schedule: RunSchedule | None = described(
        "Run it at these times, one run after the other, instead of once or for ever: by a"
        " ScheduledSparkApplication, or a CronJob. restart does not count then.",
        default=None,
    )
    config: Mapping[str, IntOrText] = described(
        "Options in the application's configuration file.",
        default=dict,
        size_max=64,
        item_size_max=4096,
    )
    user: PipelineUser | None = described(
        "User whose credentials driver and executors get, for clusters that check rights; {}: one"
        " of its own. Unless given, they have none.",
        default=None,
    )
    volumes: tuple[VolumeMount, ...] = described(
        "Claims to mount in driver and executors.", default=(), size_max=16, map_key="name"
    )
    checkpoint: CheckpointPlace = described("Where the pipeline stores its progress.")
    resources: PodResources = described(
        "Resource requests and limits of the pods.", default=PodResources
    )
    spark: Spark = described("Settings of Spark.", default=Spark)
    restart: Restart = described("When to start it again.", default=Restart)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRef:
    """The object that runs it."""

    api_version: str = described("API version of the object.", size_max=128)
    kind: str = described("Kind of the object.", size_max=64)
    name: str = described("Name of the object.", size_max=253)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """How often it ran."""

    attempts: int = described("Number of starts.", default=0, low=0)
    last_started: str | None = described("Time of the last start.", default=None, size_max=40)
    last_finished: str | None = described("Time of the last end.", default=None, size_max=40)
    last_error: str | None = described("Cause of the last failure.", default=None, size_max=1024)
    hour_began: str | None = described(
        "Beginning of the hour in which inHour counts.", default=None, size_max=40
    )
    in_hour: int = described("Starts in that hour.", default=0, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """Observed state of the pipeline."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    engine_ref: EngineRef | None = described("The object that runs it.", default=None)
    state: str | None = described("State that the engine reports.", default=None, size_max=64)
    epoch: int = described(
        "Epoch of the run that may write; brokers and sinks refuse older ones.", default=0, low=0
    )
    runs: Runs = described("Starts, ends and failures.", default=Runs)
    driver: str | None = described(
        "Pod of the driver that runs; kubectl logs has what it says.", default=None, size_max=253
    )
    rows: int | None = described("Approximate number of rows written.", default=None, low=0)
    lag: str | None = described(
        "Approximate number of unread messages; absent while no run reports.",
        default=None,
        size_max=8,
    )
    commit: int | None = described(
        "Number of the last batch that is in the table.", default=None, low=0
    )
    reported_at: str | None = described(
        "When the run last reported its progress, to the minute.", default=None, size_max=40
    )
    replicas: int = described("Existing executors.", default=0, low=0)
    selector: str | None = described("Label selector of the executors.", default=None, size_max=512)
    applied_hash: str | None = described(
        "Hash of what the engine received.", default=None, size_max=64
    )


COLUMNS: Final = (
    READY,
    STATUS,
    CLUSTER_OF,
    Column("Engine", ".status.engineRef.kind"),
    Column("State", ".status.state"),
    Column("Rows", ".status.rows", "integer"),
    Column("Lag", ".status.lag"),
    Column("Reported", ".status.reportedAt", "date"),
    AGE,
    Column("Commit", ".status.commit", "integer", priority=1),
    Column("Driver", ".status.driver", priority=1),
    Column("Attempts", ".status.runs.attempts", "integer", priority=1),
    MESSAGE,
)
"""What `kubectl get` shows."""
