"""Objects of a pipeline: what they must have, and golden files of whole ones."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from imago_operator.errors import InvalidError
from imago_operator.pipelines import plain, render
from imago_operator.pipelines.config import pipeline_file, properties_file
from imago_operator.pipelines.desired import number
from imago_operator.pipelines.pods import overlaid
from imago_operator.spec.applications import APPLICATIONS, COMMON, INGEST
from imago_spark.pipelines import audit, dlq_triage, lag_latency, parse, settings, topic_stats
from imago_spark.pipelines.aggregate import windows
from imago_spark.pipelines.compact import compacting
from imago_spark.pipelines.replay import slices
from imago_testing.operated.pipelines import desired

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "manifests" / "spark"
FULL = {
    "spec.source": {
        "topics": ["orders", "refunds"],
        "groupName": "lake",
        "startFrom": "Latest",
        "maxRowsPerTrigger": 100_000,
    },
    "spec.config": {"trigger": "continuous", "triggerSeconds": 5},
    "spec.volumes": [{"name": "lake", "claimName": "imago-lake", "mountPath": "/lake"}],
    "spec.resources": {
        "driver": {"requests": {"cpu": "500m"}, "limits": {"memory": "2Gi"}},
        "executor": {"limits": {"cpu": 2, "memory": "4Gi"}},
    },
    "spec.spark": {
        "conf": {"spark.sql.shuffle.partitions": "4"},
        "driverTemplate": {"spec": {"nodeSelector": {"disk": "fast"}}},
    },
    "spec.replicas": 2,
}


@pytest.mark.parametrize("kind", [render.JOB, render.SPARK_APPLICATION])
def test_whole_objects(kind: str) -> None:
    made = desired(FULL)
    objects = [render.config_map(made), render.claim(made), render.run(made, kind, 7)]
    text = yaml.safe_dump_all(json.loads(json.dumps(objects)), sort_keys=True)
    path = GOLDEN / f"{kind.lower()}.yaml"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text)
    assert path.read_text() == text, "GOLDEN=write renews it, once you have read the difference"


def pod_specs(kind: str, changes: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the templates of driver and executor."""
    made = desired(changes)
    run = render.run(made, kind, 7)
    if kind == render.SPARK_APPLICATION:
        return [run["spec"][part]["template"]["spec"] for part in ("driver", "executor")]
    executor = json.loads(render.config_map(made)["data"]["executor.json"])
    return [run["spec"]["template"]["spec"], executor["spec"]]


@pytest.mark.parametrize("kind", [render.JOB, render.SPARK_APPLICATION])
def test_pods_are_restricted_and_write_to_nothing_of_the_image(kind: str) -> None:
    for spec in pod_specs(kind):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 185
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod_specs(kind)[1]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("kind", [render.JOB, render.SPARK_APPLICATION])
def test_a_run_has_its_epoch_and_is_never_started_again_by_others(kind: str) -> None:
    run = render.run(desired(), kind, 7)
    assert run["metadata"]["annotations"]["imago.dev/epoch"] == "7"
    assert run["metadata"]["name"] == "lake-run-7"
    driver = pod_specs(kind)[0]["containers"][0]
    env = {one["name"]: one.get("value") for one in driver["env"]}
    assert (env["IMAGO_PIPELINE"], env["IMAGO_EPOCH"]) == ("data.lake", "7")
    if kind == render.JOB:
        assert run["spec"]["backoffLimit"] == 0
        assert run["spec"]["template"]["spec"]["restartPolicy"] == "Never"
        assert driver["args"][-2:] == ["--epoch", "7"]
    else:
        assert run["spec"]["restartPolicy"] == {"type": "Never"}
        assert run["spec"]["arguments"][-2:] == ["--epoch", "7"]


def test_code_of_ones_own_is_run_with_the_checkpoint_in_all_pods() -> None:
    code = {"mainFile": "local:///opt/app/mine.py", "args": ["a b"], "pyFiles": ["local:///x.zip"]}
    changes = {"spec.ingest": None, "spec.code": code}
    made = desired(changes)
    application = render.spark_application(made, 3)["spec"]
    assert application["mainApplicationFile"] == "local:///opt/app/mine.py"
    assert application["arguments"] == ["a b"]
    assert application["deps"] == {"pyFiles": ["local:///x.zip"]}
    args = render.job(made, 3)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[-2:] == ["local:///opt/app/mine.py", "a b"]
    assert args[args.index("--py-files") + 1] == "local:///x.zip"
    for kind in (render.JOB, render.SPARK_APPLICATION):
        for spec in pod_specs(kind, changes):
            mounts = [one["mountPath"] for one in spec["containers"][0]["volumeMounts"]]
            assert "/checkpoint" in mounts


HOURLY = {
    "spec.ingest": None,
    "spec.application": {"name": "audit", "path": "/lake/orders", "args": ["--deep"]},
    "spec.schedule": {"cron": "5 * * * *", "timeZone": "Europe/Berlin"},
}


@pytest.mark.parametrize(
    ("kind", "of"), [(render.CRON_JOB, render.JOB), (render.SCHEDULED, render.SPARK_APPLICATION)]
)
def test_a_schedule_makes_the_runs_that_there_are_without_one(kind: str, of: str) -> None:
    made = desired(HOURLY)
    spec = render.run(made, kind, 7)["spec"]
    assert (spec["schedule"], spec["timeZone"]) == ("5 * * * *", "Europe/Berlin")
    assert (spec["concurrencyPolicy"], spec["suspend"]) == ("Forbid", False)
    one = render.run(made, of, 7)["spec"]
    del one["suspend"]
    if kind == render.SCHEDULED:
        assert spec["template"] == one
        words = one["arguments"]
    else:
        assert spec["jobTemplate"]["spec"] == one
        assert spec["jobTemplate"]["metadata"]["labels"]["imago.dev/pipeline"] == "lake"
        words = one["template"]["spec"]["containers"][0]["args"]
        # Executors of two runs never have the same name.
        assert not [word for word in words if "podNamePrefix" in word]
    assert words[-3:] == ["--epoch", "7", "--deep"]
    assert len(render.run(made, kind, 10**6)["metadata"]["name"]) <= 52


@pytest.mark.parametrize("name", APPLICATIONS)
def test_every_application_is_in_the_image_and_knows_what_admission_lets_pass(name: str) -> None:
    known = APPLICATIONS[name]
    file = ROOT / "spark-apps" / f"{name}.py"
    module = re.findall(r"^from (imago_spark\S+) import main$", file.read_text(), re.MULTILINE)
    assert len(module) == 1
    assert importlib.util.find_spec(module[0])
    own = own_names(name)
    assert sorted(known.own) == sorted(own), "spec/applications.py says what config may say"
    if name != INGEST:
        made = {"spec.ingest": None, "spec.application": {"name": name, "path": "/lake/x"}}
        run = render.run(desired(made), render.SPARK_APPLICATION, 1)["spec"]
        assert run["mainApplicationFile"] == f"local:///opt/app/{name}.py"
        assert tomllib.loads(pipeline_file(desired(made)))["path"] == "/lake/x"


def test_admission_knows_the_names_that_all_applications_have() -> None:
    assert sorted(COMMON) == sorted(settings._CONFIG)


def own_names(name: str) -> list[str]:
    """Return what an application's own names are in `config`."""
    made = {
        "ingest": (),
        "parse": parse.OWN,
        "aggregate": windows.OWN,
        "audit": audit.OWN,
        "compact": (*parse.OWN, *compacting.OWN),
        "replay": slices.OWN,
        "report": parse.OWN,
        "topic_stats": topic_stats.OWN,
        "lag_latency": lag_latency.OWN,
        "dlq_triage": dlq_triage.OWN,
    }
    return list(made[name])


def test_claim_belongs_to_nobody_unless_it_is_to_go() -> None:
    kept = render.claim(desired())
    assert kept is not None
    assert "ownerReferences" not in kept["metadata"]
    going = render.claim(desired({"spec.checkpoint.claim.retain": False}))
    assert going is not None
    assert going["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert render.claim(desired({"spec.checkpoint": {"path": "s3a://b/c"}})) is None


def test_configuration_is_what_the_application_reads() -> None:
    pipeline = tomllib.loads(pipeline_file(desired(FULL | {"spec.config": {'odd "key"': "ü\x7f"}})))
    assert pipeline["config"] == {'odd "key"': "ü\x7f"}
    assert pipeline["topics"] == ["orders", "refunds"]
    assert pipeline["bootstrap"] == "demo-bootstrap.data.svc:9876"
    assert (pipeline["pipeline"], pipeline["startFrom"]) == ("data.lake", "Latest")


def test_properties_survive_java() -> None:
    text = properties_file({"a.b": "c:\\d\ne", "s": " x"})
    assert text == "a.b=c:\\\\d\\ne\ns=\\ x\n"


def test_memory_is_shared_by_the_heap_and_python() -> None:
    driver = desired(FULL).driver
    assert (driver.heap_mib, driver.rest_mib) == (1462, 586)
    assert driver.requests["memory"] == driver.limits["memory"] == "2Gi"
    assert desired(FULL).executor.cores == 2
    with pytest.raises(InvalidError, match=r"spec\.resources\.driver: 256Mi of memory"):
        desired({"spec.resources": {"driver": {"limits": {"memory": "256Mi"}}}})


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("500m", 0.5), ("1.5Gi", 3 << 29), ("2k", 2000), ("1e3", 1000), ("1E", 10**18)],
)
def test_amounts(text: str, value: float) -> None:
    assert number(text) == value


def test_lists_of_named_things_are_merged_by_name() -> None:
    base = {"c": [{"name": "a", "env": [{"name": "X", "value": "1"}], "k": 1}], "l": [1]}
    over = {"c": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "b"}], "l": [2]}
    merged = overlaid(base, over)
    assert merged["l"] == [2]
    assert merged["c"][0]["env"] == [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]
    assert [one["name"] for one in merged["c"]] == ["a", "b"]


def test_plain_manifests_are_as_rendered() -> None:
    files = plain.files(version("imago-mq"), MANIFESTS.parent / "samples")
    assert {path.name for path in MANIFESTS.glob("*.yaml")} == set(files)
    for name, text in files.items():
        assert (MANIFESTS / name).read_text() == text, "make docs renews it"
