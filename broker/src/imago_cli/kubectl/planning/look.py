"""What the operator would see of a cluster, seen through kubectl: the same observer, other eyes."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

from imago_cli.exits import CommandError
from imago_cli.kubectl.brokers import ClusterBrokers
from imago_cli.kubectl.tool import Kubectl, KubectlError
from imago_operator.brokers.admin import AdminClient
from imago_operator.brokers.contents import Contents
from imago_operator.brokers.http import RETRY_S, BrokerCalls, BrokerHttp, SilentError
from imago_operator.brokers.pipelines import Pipelines
from imago_operator.brokers.reach import addresses
from imago_operator.errors import BlockedError, OperatorError
from imago_operator.kube.resources import RESOURCES
from imago_operator.observing.observed import Observer
from imago_operator.observing.volumes import Volumes
from imago_operator.reconcile import Context, Reached

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from imago_operator.model.desired import Desired
    from imago_operator.model.state import Observed

PATHS: Final = (
    "/admin/v1/status",
    "/admin/v1/config",
    "/admin/v1/restart-check",
    "/admin/v1/restart-done",
    "/admin/v1/cluster",
)
"""What is asked of a broker, all at once: a program in a pod takes its time to start."""


def look(
    kube: Kubectl, desired: Desired, manifest: Mapping[str, Any]
) -> tuple[Observed, list[str]]:
    """Return what is seen of a cluster, and what could not be seen; CommandError."""
    eyes = Eyes(kube)
    try:
        seen = asyncio.run(_look(eyes, desired, manifest))
    except OperatorError as error:
        raise CommandError(
            f"{desired.name} cannot be read: {error}",
            cure="see whether the API server answers, `kubectl get imc`, and what you may read",
        ) from error
    return seen, eyes.unseen


async def _look(eyes: Eyes, desired: Desired, manifest: Mapping[str, Any]) -> Observed:
    context = Context(
        kube=eyes,
        brokers=eyes,
        operator=desired.operator,
        now=lambda: datetime.now(UTC),
        leading=_never,
        enqueue=_never,
    )
    observer = Observer(context, Volumes(eyes, time.monotonic))
    return (await observer.look(desired, manifest)).observed


def _never(*_: object, **__: object) -> NoReturn:
    raise AssertionError("a look changes nothing")


class Eyes:
    """Kubernetes and brokers, for looking alone: KubePort and Brokers in one."""

    apply = apply_status = create = delete = patch = event = _never

    def __init__(self, kube: Kubectl) -> None:
        self._kube = kube
        self.unseen: list[str] = []
        """What the caller may not see, or nobody answers."""

    async def list(
        self, kind: str, namespace: str, *, labels: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        resource = RESOURCES[kind]
        everywhere = resource.namespaced and not namespace

        def listed() -> Any:
            return self._in(namespace).all_of(_name(kind), labels=labels, everywhere=everywhere)

        found: list[Any] = await self._asked(kind, listed)
        # A list of kubectl has items that may lack what is the same for all of them.
        return [{"apiVersion": resource.api_version, "kind": kind, **one} for one in found]

    async def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        if kind == "Secret":
            return await asyncio.to_thread(self._secret, namespace, name)

        def got() -> Any:
            try:
                return self._in(namespace).get(_name(kind), name)
            except KubectlError as error:
                if "(NotFound)" in error.message:
                    return None
                raise

        found: dict[str, Any] | None = await self._asked(kind, got)
        return found

    def _secret(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return who a Secret is; what is in it is nobody's business here."""
        words = ("get", "secrets", name, "-o", "jsonpath={.metadata}")
        try:
            return {"metadata": json.loads(self._in(namespace).call(*words))}
        except KubectlError as error:
            if "(NotFound)" in error.message:
                return None
            self.unseen.append(f"Secret {name}: taken for there ({error.message})")
            return {"metadata": {"name": name, "uid": ""}}

    async def of_pods(
        self, namespace: str, cluster: str, pods: Sequence[Mapping[str, Any]]
    ) -> Reached:
        urls = addresses(pods)
        pod_of = {url: pod for pod, url in urls.items()}
        calls = BrokerCalls(
            Inside(ClusterBrokers(self._in(namespace), cluster), pod_of, self), None
        )
        return Reached(
            admin=AdminClient(calls),
            contents=Contents(calls),
            pipelines=Pipelines(calls),
            brokers=tuple(urls.values()),
            epoch=_never,
        )

    async def __call__(self, namespace: str, cluster: str) -> Reached:
        return await self.of_pods(namespace, cluster, await self.list("Pod", namespace))

    def _in(self, namespace: str) -> Kubectl:
        return Kubectl(namespace or None, self._kube.context, self._kube.kubeconfig)

    async def _asked(self, kind: str, question: Any) -> Any:
        try:
            return await asyncio.to_thread(question)
        except KubectlError as error:
            if "(Forbidden)" not in error.message:
                raise
            self.unseen.append(f"{kind}: you may not read them")
            raise BlockedError(error.message, until="the right is there") from error


class Inside(BrokerHttp):
    """Calls to brokers from inside of their pods: each is asked once, for everything."""

    def __init__(self, brokers: ClusterBrokers, pod_of: Mapping[str, str], eyes: Eyes) -> None:
        super().__init__(str)
        self._brokers, self._pod_of, self._eyes = brokers, pod_of, eyes
        self._said: dict[str, asyncio.Task[dict[str, tuple[int, Any]]]] = {}
        self._few = asyncio.Semaphore(8)

    async def call(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        query: Mapping[str, str] | None,
        body: Any,
        tls: ssl.SSLContext | None = None,
    ) -> tuple[int, Any]:
        """Return status and answer of a question; SilentError where there is none."""
        assert (method, query, body) == ("GET", None, None), "a look changes nothing"
        del headers, tls  # inside of the pod no token is asked for, and nobody listens
        scheme, _, rest = url.partition("://")
        broker, _, path = rest.partition("/")
        pod = self._pod_of[f"{scheme}://{broker}"]
        if f"/{path}" not in PATHS:
            return (await self._ask(pod, (f"/{path}",)))[f"/{path}"]
        if pod not in self._said:
            self._said[pod] = asyncio.create_task(self._ask(pod, PATHS))
        return (await self._said[pod])[f"/{path}"]

    async def _ask(self, pod: str, paths: Sequence[str]) -> dict[str, tuple[int, Any]]:
        async with self._few:
            try:
                return await asyncio.to_thread(self._brokers.ask_all, pod, paths)
            except CommandError as error:
                self._eyes.unseen.append(error.message)
                raise SilentError(error.message, delay_s=RETRY_S) from error


def _name(kind: str) -> str:
    """Return a kind as kubectl takes it whatever else is called alike."""
    resource = RESOURCES[kind]
    group, slash, _ = resource.api_version.partition("/")
    return f"{resource.plural}.{group}" if slash else resource.plural
