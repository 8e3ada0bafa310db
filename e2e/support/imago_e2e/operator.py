"""The operator, installed by its chart."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imago_e2e.kube import KubeError, is_ready, run, until

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_e2e.kube import Kube

NAMESPACE: Final = "imago-system"
RELEASE: Final = "imago"
CHART: Final = Path(__file__).resolve().parents[3] / "charts" / "imago"
HELM_SECONDS_MAX: Final = 240.0
KINDS: Final = (
    "imagoclusters",
    "imagotopics",
    "imagoconsumergroups",
    "imagousers",
    "imagorebalances",
    "imagopipelines",
)
_DEPLOYMENT: Final = "deployment/imago-operator"


class Operator:
    """What a person does with helm, and to the operator's pods."""

    def __init__(self, kube: Kube) -> None:
        self.kube = kube
        self.began = 0.0
        """When it was installed, by the monotonic clock."""

    def install(self) -> None:
        """Install it into a namespace in which Pod Security `restricted` is enforced."""
        self.began = time.monotonic()
        self.kube.namespace(NAMESPACE)
        # Definitions that somebody applied before become the chart's.
        self.helm("install", RELEASE, str(CHART), "--take-ownership")

    def upgrade(self, **values: str) -> None:
        """Change values of the release, as `helm upgrade --set` does."""
        sets = [f"--set-string={key.replace('__', '.')}={text}" for key, text in values.items()]
        self.helm("upgrade", RELEASE, str(CHART), "--reuse-values", *sets)

    def uninstall(self) -> None:
        """Take it away; the definitions and all resources stay."""
        command = ["helm", "uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--ignore-not-found"]
        run(command, seconds_max=HELM_SECONDS_MAX)

    def installed(self) -> bool:
        said = run(["helm", "list", "-n", NAMESPACE, "-q"], seconds_max=30)
        return RELEASE in said.split()

    def helm(self, *words: str) -> str:
        """Run helm on the release, and wait until its pods are ready."""
        limit = f"--timeout={HELM_SECONDS_MAX - 10:.0f}s"
        command = ["helm", *words, "-n", NAMESPACE, "--wait", limit]
        return run(command, seconds_max=HELM_SECONDS_MAX)

    def scale(self, replicas: int) -> None:
        """Stop it with 0, start it again with 1; wait until that is so."""
        self.kube.run("-n", NAMESPACE, "scale", _DEPLOYMENT, f"--replicas={replicas}")

        def done() -> bool:
            pods = self.pods()
            return len(pods) == replicas and all(map(is_ready, pods))

        until(done, f"{replicas} operators run", seconds_max=90)

    def holder(self) -> str:
        """Return the pod that works; the others wait for its Lease."""
        lease = self.kube.get("lease", "imago-operator", "-n", NAMESPACE)
        return str(lease["spec"].get("holderIdentity", ""))

    def kill(self, *pods: str) -> None:
        """Have pods of it vanish without a word."""
        now = ("--grace-period=0", "--force", "--wait=false")
        self.kube.run("delete", "pod", *pods, "-n", NAMESPACE, *now)

    def pods(self) -> list[dict[str, Any]]:
        return self.kube.pods(NAMESPACE, "app.kubernetes.io/name=imago-operator")


def status(kube: Kube, kind: str, namespace: str, name: str) -> Mapping[str, Any]:
    """Return the status of a resource; {} while it has none."""
    found: Mapping[str, Any] = kube.get(kind, name, "-n", namespace).get("status", {})
    return found


def condition(kube: Kube, kind: str, namespace: str, name: str, type_: str) -> Mapping[str, Any]:
    """Return a condition; KubeError while there is none."""
    for each in status(kube, kind, namespace, name).get("conditions", []):
        if each["type"] == type_:
            return dict(each)
    raise KubeError(f"{kind} {namespace}/{name} has no condition {type_}")


def defects(kube: Kube, namespace: str) -> list[str]:
    """Return what the operator has said of defects of its own in a namespace."""
    found = kube.get("events", "-n", namespace, "--field-selector=reason=InternalError")["items"]
    return [str(event["message"]) for event in found]


def until_ready(kube: Kube, kind: str, namespace: str, name: str, *, seconds_max: float) -> float:
    """Wait until a resource is ready for what its spec says now; return the seconds."""

    def ready() -> bool:
        found = kube.get(kind, name, "-n", namespace)
        told = found.get("status", {})
        good = {each["type"]: each["status"] for each in told.get("conditions", [])}
        current = told.get("observedGeneration") == found["metadata"]["generation"]
        return current and good.get("Ready") == "True" and "Reconciling" not in good

    return until(ready, f"{kind} {namespace}/{name} is ready", seconds_max=seconds_max)
