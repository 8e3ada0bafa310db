"""What works on one object, and what it gets to work with.

A reconciler gets keys, never events: it reads the actual state, compares it with the desired one,
does what is missing, and writes a status if that says something new. It may be stopped between any
two calls and is called again with the same key, never twice at a time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from imago_operator.errors import RetryError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from datetime import datetime

    from imago_operator.contents.port import ContentsPort
    from imago_operator.model.desired import OperatorInfo
    from imago_operator.pipelines.port import PipelinesPort
    from imago_operator.ports import AdminCalls, KubePort


class ObjectKey(NamedTuple):
    """One object of our kinds."""

    kind: str
    """As in the manifest: ImagoCluster, ImagoTopic …"""
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Reconciler(Protocol):
    """Works on the objects of one kind."""

    @property
    def kind(self) -> str:
        """The kind whose keys it gets."""

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Bring one object one step on; it may be gone already, which is no error.

        Returns in how many seconds it wants to look again by itself; None: only when something
        changes, and at the next resync. Raises RetryError, BlockedError or InvalidError; anything
        else is a bug, which is logged and tried again later.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The brokers of one cluster, as they can be reached now."""

    admin: AdminCalls
    contents: ContentsPort
    """The same brokers, as far as it is about topics, groups and moves."""
    pipelines: PipelinesPort
    """And about pipelines."""
    brokers: tuple[str, ...]
    """Base addresses (http://10.1.2.3:8080) of the pods that have one, those that are ready first;
    empty where there is no cluster of the name, or no pod of it."""
    epoch: Callable[[], Awaitable[int]]
    """The operator's epoch, for changing calls. The first call of a leader's life raises it, which
    shuts out any operator before it. RetryError while no broker with ZooKeeper answers."""


class BrokerDirectory(Protocol):
    """Finds the brokers of clusters: their addresses, and the token."""

    async def __call__(self, namespace: str, cluster: str) -> Reached:
        """Return how the brokers of a cluster are reached; RetryError if Kubernetes cannot say."""

    async def of_pods(
        self, namespace: str, cluster: str, pods: Sequence[Mapping[str, Any]]
    ) -> Reached:
        """Return the same, where the manifests of its pods are known already."""


async def nobody_tells(address: str, port: int) -> Mapping[str, Any]:
    """Stand for mirrors where there are none."""
    raise RetryError(f"{address}:{port}: nobody asks", delay_s=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What every reconciler gets."""

    kube: KubePort
    brokers: BrokerDirectory
    operator: OperatorInfo
    mirrors: Callable[[str, int], Awaitable[Mapping[str, Any]]] = nobody_tells
    """What a mirror's process, at an address and a port, says of itself. RetryError: nothing."""
    now: Callable[[], datetime]
    """Now, with a zone."""
    leading: Callable[[], None]
    """To be called before anything is taken away: ends the process when the lease has run out."""
    enqueue: Callable[[ObjectKey], None]
    """Have another object reconciled soon."""
    installation: str = "imago-system/imago-operator"
    """Namespace and name of our Lease: all processes of one installation share it."""
    namespaces: tuple[str, ...] = ("",)
    """Those that the operator works in; one that is empty stands for all."""
    release_after_s: float = 900.0
    """How long a deleted resource waits for a cluster that cannot be reached."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that never go back."""
