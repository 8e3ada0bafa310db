"""Plain manifests for users without the operator: `manifests/spark`, from the same functions.

python -m imago_operator.pipelines.plain manifests/spark

One pipeline of each application: ingest in files of its own, the others as their ImagoPipelines of
`manifests/samples` have them.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_operator.model.desired import OperatorInfo
from imago_operator.pipelines import render
from imago_operator.pipelines.account import account
from imago_operator.pipelines.desired import desired_pipeline
from imago_operator.spec.applications import NAMES
from imago_operator.spec.kinds import API_VERSION, PIPELINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.manifests.common import Manifest

LAKE: Final = "imago-lake"
_CHANGE: Final = """\
# Replace the namespace, the address of the name service, topics and sizes. Only one run may write
# at a time, that of the pipeline's epoch, which is 0 until somebody raises it. To shut a run out
# that may still be there, raise the epoch on any broker, and start the next run with that number:
# curl -X POST -H "Authorization: Bearer $TOKEN" -d '{"epoch": 1}' \\
#   http://CLUSTER-admin.NAMESPACE.svc:8080/admin/v1/pipelines/default.NAME/epoch
"""
BY_SPARK_OPERATOR: Final = """\
# APPLICATION, run by kubeflow's spark-operator: its files, its checkpoint, and the run. Needs
# rbac.yaml and the claim of pvc.yaml.
"""
NATIVE: Final = """\
# APPLICATION by schedule without spark-operator: a CronJob whose pods are drivers. In place of the
# ScheduledSparkApplication of APPLICATION.yaml, whose other objects it needs.
"""
HEADS: Final = {
    "rbac.yaml": """\
# The account of pipelines' drivers, for each namespace that has pipelines:
# kubectl apply -n NAMESPACE -f rbac.yaml
""",
    "pvc.yaml": """\
# Where Parquet files and checkpoint of the example go. ReadWriteMany lets driver and executors run
# on different nodes; with ReadWriteOnce all of them share one.
""",
    "config.yaml": "# The files that driver and executors read.\n"
    + _CHANGE.replace("NAME/", "orders-lake/"),
    "sparkapplication.yaml": "# One run by kubeflow's spark-operator.\n"
    + _CHANGE.replace("NAME/", "orders-lake/"),
    "job.yaml": """\
# The same without spark-operator: the pod of this Job is the driver. It waits until you start it in
# place of the SparkApplication, whose checkpoint it has:
# kubectl patch job orders-lake --type merge -p '{"spec": {"suspend": false}}'
"""
    + _CHANGE.replace("NAME/", "orders-lake/"),
}


def example() -> Manifest:
    """Return the pipeline that the manifests are of."""
    return {
        "apiVersion": API_VERSION,
        "kind": PIPELINE.name,
        "metadata": {"name": "orders-lake", "namespace": "default"},
        "spec": {
            "clusterRef": {"name": "demo"},
            "source": {"topics": ["orders"], "groupName": "orders-lake"},
            "ingest": {"path": "/lake/orders"},
            "volumes": [{"name": "lake", "claimName": LAKE, "mountPath": "/lake"}],
            "checkpoint": {"claim": {"accessMode": "ReadWriteMany"}},
        },
    }


def sample(name: str, folder: Path) -> Manifest:
    """Return the ImagoPipeline of an application, on the cluster and the topics of the others."""
    import yaml  # noqa: PLC0415 - no part of a running operator

    found: Manifest = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    spec = found["spec"]
    source = spec["source"]
    if source["topics"] == ["orders_created"]:
        source = source | {"topics": ["orders"]}
    found["metadata"]["namespace"] = "default"
    return found | {"spec": spec | {"clusterRef": {"name": "demo"}, "source": source}}


def of_application(name: str, release: str, folder: Path) -> dict[str, str]:
    """Return the files of an application that is not ingest."""
    desired = desired_pipeline(sample(name, folder), OperatorInfo(version=release))
    by_schedule = desired.spec.schedule is not None
    kind = render.SCHEDULED if by_schedule else render.SPARK_APPLICATION
    claim = render.claim(desired)
    assert claim is not None
    objects = [render.config_map(desired), claim, render.run(desired, kind, 0)]
    change = _CHANGE.replace("NAME/", f"{desired.name}/")
    text = _dump(_standing_alone(_renamed(one)) for one in objects)
    found = {f"{name}.yaml": BY_SPARK_OPERATOR.replace("APPLICATION", name) + change + text}
    if name == "audit":
        native = _standing_alone(_renamed(render.run(desired, render.CRON_JOB, 0)))
        found["cronjob.yaml"] = NATIVE.replace("APPLICATION", name) + change + _dump([native])
    return found


def files(release: str, samples: Path) -> dict[str, str]:
    """Return the text of each file; `release`: of the image; `samples`: of ImagoPipelines."""
    others: dict[str, str] = {}
    for name in NAMES:
        others |= of_application(name, release, samples)
    desired = desired_pipeline(example(), OperatorInfo(version=release))
    checkpoint = render.claim(desired)
    assert checkpoint is not None
    lake: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": LAKE},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Gi"}},
        },
    }
    objects = {
        "rbac.yaml": account(),
        "pvc.yaml": [lake, _standing_alone(checkpoint)],
        "config.yaml": [_standing_alone(_renamed(render.config_map(desired)))],
        "sparkapplication.yaml": [
            _standing_alone(_renamed(render.run(desired, "SparkApplication", 0)))
        ],
        "job.yaml": [_suspended(_standing_alone(_renamed(render.run(desired, "Job", 0))))],
    }
    return {name: HEADS[name] + _dump(made) for name, made in objects.items()} | others


def _standing_alone(manifest: Manifest) -> Manifest:
    """Return an object without what ties it to an ImagoPipeline."""
    metadata = dict(manifest["metadata"])
    for name in ("ownerReferences", "annotations", "namespace"):
        metadata.pop(name, None)
    metadata["name"] = metadata["name"].removesuffix("-run-0")
    made: Manifest = _without(manifest | {"metadata": metadata}, "app.kubernetes.io/managed-by")
    return made


def _suspended(job: Manifest) -> Manifest:
    """Return a Job that begins once somebody says so: beside the SparkApplication it must not."""
    return job | {"spec": job["spec"] | {"suspend": True}}


def _renamed(value: Any) -> Any:
    """Return an object without the number that the operator gives its runs."""
    if isinstance(value, dict):
        return {key: _renamed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    return value.replace("-run-0", "") if isinstance(value, str) else value


def _without(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _without(one, name) for key, one in value.items() if key != name}
    return [_without(one, name) for one in value] if isinstance(value, list) else value


def _dump(objects: Iterable[Manifest]) -> str:
    import yaml  # noqa: PLC0415 - no part of a running operator

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]  # the package has no types
        """Writes texts of several lines as such."""

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    plain = json.loads(json.dumps(list(objects)))
    return str(yaml.dump_all(plain, Dumper=Dumper, sort_keys=False, width=100))


def main() -> None:
    folder = Path(sys.argv[1])
    for name, text in files(version("imago-mq"), folder.parent / "samples").items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
