"""How the brokers of a cluster are reached: addresses of pods, the token, the operator's epoch."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from imago_operator import names
from imago_operator.brokers.admin import Admin
from imago_operator.brokers.contents import Contents
from imago_operator.brokers.pipelines import Pipelines
from imago_operator.manifests.services import ADMIN
from imago_operator.reconcile import Reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from imago_operator.brokers.http import BrokerHttp
    from imago_operator.ports import KubePort

CLUSTERS_MAX: Final = 1000


class BrokerFinder:
    """Finds the brokers of clusters, as `reconcile.Brokers` describes it."""

    def __init__(self, kube: KubePort, http: BrokerHttp) -> None:
        self._kube, self._http = kube, http
        self._epochs: OrderedDict[tuple[str, str], _Epoch] = OrderedDict()

    async def __call__(self, namespace: str, cluster: str) -> Reached:
        labels = f"{names.CLUSTER_LABEL}={cluster},{names.COMPONENT_LABEL}={names.BROKER}"
        pods = await self._kube.list("Pod", namespace, labels=labels)
        return await self.of_pods(namespace, cluster, pods)

    async def of_pods(
        self, namespace: str, cluster: str, pods: Sequence[Mapping[str, Any]]
    ) -> Reached:
        """Return the same, where the pods are known already."""
        secret = await self._kube.get("Secret", namespace, names.token(cluster))
        calls = self._http.with_token(token_of(secret))
        admin = Admin(calls)
        brokers = tuple(addresses(pods).values())
        epoch = self._epochs.setdefault((namespace, cluster), _Epoch())
        self._epochs.move_to_end((namespace, cluster))
        while len(self._epochs) > CLUSTERS_MAX:
            self._epochs.popitem(last=False)
        return Reached(
            admin=admin,
            contents=Contents(calls),
            pipelines=Pipelines(calls),
            brokers=brokers,
            epoch=lambda: epoch.get(admin, brokers),
        )


class _Epoch:
    """The operator's epoch at one cluster, raised once in the life of this process."""

    def __init__(self) -> None:
        self._raised: int | None = None
        self._lock = asyncio.Lock()

    async def get(self, admin: Admin, brokers: Sequence[str]) -> int:
        async with self._lock:
            if self._raised is None:
                self._raised = await admin.raise_epoch(brokers)
            return self._raised


def addresses(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the base addresses of pods that have one, by name; those that are ready first."""
    with_address = [pod for pod in pods if pod.get("status", {}).get("podIP")]
    ordered = sorted(with_address, key=lambda pod: (not is_ready(pod), pod["metadata"]["name"]))
    return {pod["metadata"]["name"]: _url(pod["status"]["podIP"]) for pod in ordered}


def _url(address: str) -> str:
    return f"http://{f'[{address}]' if ':' in address else address}:{ADMIN}"


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def token_of(secret: Mapping[str, Any] | None) -> str | None:
    """Return the admin token of its Secret; None where there is none."""
    said = (secret or {}).get("data", {}).get("token")
    try:
        return base64.b64decode(said, validate=True).decode().strip() if said else None
    except (binascii.Error, UnicodeDecodeError):
        return None
