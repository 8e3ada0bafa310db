"""ImagoPipeline: a Spark job on topics, run by spark-operator or by spark-submit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from imago_operator.spec.column import AGE, CLUSTER_OF, MESSAGE, READY, STATUS, Column
from imago_operator.spec.common import (
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
from imago_operator.spec.fields import IntOrText, Json, described
from imago_operator.spec.values import Duration, Quantity


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
        "Its topics.",
        size_min=1,
        size_max=64,
        item_pattern=MESSAGE_NAME_PATTERN,
        item_size_max=TOPIC_SIZE_MAX,
    )
    group_name: str | None = described(
        "Group to which progress is written, so that lag can be seen.",
        default=None,
        pattern=MESSAGE_NAME_PATTERN,
        size_max=GROUP_SIZE_MAX,
    )
    start_from: StartPosition = described(
        "Where it begins when it has no checkpoint.", default=StartPosition.EARLIEST
    )
    max_rows_per_trigger: int | None = described("Most messages of one batch.", default=None, low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """The application that comes with Imago: topics become Parquet files, by date."""

    path: str = described(
        "Where the files go: a path of a mounted volume.",
        pattern=r"^/[^ ]+$",
        size_max=1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """An application of your own."""

    main_file: str = described(
        "Its file inside of the image, as local:///….", pattern=r"^local://[^ ]+$", size_max=1024
    )
    args: tuple[str, ...] = described(
        "Its arguments.", default=(), size_max=64, item_size_max=1024, plain_list=True
    )
    py_files: tuple[str, ...] = described(
        "Further Python files inside of the image.", default=(), size_max=32, item_size_max=1024
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeMount:
    """A claim that driver and executors see."""

    name: str = described("Its name.", pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", size_max=40)
    claim_name: str = described("The claim.", size_max=253, size_min=1)
    mount_path: str = described("Where they see it.", pattern=r"^/[^ :]+$", size_max=512)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointClaim:
    """A claim that the operator makes; it outlives every run."""

    size: Quantity = described("Its size.", default=Quantity("1Gi"))
    storage_class_name: str | None = described(
        "Storage class; the cluster's default unless given.", default=None, size_max=253
    )
    access_mode: str = described(
        "ReadWriteMany lets driver and executors run on different nodes.",
        default="ReadWriteOnce",
        one_of=("ReadWriteOnce", "ReadWriteMany"),
    )
    retain: bool = described("Whether it stays when the pipeline is deleted.", default=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlace:
    """Where it remembers how far it is: exactly one of the two."""

    claim: CheckpointClaim | None = described("A claim of its own.", default=None)
    path: str | None = described(
        "A path of an object store.",
        default=None,
        pattern=r"^[a-z][a-z0-9]*://[^ ]+$",
        size_max=1024,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """What driver and executors ask for."""

    driver: Resources = described("The driver.", default=Resources)
    executor: Resources = described("Each executor.", default=Resources)


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
        "Settings of Spark.", default=dict, size_max=128, item_size_max=4096
    )
    driver_template: Json = described("Merged into the driver's pod.", default=dict)
    executor_template: Json = described("Merged into the executors' pods.", default=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """When it is started again, and how often."""

    policy: RestartPolicy = described(
        "Always for streams, OnFailure or Never for what ends.", default=RestartPolicy.ALWAYS
    )
    backoff: Duration = described("Pause before the next try.", default=Duration("30s"))
    max_per_hour: int = described(
        "Restarts in an hour above which it counts as stalled.", default=10, low=1, high=360
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """What the pipeline is to be: exactly one of ingest and code."""

    cluster_ref: ClusterRef = described("Its cluster. Immutable.")
    paused: bool = described("Whether it is suspended; its checkpoint stays.", default=False)
    replicas: int = described("Executors.", default=1, low=1, high=1000)
    engine: Engine = described(
        "Who runs it. Auto: spark-operator where there is one, else spark-submit in a Job.",
        default=Engine.AUTO,
    )
    image: str | None = described(
        "Image with Spark and imago; imago/spark-apps of the operator's version unless given.",
        default=None,
        size_max=512,
    )
    service_account_name: str = described(
        "ServiceAccount of the driver.", default="imago-spark", size_max=NAME_SIZE_MAX
    )
    source: Source = described("What it reads.")
    ingest: Ingest | None = described("Topics to Parquet files.", default=None)
    code: Code | None = described("An application of your own.", default=None)
    config: Mapping[str, IntOrText] = described(
        "Options that the application finds in its configuration file.",
        default=dict,
        size_max=64,
        item_size_max=4096,
    )
    volumes: tuple[VolumeMount, ...] = described(
        "Claims that driver and executors see.", default=(), size_max=16, map_key="name"
    )
    checkpoint: CheckpointPlace = described("Where it remembers how far it is.")
    resources: PodResources = described("What pods ask for.", default=PodResources)
    spark: Spark = described("Settings of Spark itself.", default=Spark)
    restart: Restart = described("When it is started again.", default=Restart)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRef:
    """The object that runs it."""

    api_version: str = described("Its API version.", size_max=128)
    kind: str = described("Its kind.", size_max=64)
    name: str = described("Its name.", size_max=253)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """How often it ran."""

    attempts: int = described("Starts.", default=0, low=0)
    last_started: str | None = described("When it last began.", default=None, size_max=40)
    last_finished: str | None = described("When it last ended.", default=None, size_max=40)
    last_error: str | None = described("Why it last failed.", default=None, size_max=1024)
    hour_began: str | None = described(
        "When the hour began in which starts are counted.", default=None, size_max=40
    )
    in_hour: int = described("Starts in that hour.", default=0, low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatus:
    """What the pipeline is."""

    observed_generation: int = generation_field()
    conditions: Conditions = conditions_field()
    engine_ref: EngineRef | None = described("The object that runs it.", default=None)
    state: str | None = described("What it says of itself.", default=None, size_max=64)
    epoch: int = described(
        "Which run may write; brokers and sinks refuse an older one.", default=0, low=0
    )
    runs: Runs = described("How often it ran.", default=Runs)
    rows: int | None = described("Rows written, roughly.", default=None, low=0)
    lag: str | None = described("Messages not yet read, roughly.", default=None, size_max=8)
    replicas: int = described("Executors there are.", default=0, low=0)
    selector: str | None = described("Label selector of the executors.", default=None, size_max=512)
    applied_hash: str | None = described(
        "Fingerprint of what the engine was given.", default=None, size_max=64
    )


COLUMNS: Final = (
    READY,
    STATUS,
    CLUSTER_OF,
    Column("Engine", ".status.engineRef.kind"),
    Column("State", ".status.state"),
    Column("Rows", ".status.rows", "integer"),
    Column("Lag", ".status.lag"),
    AGE,
    Column("Attempts", ".status.runs.attempts", "integer", priority=1),
    MESSAGE,
)
"""What `kubectl get` shows."""
