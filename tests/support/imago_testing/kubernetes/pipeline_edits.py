"""Bad edits of an ImagoPipeline."""

from __future__ import annotations

from typing import Any, Final

from imago_operator.spec.applications import APPLICATIONS, NAMES
from imago_testing.kubernetes.resource_edits import PIPELINE, REMOVED, BadEdit, edit, rule, schema


def application(name: str, **config: str | None) -> dict[str, Any]:
    """Return the edit that makes the good pipeline run an application; None: without that name."""
    needed: dict[str, str | None] = dict.fromkeys(APPLICATIONS[name].needs, "x")
    found = {key: said for key, said in (needed | config).items() if said is not None}
    return {
        "spec.ingest": REMOVED,
        "spec.application": {"name": name, "path": "/lake/x"},
        "spec.config": found,
    }


def _scheduled(cron: str, zone: str = "UTC") -> dict[str, Any]:
    return application("report") | {"spec.schedule": {"cron": cron, "timeZone": zone}}


BAD_PIPELINES: Final[tuple[BadEdit, ...]] = (
    rule(PIPELINE, "at most 40 characters", {}, name="p" * 41),
    rule(PIPELINE, "begins with a letter", {}, name="1st"),
    rule(PIPELINE, "exactly one of ingest, application and code", {"spec.ingest": REMOVED}),
    rule(
        PIPELINE,
        "exactly one of ingest, application and code",
        {"spec.code": {"mainFile": "local:///opt/app/main.py"}},
    ),
    rule(
        PIPELINE,
        "exactly one of ingest, application and code",
        {"spec.application": {"name": "report"}},
    ),
    rule(PIPELINE, "config of ingest knows only trigger,", {"spec.config": {"schema": "id int"}}),
    *(
        rule(PIPELINE, f"config of {name} knows only trigger,", application(name, triggers="x"))
        for name in NAMES
    ),
    rule(PIPELINE, "parse needs schema in config", application("parse", schema=None)),
    rule(PIPELINE, "aggregate needs by in config", application("aggregate", by=None)),
    rule(PIPELINE, "replay needs id and topic", application("replay", id=None)),
    rule(PIPELINE, "topic_stats needs input", application("topic_stats", input=None)),
    rule(PIPELINE, "lag_latency needs input", application("lag_latency", input=None)),
    rule(PIPELINE, "trigger in config is continuous or", {"spec.config": {"trigger": "once"}}),
    rule(PIPELINE, "bodyFormat in config is json or", application("parse", bodyFormat="xml")),
    rule(PIPELINE, "format in config is parquet or", {"spec.config": {"format": "orc"}}),
    rule(PIPELINE, "landing in config is stream or", {"spec.config": {"landing": "fast"}}),
    rule(PIPELINE, "onDataLoss in config is fail or", {"spec.config": {"onDataLoss": "no"}}),
    rule(
        PIPELINE,
        "what runs by schedule has to end",
        {"spec.schedule": {"cron": "0 * * * *"}, "spec.config": {"trigger": "continuous"}},
    ),
    rule(PIPELINE, "what runs by schedule has", {"spec.schedule": {"cron": "0 * * * *"}}),
    rule(PIPELINE, "cron has minute 0-59", _scheduled("61 * * * *")),
    rule(PIPELINE, "timeZone is a name as", _scheduled("1 * * * *", "Europe Berlin")),
    schema(PIPELINE, "spec.application.name", {"spec.application": {"name": "summarize"}}),
    rule(PIPELINE, "exactly one of claim and path", {"spec.checkpoint": {}}),
    rule(PIPELINE, "conf may not set", {"spec.spark": {"conf": {"spark.master": "local"}}}),
    rule(PIPELINE, "backoff must be from", {"spec.restart": {"backoff": "0s"}}),
    schema(PIPELINE, "spec.user.name", {"spec.user": {"name": "No/User"}}),
    edit(PIPELINE, "size cannot shrink", {}, {"spec.checkpoint.claim.size": "1Mi"}),
    edit(
        PIPELINE,
        "storageClassName cannot be changed",
        {},
        {"spec.checkpoint.claim.storageClassName": "fast"},
    ),
    edit(PIPELINE, "clusterRef cannot be changed", {}, {"spec.clusterRef": {"name": "other"}}),
    edit(
        PIPELINE,
        "checkpoint cannot be moved",
        {},
        {"spec.checkpoint": {"path": "s3a://bucket/checkpoint"}},
    ),
    schema(PIPELINE, "spec.source.topics", {"spec.source": {"topics": []}}),
    schema(PIPELINE, "spec.replicas", {"spec.replicas": 0}),
    schema(PIPELINE, "spec.ingest.path", {"spec.ingest.path": "somewhere"}),
)
