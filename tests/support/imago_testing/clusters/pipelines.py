"""Epochs of pipelines, asked of and told to the first broker of an `imago up`."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

ADMIN = 14
"""Of the first broker, above the port of the name service."""


def allow(cluster: str, pipeline: str, epoch: int) -> None:
    """Have brokers know the epoch of the run that may write. `cluster`: the name service."""
    _call(cluster, f"{pipeline}/epoch", json.dumps({"epoch": epoch}).encode())


def record(cluster: str, pipeline: str) -> Any:
    """Return what is on record of a pipeline."""
    return _call(cluster, pipeline, None)


def _call(cluster: str, path: str, body: bytes | None) -> Any:
    host, _, port = cluster.rpartition(":")
    url = f"http://{host}:{int(port) + ADMIN}/admin/v1/pipelines/{path}"
    asked = urllib.request.Request(url, body)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.loads(answer.read())
