"""Programs in Go: built once for each content of go.mod, go.sum and our own sources.

Those of the cluster; and with a go.mod of their own, since they need other versions of its
libraries, kubeflow's spark-operator, MinIO, and what checks alerts with Prometheus' own parser.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rig.locks import alone
from rig.places import CACHE, HERE, STATE, RigError

if TYPE_CHECKING:
    from collections.abc import Callable

_GO = HERE / "go"
_SPARK = HERE / "spark-operator"
_SPARK_MODULE = "github.com/kubeflow/spark-operator/v2"
_MINIO = HERE / "minio"
_RULES = HERE / "rules"
_MONITORING = HERE / "monitoring"
_MONITORING_MODULE = "github.com/prometheus-operator/prometheus-operator"
SPARK_OPERATOR = "spark-operator"
MINIO = "minio"
PROMCHECK = "promcheck"
CHART = "chart"
_OWN_CACHE = CACHE / "go-build"
_KUBERNETES = "v1.37.1"
_STAMP = "k8s.io/component-base/version"
_FLAGS = ["-trimpath", "-gcflags=all=-dwarf=false"]
PROGRAMS = (
    "coredns",
    "etcd",
    "helm",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "pause",
    "volumes",
)


def make(*, checks: bool) -> None:
    """Build the programs of the cluster, and what checks alerts where that is wanted."""
    programs()
    if checks:
        promcheck()


def programs() -> Path:
    """Return the folder with all programs; the first time this takes some minutes."""
    folder = _programs_folder()
    if not folder.exists():
        _build(f"Kubernetes {_KUBERNETES}: about 7 minutes", folder, _build_programs)
    return folder


def built() -> bool:
    """Whether the cluster's programs are there, so that nobody waits for them."""
    return _programs_folder().exists()


def _programs_folder() -> Path:
    return CACHE / f"bin-{_digest(_GO, _KUBERNETES)}"


def spark_operator() -> Path:
    """Return the folder with the program SPARK_OPERATOR and its chart in the folder CHART."""
    folder = CACHE / f"{SPARK_OPERATOR}-{_digest(_SPARK, _SPARK_MODULE)}"
    if not folder.exists():
        _build("spark-operator: about 3 minutes", folder, _build_spark_operator)
    return folder


def minio() -> Path:
    """Return the folder with the program MINIO."""
    folder = CACHE / f"{MINIO}-{_digest(_MINIO, MINIO)}"
    if not folder.exists():
        what = f"{MINIO}: about 3 minutes"
        _build(what, folder, lambda made: _go_build(_MINIO, made, "", "tool"))
    return folder


def promcheck() -> Path:
    """Return the program PROMCHECK, which says what Prometheus finds wrong with rules."""
    folder = CACHE / f"{PROMCHECK}-{_digest(_RULES, PROMCHECK)}"
    if not folder.exists():
        _build(
            f"{PROMCHECK}: about a minute",
            folder,
            lambda made: _go_build(_RULES, made, "", "./cmd/..."),
        )
    return folder / PROMCHECK


def monitoring_definitions() -> list[Path]:
    """Return the files that define ServiceMonitor, PodMonitor, PrometheusRule: as published."""
    folder = _source(_MONITORING, _MONITORING_MODULE) / "example" / "prometheus-operator-crd"
    kinds = ("servicemonitors", "podmonitors", "prometheusrules")
    return [folder / f"monitoring.coreos.com_{kind}.yaml" for kind in kinds]


def spark_definitions() -> list[Path]:
    """Return the files that define SparkApplication and its like: those of the chart."""
    return sorted((_spark_chart() / "crds").glob("*.yaml"))


def _spark_chart() -> Path:
    return _source(_SPARK, _SPARK_MODULE) / "charts" / "spark-operator-chart"


def _source(module: Path, name: str) -> Path:
    """Return the folder with the source of a module that a go.mod names."""
    command = ["go", "mod", "download", "-json", name]
    done = subprocess.run(command, cwd=module, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"{name} cannot be had: {(done.stdout + done.stderr).strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def _digest(module: Path, name: str) -> str:
    digest = hashlib.sha256()
    for path in [module / "go.mod", module / "go.sum", *sorted(module.glob("cmd/*/*.go"))]:
        digest.update(path.read_bytes())
    digest.update(repr((name, _FLAGS, _go_version())).encode())
    return digest.hexdigest()[:16]


def _go_version() -> str:
    if shutil.which("go") is None:
        raise RigError("Go is missing: install Go 1.26 or newer; it builds Kubernetes")
    done = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _build(what: str, folder: Path, build: Callable[[Path], None]) -> None:
    """Have a folder filled; it has its name when all of it is there."""
    with alone("build"):
        if not folder.exists():  # somebody else may have built it meanwhile
            _fill(what, folder, build)


def _fill(what: str, folder: Path, build: Callable[[Path], None]) -> None:
    print(f"building {what} once, then never again", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=CACHE) as made:
        build(Path(made))
        Path(made).chmod(0o755)
        Path(made).rename(folder)
        Path(made).mkdir()  # for the context manager to remove
    if _cache_of_go() == _OWN_CACHE:
        shutil.rmtree(_OWN_CACHE)  # gigabytes, and nothing of it is compiled a second time
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)


def forget_old() -> None:
    """Remove programs of former versions, but not those that a machine of the cluster runs."""
    plans = "".join(path.read_text() for path in STATE.glob("*.json"))
    used = {
        f"bin-{_digest(_GO, _KUBERNETES)}",
        f"{SPARK_OPERATOR}-{_digest(_SPARK, _SPARK_MODULE)}",
        f"{PROMCHECK}-{_digest(_RULES, PROMCHECK)}",
        f"{MINIO}-{_digest(_MINIO, MINIO)}",
    }
    for name in ("bin", SPARK_OPERATOR, PROMCHECK, MINIO):
        for folder in CACHE.glob(f"{name}-*"):
            if folder.name not in used and str(folder) not in plans:
                shutil.rmtree(folder)


def _cache_of_go() -> Path:
    """Where Go keeps what it compiled: where its user wants that, or in a folder of our own."""
    wanted = os.environ.get("GOCACHE")
    return Path(wanted) if wanted else _OWN_CACHE


def _build_programs(made: Path) -> None:
    major, minor = _KUBERNETES.removeprefix("v").split(".")[:2]
    stamps = {
        "gitVersion": _KUBERNETES,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
    }
    link = " ".join(f"-X {_STAMP}.{name}={text}" for name, text in stamps.items())
    _go_build(_GO, made, link, "tool", "./cmd/...")
    (made / "server").rename(made / "etcd")
    missing = [name for name in PROGRAMS if not (made / name).exists()]
    if missing:
        raise RigError(f"go build made no {', '.join(missing)}")


def _build_spark_operator(made: Path) -> None:
    _go_build(_SPARK, made, "", "tool")
    (made / "operator").rename(made / SPARK_OPERATOR)
    shutil.copytree(_spark_chart(), made / CHART, copy_function=shutil.copyfile)
    for folder in (made / CHART, *(made / CHART).rglob("*/")):
        folder.chmod(0o755)  # modules are kept where nobody can write


def _go_build(module: Path, made: Path, link: str, *packages: str) -> None:
    """Build packages; `tool` is what a go.mod names as such."""
    # GOGC: memory for time; the compiler is what takes the minutes.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOGC": "400"}
    environment["GOCACHE"] = str(_cache_of_go())
    command = ["go", "build", *_FLAGS, "-ldflags", f"-s -w {link}".strip(), "-o", f"{made}/"]
    if subprocess.run([*command, *packages], cwd=module, env=environment, check=False).returncode:
        raise RigError("go build failed: see above")
