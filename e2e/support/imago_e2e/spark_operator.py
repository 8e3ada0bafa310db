"""kubeflow's spark-operator: the one that is there, or ours, installed by its own chart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rig import build

from imago_e2e.kube import run

if TYPE_CHECKING:
    from imago_e2e.kube import Kube

NAMESPACE: Final = "e2e-spark-operator"
RELEASE: Final = "spark-operator"
HELM_SECONDS_MAX: Final = 180.0
_IMAGE: Final = {
    "image.registry": "docker.io",
    "image.repository": "imago/e2e-spark-operator",
    "image.tag": "1",
}


class SparkOperator:
    """What runs SparkApplications."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._ours = False

    def provide(self, namespace: str) -> None:
        """See that there is one for a namespace, which somebody else's must look after already."""
        if self._is_there():
            return
        self._ours = True
        self._kube.namespace(NAMESPACE)
        sets = [f"--set-string={key}={text}" for key, text in _IMAGE.items()]
        sets += ["--set", f"spark.jobNamespaces={{{namespace}}}"]
        chart = str(build.spark_operator() / build.CHART)
        limit = ("--wait", f"--timeout={HELM_SECONDS_MAX - 10:.0f}s")
        command = ["helm", "install", RELEASE, chart, "-n", NAMESPACE, *sets, *limit]
        run(command, seconds_max=HELM_SECONDS_MAX)

    def remove(self) -> None:
        """Take ours away, with its kinds."""
        if self._ours:
            uninstall(self._kube)
            self._kube.delete_namespace(NAMESPACE)

    def _is_there(self) -> bool:
        label = "app.kubernetes.io/name=spark-operator"
        return bool(self._kube.run("get", "deployments", "-A", "-l", label, "-o", "name").strip())


def uninstall(kube: Kube) -> None:
    """Take ours away, whatever a former run left of it, but for its namespace."""
    known = kube.run("get", "crds", "-o", "name").split()
    kinds = [name for name in known if name.endswith(".sparkoperator.k8s.io")]
    if kinds:
        # First what its webhooks would be asked about.
        kube.run("delete", *kinds, "--timeout=120s", seconds_max=130)
    command = ["helm", "uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--ignore-not-found"]
    run(command, seconds_max=HELM_SECONDS_MAX)
