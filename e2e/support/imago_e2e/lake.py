"""The claim that pipelines land topics on, and what is in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from imago_e2e import versions
from imago_e2e.kube import run

LAKE: Final = "lake"
_COUNT: Final = """\
import collections, glob, json, sys
import pyarrow.parquet as pq
table = sys.argv[1]
seen = collections.Counter()
bodies = []
names = ["topic", "shard", "queue", "offset", "value"]
for file in glob.glob(table + "/date=*/*.parquet"):
    rows = pq.read_table(file, columns=names, partitioning=None).to_pydict()
    seen.update(zip(rows["topic"], rows["shard"], rows["queue"], rows["offset"]))
    bodies += [b"/".join(body.split(b"/", 2)[:2]).decode() for body in rows["value"]]
epochs = []
for file in sorted(glob.glob(table + "/_imago/commits/*/*.json")):
    with open(file) as commit:
        epochs.append(json.load(commit)["epoch"])
again = sum(count - 1 for count in seen.values())
print(json.dumps({"again": again, "bodies": bodies, "epochs": epochs}))
"""


@dataclass(frozen=True, slots=True)
class Landed:
    """What is in a table."""

    bodies: list[str]
    """Whose messages, `<stream>/<number>`."""
    epochs: list[int]
    """Of the runs that made its commits, one after the other."""


def manifest(namespace: str) -> dict[str, Any]:
    """Return the claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": LAKE, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def landed(namespace: str, table: str, claim: str = LAKE) -> Landed:
    """Return what is in a table below /lake, counted in a pod; each row is there once."""
    image = f"imago/spark-apps:{versions.current()}"
    overrides = json.dumps({"spec": _counting_pod(image, table, claim)})
    name = f"count-{table.rpartition('/')[2]}"
    command = ["kubectl", "run", name, "-n", namespace, "--quiet", "--restart=Never", "--rm", "-i"]
    said = run([*command, f"--image={image}", f"--overrides={overrides}"], seconds_max=120)
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert found["again"] == 0, f"{found['again']} rows are in the table twice"
    return Landed(found["bodies"], found["epochs"])


def _counting_pod(image: str, table: str, claim: str) -> dict[str, Any]:
    container = {
        "name": "count",
        "image": image,
        "args": ["python", "-c", _COUNT, table],
        "volumeMounts": [{"name": "lake", "mountPath": "/lake"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "securityContext": {
            "runAsUser": 185,
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": [{"name": "lake", "persistentVolumeClaim": {"claimName": claim}}],
        "containers": [container],
    }
