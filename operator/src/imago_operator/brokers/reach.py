"""How the brokers of a cluster are reached: addresses of pods, the token, the operator's epoch."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from imago_operator.brokers.admin import AdminClient
from imago_operator.brokers.contents import Contents
from imago_operator.brokers.pipelines import Pipelines
from imago_operator.certificates.state import TRUSTED
from imago_operator.manifests.brokers import TLS
from imago_operator.manifests.services import ADMIN
from imago_operator.model import names
from imago_operator.model.secret_data import decoded
from imago_operator.reconcile import Reached

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from imago_operator.brokers.http import BrokerHttp
    from imago_operator.ports import KubePort

CLUSTERS_MAX: Final = 1000

log = logging.getLogger(__name__)


class BrokerFinder:
    """Finds the brokers of clusters, as `reconcile.Brokers` describes it."""

    def __init__(self, kube: KubePort, http: BrokerHttp) -> None:
        self._kube, self._http = kube, http
        self._epochs: OrderedDict[tuple[str, str, str | None], _Epoch] = OrderedDict()
        """By namespace, name and token: a cluster that is made anew has another one."""

    async def __call__(self, namespace: str, cluster: str) -> Reached:
        labels = f"{names.CLUSTER_LABEL}={cluster},{names.COMPONENT_LABEL}={names.BROKER}"
        pods = await self._kube.list("Pod", namespace, labels=labels)
        return await self.of_pods(namespace, cluster, pods)

    async def of_pods(
        self, namespace: str, cluster: str, pods: Sequence[Mapping[str, Any]]
    ) -> Reached:
        """Return the same, where the pods are known already."""
        token = token_of(await self._kube.get("Secret", namespace, names.token(cluster)))
        trusted = await self._trusted(namespace, pods)
        calls = self._http.with_token(token, trusted)
        epoch = self._epoch((namespace, cluster, token))
        admin = AdminClient(calls, epoch.seen)
        brokers = tuple(addresses(pods).values())
        return Reached(
            admin=admin,
            contents=Contents(calls),
            pipelines=Pipelines(calls),
            brokers=brokers,
            epoch=lambda: epoch.get(admin, brokers),
        )

    async def _trusted(self, namespace: str, pods: Sequence[Mapping[str, Any]]) -> str:
        """Return the authorities that sign for brokers that serve TLS; empty: none does."""
        name = next(filter(None, map(certificate_secret, pods)), "")
        secret = await self._kube.get("Secret", namespace, name) if name else None
        return decoded(secret or {}).get(TRUSTED, "")

    def _epoch(self, key: tuple[str, str, str | None]) -> _Epoch:
        epoch = self._epochs.setdefault(key, _Epoch(key))
        self._epochs.move_to_end(key)
        while len(self._epochs) > CLUSTERS_MAX:
            self._epochs.popitem(last=False)
        return epoch


class _Epoch:
    """The operator's epoch at one cluster: raised once, unless somebody else raises it, too."""

    def __init__(self, key: tuple[str, str, str | None]) -> None:
        self._cluster = f"{key[0]}/{key[1]}"
        self._raised: int | None = None
        self._lock = asyncio.Lock()

    async def get(self, admin: AdminClient, brokers: Sequence[str]) -> int:
        async with self._lock:
            if self._raised is None:
                self._raised = await admin.raise_epoch(brokers)
            return self._raised

    def seen(self, stands: int) -> None:
        """Take note of the epoch that brokers speak of.

        We hold the lease: the operator that raised it is an installation of its own.
        """
        if self._raised is not None and stands > self._raised:
            log.warning("%s has another operator, too: epoch %d", self._cluster, stands)
            self._raised = None


def addresses(pods: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the base addresses of pods that have one, by name; those that are ready first."""
    with_address = [pod for pod in pods if pod.get("status", {}).get("podIP")]
    ordered = sorted(with_address, key=lambda pod: (not is_ready(pod), pod["metadata"]["name"]))
    return {pod["metadata"]["name"]: _url(pod) for pod in ordered}


def _url(pod: Mapping[str, Any]) -> str:
    address, scheme = pod["status"]["podIP"], "https" if certificate_secret(pod) else "http"
    return f"{scheme}://{f'[{address}]' if ':' in address else address}:{ADMIN}"


def certificate_secret(pod: Mapping[str, Any]) -> str:
    """Return the Secret with the certificate of a pod's broker; empty: it serves no TLS."""
    volumes = pod.get("spec", {}).get("volumes") or ()
    found = (v.get("secret", {}) for v in volumes if v.get("name") == TLS)
    return next((str(secret.get("secretName", "")) for secret in found), "")


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
