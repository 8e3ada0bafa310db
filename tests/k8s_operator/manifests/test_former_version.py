"""What this operator tells brokers of the version before, they take."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from imago_operator.manifests.brokers import pod_template
from imago_operator.manifests.config import toml
from imago_operator.model.desired import OperatorInfo
from imago_testing.clusters.former_version import FORMER, former_version
from imago_testing.operated.resources import told_of, wanted

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.full
OPEN = {
    "spec.version": FORMER,
    "spec.zookeeper.managed.authentication": "None",
    "spec.zookeeper.managed.tls": "None",
}
READS = """
import os, sys
from imago_broker.config import load
print(load(open(sys.argv[1]).read(), os.environ))
"""
"""Its commands need packages that this version has no more."""
CASES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one member": {"spec.brokers.replicasPerShard": 1, "spec.brokers.config": {}},
    "settings": {"spec.brokers.config": {"store.scrub_interval_ms": 3600000}},
    "held": {"spec.featureLevel": 1},
    "a user of ZooKeeper": {
        "spec.zookeeper.managed.authentication": "Enforcing",
        "spec.zookeeper.managed.tls": "Permissive",
    },
}


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return former_version(tmp_path_factory.mktemp("former"))


@pytest.mark.parametrize("case", CASES)
def test_the_version_before_reads_its_settings(case: str, former: Path, tmp_path: Path) -> None:
    desired = wanted(OPEN | CASES[case], operator=OperatorInfo(version="0.2.0"))
    file = tmp_path / "broker.toml"
    file.write_text(toml(desired.settings))
    done = subprocess.run(
        [sys.executable, "-c", READS, str(file)],
        env={**os.environ, **told_of(pod_template(desired, 0)), "PYTHONPATH": str(former)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout
