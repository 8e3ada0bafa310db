"""The files that a run reads: the application's configuration, and Spark's properties."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.pipelines.desired import DesiredPipeline, Share

FOLDER: Final = "/etc/imago/pipeline"
FILE: Final = "pipeline.toml"
PROPERTIES: Final = "spark.properties"
EXECUTOR_POD: Final = "executor.json"
CHECKPOINT: Final = "/checkpoint"
DRIVER_PORT: Final = 7078
BLOCK_PORT: Final = 7079
UI_PORT: Final = 4040

Value = str | int | tuple[str, ...]


def checkpoint_of(desired: DesiredPipeline) -> str:
    """Return where the pipeline remembers how far it is."""
    return desired.spec.checkpoint.path or CHECKPOINT


def pipeline_file(desired: DesiredPipeline) -> str:
    """Return the application's configuration as TOML."""
    spec, source = desired.spec, desired.spec.source
    top: dict[str, Value] = {
        "bootstrap": desired.bootstrap,
        "checkpoint": checkpoint_of(desired),
        "pipeline": desired.fence,
        "startFrom": source.start_from.value,
        "topics": source.topics,
    }
    if spec.ingest is not None:
        top["path"] = spec.ingest.path
    elif spec.application is not None and spec.application.path is not None:
        top["path"] = spec.application.path
    if source.group_name is not None:
        top["groupName"] = source.group_name
    if source.max_rows_per_trigger is not None:
        top["maxRowsPerTrigger"] = source.max_rows_per_trigger
    text = _lines(top)
    if spec.config:
        text += "\n[config]\n" + _lines({name: one.value for name, one in spec.config.items()})
    return text


def _lines(values: Mapping[str, Value]) -> str:
    return "".join(f"{_key(name)} = {_toml(values[name])}\n" for name in sorted(values))


def _key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    return name if bare else json.dumps(name)


def _toml(value: Value) -> str:
    """Scalars and lists of JSON are also those of TOML."""
    text = json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)
    return text.replace("\x7f", "\\u007f")


def properties(desired: DesiredPipeline) -> dict[str, str]:
    """Return Spark's properties, for any runner; the user's first, since ours count."""
    spec = desired.spec
    return {
        **spec.spark.conf,
        "spark.app.name": desired.name,
        "spark.executor.instances": str(spec.replicas),
        "spark.kubernetes.container.image": desired.image,
        "spark.kubernetes.namespace": desired.namespace,
        "spark.sql.streaming.checkpointLocation": checkpoint_of(desired),
        **_memory("driver", desired.driver),
        **_memory("executor", desired.executor),
        "spark.executor.cores": str(desired.executor.cores),
        "spark.kubernetes.executor.request.cores": desired.executor.requests["cpu"],
        **_limit("executor", desired.executor),
    }


def submit_properties(desired: DesiredPipeline) -> dict[str, str]:
    """Return those of a driver that runs in a pod of ours and makes its executors itself."""
    return {
        **properties(desired),
        "spark.master": "k8s://https://kubernetes.default.svc",
        "spark.submit.deployMode": "client",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCK_PORT),
        "spark.kubernetes.executor.podTemplateFile": f"{FOLDER}/{EXECUTOR_POD}",
        "spark.kubernetes.executor.podTemplateContainerName": "executor",
    }


def properties_file(values: Mapping[str, str]) -> str:
    """Return a Java properties file."""
    return "".join(f"{name}={_escaped(values[name])}\n" for name in sorted(values))


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"\\{text}" if text.startswith(" ") else text


def _memory(whose: str, share: Share) -> dict[str, str]:
    return {
        f"spark.{whose}.memory": f"{share.heap_mib}m",
        f"spark.{whose}.memoryOverhead": f"{share.rest_mib}m",
    }


def _limit(whose: str, share: Share) -> dict[str, str]:
    limit = share.limits.get("cpu")
    return {f"spark.kubernetes.{whose}.limit.cores": limit} if limit else {}
