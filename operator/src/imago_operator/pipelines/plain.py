"""Plain manifests for users without the operator: `manifests/spark`, from the same functions.

python -m imago_operator.pipelines.plain manifests/spark
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
#   http://CLUSTER-admin.NAMESPACE.svc:8080/admin/v1/pipelines/default.orders-lake/epoch
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
    "config.yaml": "# The files that driver and executors read.\n" + _CHANGE,
    "sparkapplication.yaml": "# One run by kubeflow's spark-operator.\n" + _CHANGE,
    "job.yaml": """\
# The same without spark-operator: the pod of this Job is the driver. It waits until you start it in
# place of the SparkApplication, whose checkpoint it has:
# kubectl patch job orders-lake --type merge -p '{"spec": {"suspend": false}}'
"""
    + _CHANGE,
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


def files(release: str) -> dict[str, str]:
    """Return the text of each file; `release`: of the image."""
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
    return {name: HEADS[name] + _dump(made) for name, made in objects.items()}


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
    for name, text in files(version("imago-mq")).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
