"""The operator's process: its parts are put together, started in order and stopped in reverse."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import signal
import time
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from imago_operator.brokers.http import BrokerHttp
from imago_operator.brokers.mirrors import MirrorTeller
from imago_operator.brokers.reach import BrokerFinder
from imago_operator.events import Recorder
from imago_operator.kube.access import exists, may
from imago_operator.kube.http import ApiServer
from imago_operator.kube.objects import Kubernetes
from imago_operator.kube.posting import EventSender
from imago_operator.observing.observed import Observer
from imago_operator.observing.volumes import Volumes
from imago_operator.reconcile import Context, Reconciler
from imago_operator.reconcilers.backup import BackupReconciler, ScheduledBackupReconciler
from imago_operator.reconcilers.cluster import ClusterReconciler
from imago_operator.reconcilers.group import GroupReconciler
from imago_operator.reconcilers.mirror import MirrorReconciler
from imago_operator.reconcilers.pipeline import PipelineReconciler
from imago_operator.reconcilers.rebalance import RebalanceReconciler
from imago_operator.reconcilers.topic import TopicReconciler
from imago_operator.reconcilers.user import UserReconciler
from imago_operator.runtime.audit import Audit
from imago_operator.runtime.handlers import watch
from imago_operator.runtime.lease import Leadership, LeasePlace
from imago_operator.runtime.loop import Loop, Sources
from imago_operator.runtime.metrics import Metrics
from imago_operator.runtime.watched import CHILDREN, OWN
from imago_operator.runtime.web import serving

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from imago_operator.kube.credentials import Credentials
    from imago_operator.model.desired import OperatorInfo
    from imago_operator.reconcile import ObjectKey
    from imago_operator.runtime.watched import Watched

log = logging.getLogger(__name__)

FENCED: Final = 5
"""Exit code of a process that may no longer work, since another has taken over."""
ENDED: Final = 1
STOP_S: Final = 6.0
"""How long a part may take to end."""


def _clusters(context: Context) -> Reconciler:
    observer = Observer(context, Volumes(context.kube, context.clock))
    return ClusterReconciler(context, observer, lambda: secrets.token_urlsafe(32))


def _users(context: Context) -> Reconciler:
    return UserReconciler(context, lambda: secrets.token_urlsafe(24))


RECONCILERS: Final[tuple[Callable[[Context], Reconciler], ...]] = (
    _clusters,
    TopicReconciler,
    GroupReconciler,
    PipelineReconciler,
    RebalanceReconciler,
    BackupReconciler,
    ScheduledBackupReconciler,
    MirrorReconciler,
    _users,
)
"""One line for each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's options."""

    credentials: Credentials
    operator: OperatorInfo
    lease: LeasePlace
    namespaces: tuple[str, ...] = ()
    """Those to work in; empty: all."""
    host: str = "0.0.0.0"  # noqa: S104  the pod's own
    port: int = 8080
    release_after_s: float = 900.0


class StartError(Exception):
    """The operator cannot begin; the message says why, `cure` what helps."""

    def __init__(self, message: str, cure: str) -> None:
        super().__init__(message)
        self.cure = cure


async def run(settings: Settings, announce: Callable[[int], None] = lambda _: None) -> int:
    """Run until SIGTERM; return the exit code. `announce`: told the port of our own HTTP."""
    stop = asyncio.Event()
    _heed_signals(stop)
    async with AsyncExitStack() as stack:
        operator = await Operator.made(settings, stack)
        try:
            port = await stack.enter_async_context(operator.serving())
        except OSError as error:
            raise StartError(
                f"--listen {settings.host}:{settings.port}: {error.strerror}",
                "stop what uses it, or choose another",
            ) from error
        announce(port)
        return await operator.work(stop)


def _heed_signals(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


class Operator:
    """All parts of a running operator."""

    def __init__(
        self,
        settings: Settings,
        api: ApiServer,
        lease_api: ApiServer,
        http: BrokerHttp,
        metrics: Metrics,
    ) -> None:
        """`lease_api`: a session of its own, so that no renewal waits for calls of the work."""
        self._settings, self._api, self._metrics = settings, api, metrics
        sender = EventSender(api)
        self._recorder = Recorder(
            sender, now, lambda: uuid.uuid4().hex[:16], identity=settings.lease.identity
        )
        self.kube = Kubernetes(api, self._recorder, clock=clock)
        self.leadership = Leadership(lease_api, settings.lease, clock=clock, now=now, lost=end)
        self.context = Context(
            kube=self.kube,
            brokers=BrokerFinder(self.kube, http),
            mirrors=MirrorTeller(http),
            operator=settings.operator,
            now=now,
            leading=self.leadership.check,
            enqueue=self._enqueue,
            clock=clock,
            installation=f"{settings.lease.namespace}/{settings.lease.name}",
            namespaces=settings.namespaces or ("",),
            release_after_s=settings.release_after_s,
        )
        sources = Sources(clock=clock, random=random.random)
        self.reconcilers = [make(self.context) for make in RECONCILERS]
        self.loop = Loop(self.reconcilers, sources, metrics)
        self.audit = Audit(self.kube, self.loop, settings.namespaces, now)
        self._ready = asyncio.Event()
        self._waits = False
        self._measure()

    @classmethod
    async def made(cls, settings: Settings, stack: AsyncExitStack) -> Operator:
        """Return an operator whose sessions are closed with the stack."""
        metrics = Metrics(time.time)
        api, lease_api = [
            await stack.enter_async_context(ApiServer(settings.credentials, counted=metrics.called))
            for _ in range(2)
        ]
        http = await stack.enter_async_context(BrokerHttp(lambda: uuid.uuid4().hex))
        return cls(settings, api, lease_api, http, metrics)

    def _measure(self) -> None:
        self._metrics.watch_work(lambda: self.loop.depth, self.loop.running)
        self._metrics.watch_leader(lambda: self.leadership.held)
        self._metrics.watch_events(lambda: self._recorder.suppressed)
        found = (r for r in self.reconcilers if isinstance(r, ClusterReconciler))
        clusters = next(found)
        self._metrics.watch_clusters(
            lambda: len(clusters.seen),
            lambda: len(clusters.stalled),
            lambda: len(clusters.unready),
            lambda: len(clusters.unavailable),
        )
        self._metrics.watch_certificates(clusters.certificate_ends)

    def _enqueue(self, key: ObjectKey) -> None:
        self.loop.enqueue(key)

    def serving(self) -> AbstractAsyncContextManager[int]:
        """Return our own HTTP, to be entered."""
        settings = self._settings
        return serving(
            settings.host,
            settings.port,
            self._metrics.registry,
            ill=self.ill,
            unready=self.unready,
        )

    def ill(self) -> list[str]:
        """Return why the process should be started anew."""
        stuck = [f"{key} does not return" for key in self.loop.stuck()]
        return stuck + [f"no watch has reported {key}" for key in self.audit.missed]

    def unready(self) -> list[str]:
        """Return why the process does not do its part: work, or wait for the lease."""
        return [] if self._waits or self._ready.is_set() else ["starting"]

    async def work(self, stop: asyncio.Event) -> int:
        """Wait for the lease, then work until `stop`; the exit code says whether all went well."""
        kinds = await self._allowed_kinds()
        self._waits = True
        stopping = asyncio.create_task(stop.wait(), name="stop")
        leading = asyncio.create_task(self.leadership.acquire(), name="lease")
        await asyncio.wait({stopping, leading}, return_when=asyncio.FIRST_COMPLETED)
        self._waits = False
        if not leading.done():
            leading.cancel()
            return 0
        watches = asyncio.create_task(self._watch(stop, kinds), name="watches")
        work = {
            asyncio.create_task(self.leadership.keep(), name="lease"),
            asyncio.create_task(self.loop.run(), name="work"),
            asyncio.create_task(self.audit.run(), name="audit"),
        }
        await asyncio.wait({stopping, watches, *work}, return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in (watches, *work) if task.done()]
        for task in failed:
            log.error("%s ended: the process starts anew", task.get_name(), exc_info=_error(task))
        await _ended(work)
        await self.leadership.release()
        await _ended({watches})
        return ENDED if failed else 0

    async def _watch(self, stop: asyncio.Event, kinds: frozenset[str]) -> None:
        await watch(
            self.loop,
            self._settings.credentials,
            namespaces=self._settings.namespaces,
            kinds=kinds,
            ready=self._ready,
            began=lambda: _heed_signals(stop),
        )

    async def _allowed_kinds(self) -> frozenset[str]:
        """Return the kinds that can be watched; StartError where one that is needed cannot."""
        found = set()
        for watched in (*OWN, *CHILDREN):
            if watched in OWN and watched.kind not in self.loop.kinds:
                continue
            there = await exists(self._api, watched.group, watched.version, watched.plural)
            if there and await self._may_watch(watched):
                found.add(watched.kind)
            elif not watched.optional:
                raise StartError(*_missing(watched, there, self._settings.namespaces))
        return frozenset(found)

    async def _may_watch(self, watched: Watched) -> bool:
        for namespace in self._settings.namespaces or ("",):
            for verb in ("list", "watch"):
                if not await may(self._api, verb, watched.group, watched.plural, namespace):
                    return False
        return True


def _missing(watched: Watched, there: bool, namespaces: tuple[str, ...]) -> tuple[str, str]:
    if not there:
        return f"Kubernetes has no {watched.plural}.{watched.group}", "apply manifests/crds first"
    where = ", ".join(namespaces) or "all namespaces"
    return (
        f"this account may not list and watch {watched.plural} in {where}",
        "grant the rights of the chart's role, or name other namespaces by --namespaces",
    )


async def _ended(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel tasks and wait for their end, though not for ever."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=STOP_S)


def _error(task: asyncio.Task[object]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


def now() -> datetime:
    return datetime.now(UTC)


def clock() -> float:
    """Return seconds that go on while the process or the machine is stopped."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def end(reason: str) -> None:
    """End the process at once: nothing it has begun may go on."""
    log.critical("%s: the process ends at once", reason)
    logging.shutdown()
    os._exit(FENCED)
