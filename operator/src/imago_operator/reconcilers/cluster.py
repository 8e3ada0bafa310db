"""ImagoCluster: look, plan, keep in mind, act, say."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from imago_operator.apply import Executor
from imago_operator.certificates.ends import ends
from imago_operator.contents.belonging import is_going
from imago_operator.errors import BlockedError, InvalidError, OperatorError, RetryError
from imago_operator.model.accepted import in_force
from imago_operator.model.desired import Desired
from imago_operator.model.state import ConditionFinding, Observed, parsed, written
from imago_operator.observing.installations import Installations, operated_by
from imago_operator.observing.observed import ClusterSeen, status_of_manifest
from imago_operator.plan import ReconcilePlan, plan
from imago_operator.plan.restarts.staging import staged
from imago_operator.plan.rows import PlanRow
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.dependents import Dependents, Told
from imago_operator.reporting.happenings import events_of
from imago_operator.reporting.service import HIBERNATED
from imago_operator.reporting.status import in_short, mistake, stalled, status_of
from imago_operator.spec.kinds import API_VERSION, CLUSTER
from imago_operator.spec.schema.common import ConditionStatus
from imago_operator.spec.schema.fields import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from imago_operator.model.desired import UnreadableSpec
    from imago_operator.model.state import RegistryView
    from imago_operator.observing.observed import Observer
    from imago_operator.reconcile import Context
    from imago_operator.spec.cluster.cluster_status import ClusterStatus

    Manifest = Mapping[str, Any]

log = logging.getLogger(__name__)

SOON_S: Final = 1.0
"""After something was done: what came of it?"""
WAIT_S: Final = 2.0
PATIENCE: Final = 0.1
"""Look again after this part of the time waited so far, up to `WAIT_MAX_S`."""
WAIT_MAX_S: Final = 15.0
BLOCKED_S: Final = 30.0
WINDOW_S: Final = 60.0
AWAY_S: Final = 20.0
"""Longer than a Lease lasts: two looks tell whether another installation still renews its own."""
STATUS_EVERY: Final = timedelta(seconds=5)
LOOK_EVERY: Final = timedelta(seconds=30)
"""What a status says is at most so old, and its reader can tell when nobody looks any more."""
CORRECTED_MAX: Final = 10
"""Events of what was put back in one look."""
REMEMBERED_MAX: Final = 2000
CLOCK: Final = slice(11, None)
"""The time of day of a moment as a status has it."""
RESTLESS: Final = frozenset({PlanRow.FAILOVER, PlanRow.REGISTRY, PlanRow.BOOTSTRAP})
"""Rows in which what is waited for shows in no object of Kubernetes."""


@dataclass(slots=True)
class _Memory:
    """What is worth keeping between two passes; losing it costs nothing but time."""

    read_as: tuple[Any, ...] = ()
    desired: Desired | UnreadableSpec | None = None
    said_at: datetime | None = None
    aside: bool = False
    """Whether it is known, and said, that another installation looks after it."""
    told: Told = field(default_factory=Told)


class ClusterReconciler:
    """Brings one cluster one step on."""

    kind: Final = CLUSTER.name

    def __init__(self, context: Context, observer: Observer, new_token: Callable[[], str]) -> None:
        self._context, self._kube = context, context.kube
        self._observer, self._new_token = observer, new_token
        self._installations = Installations(context)
        self._dependents = Dependents(context)
        self._memories: OrderedDict[ObjectKey, _Memory] = OrderedDict()
        self.seen: set[ObjectKey] = set()
        """Clusters there are; of them those that stand still, and those that are not Ready."""
        self.stalled: set[ObjectKey] = set()
        self.unready: set[ObjectKey] = set()
        self.unavailable: set[ObjectKey] = set()
        self._ends: dict[ObjectKey, dict[str, datetime]] = {}

    async def reconcile(self, key: ObjectKey) -> float | None:
        try:
            return await self._look(key)
        except OperatorError:
            raise
        except Exception as error:
            await self._report_internal_error(key, mistake(error))
            raise

    async def _look(self, key: ObjectKey) -> float | None:
        manifest = await self._kube.get(key.kind, key.namespace, key.name)
        if manifest is None:
            self._forget(key)
            return None
        memory = self._memory(key)
        if why := await self._installations.other(manifest):
            return await self._step_down(key, manifest, memory, why)
        memory.aside = False
        self.seen.add(key)
        if operated_by(manifest) != self._context.installation and not is_going(manifest):
            manifest = await self._adopt(manifest, memory)
        desired = self._desired(manifest, memory)
        if not isinstance(desired, Desired) or desired.resource.deleting:
            observed = Observed(synced=False, status=status_of_manifest(manifest))
            return await self._write_status(
                manifest, memory, desired, observed, self._plan(desired, observed)
            )
        try:
            seen = await self._observer.look(desired, manifest)
        except (BlockedError, InvalidError) as error:
            await self._report_unobservable(manifest, memory, desired, error)
            raise
        self._ends[key] = ends(seen.observed.certificates)
        await self._fence(seen)
        await self._dependents.tell(memory.told, manifest, seen.observed.certificates)
        desired = staged(desired, seen.observed)
        found = self._plan(desired, seen.observed)
        log.debug("%s: %s", key, found.explain())
        return await self._act(manifest, memory, desired, seen, found)

    async def _step_down(
        self, key: ObjectKey, manifest: Manifest, memory: _Memory, why: str
    ) -> float:
        """Leave a cluster to another installation, and say so once."""
        self._uncount(key)
        if not memory.aside:
            log.warning("%s: %s", key, why)
            await self._kube.event(manifest, "Warning", "OperatedByAnother", why)
        memory.aside = True
        return AWAY_S

    async def _adopt(self, manifest: Manifest, memory: _Memory) -> Manifest:
        """Say that the cluster is ours, before anything is done: of two that say so, one wins."""
        mine = replace(status_of_manifest(manifest), operated_by=self._context.installation)
        await self._write(manifest, memory, mine)
        memory.said_at = None
        return await self._again(manifest)

    async def _report_unobservable(
        self, manifest: Manifest, memory: _Memory, desired: Desired, error: OperatorError
    ) -> None:
        """Say why nothing is seen: a missing right must show where people look."""
        observed = Observed(synced=False, status=status_of_manifest(manifest))
        found = self._plan(desired, observed)
        said = replace(found, findings=(*found.findings, *_problems([error])))
        await self._write_status(manifest, memory, desired, observed, said)

    async def _report_internal_error(self, key: ObjectKey, found: ConditionFinding) -> None:
        """Say that a look ended in a mistake of ours, in an event and, where it can be, a status.

        It relies on as little as can be: whatever went wrong may go wrong here, too.
        """
        try:
            manifest = await self._kube.get(key.kind, key.namespace, key.name)
            if manifest is None or operated_by(manifest) != self._context.installation:
                return
            self.stalled.add(key)
            await self._kube.event(manifest, "Warning", found.reason, found.message)
            before = status_of_manifest(manifest)
            after = stalled(before, found, manifest["metadata"]["generation"], self._context.now())
            if after != before:
                await self._write(manifest, self._memory(key), after)
        except Exception:
            log.exception("%s: a defect that could not be reported", key)

    def _forget(self, key: ObjectKey) -> None:
        self._memories.pop(key, None)
        self._uncount(key)

    def _uncount(self, key: ObjectKey) -> None:
        self._ends.pop(key, None)
        for found in (self.seen, self.stalled, self.unready, self.unavailable):
            found.discard(key)

    def certificate_ends(self) -> Iterator[tuple[str, str, str, float]]:
        """Yield namespace and name of each cluster with the end of each of its certificates."""
        for key, found in list(self._ends.items()):
            for name, end in found.items():
                yield key.namespace, key.name, name, end.timestamp()

    def _count(self, key: ObjectKey, status: ClusterStatus) -> None:
        holds = {c.type for c in status.conditions if c.status is ConditionStatus.TRUE}
        for keys, belongs in (
            (self.stalled, "Stalled" in holds),
            (self.unready, holds.isdisjoint({"Ready", HIBERNATED})),
            (self.unavailable, holds.isdisjoint({"Available", HIBERNATED})),
        ):
            (keys.add if belongs else keys.discard)(key)

    def _memory(self, key: ObjectKey) -> _Memory:
        memory = self._memories.setdefault(key, _Memory())
        self._memories.move_to_end(key)
        while len(self._memories) > REMEMBERED_MAX:
            self._memories.popitem(last=False)
        return memory

    def _desired(self, manifest: Manifest, memory: _Memory) -> Desired | UnreadableSpec:
        """Read the resource; an equal one is the same value, for what is kept by it."""
        metadata = manifest["metadata"]
        read_as = (
            metadata["uid"],
            metadata.get("generation"),
            metadata.get("deletionTimestamp"),
            tuple(sorted((metadata.get("annotations") or {}).items())),
            (manifest.get("status") or {}).get("version"),
        )
        if memory.desired is None or memory.read_as != read_as:
            memory.desired = in_force(manifest, self._context.operator)
            memory.read_as = read_as
        return memory.desired

    def _plan(self, desired: Desired | UnreadableSpec, observed: Observed) -> ReconcilePlan:
        return plan(desired, observed, self._context.now())

    async def _fence(self, seen: ClusterSeen) -> None:
        """Shut out the operator before this one as soon as brokers can be told."""
        if _connected(seen.observed.registry):
            self._context.leading()
            with suppress(RetryError):
                await seen.reached.epoch()

    async def _act(
        self,
        manifest: Manifest,
        memory: _Memory,
        desired: Desired,
        seen: ClusterSeen,
        found: ReconcilePlan,
    ) -> float | None:
        before = seen.observed.status
        if found.record:
            # What later looks rely on is written down before anything is done.
            await self._write(manifest, memory, replace(before, **found.record))
            manifest = await self._again(manifest)
        drifts = self._observer.drifts
        executor = Executor(self._context, desired, seen, self._new_token, drifts)
        failed = await executor.carry_out(found.actions)
        for text in executor.corrected[:CORRECTED_MAX]:
            await self._kube.event(manifest, "Warning", "DriftCorrected", text)
        said = replace(found, findings=(*found.findings, *_problems(failed)))
        wait = await self._write_status(manifest, memory, desired, seen.observed, said)
        if failed:
            raise failed[0]
        if not seen.observed.window_open:
            return min(wait or WINDOW_S, WINDOW_S)
        return wait

    async def _write_status(
        self,
        manifest: Manifest,
        memory: _Memory,
        desired: Desired | UnreadableSpec,
        observed: Observed,
        found: ReconcilePlan,
    ) -> float | None:
        """Write the status if it says something new, and events of what changed."""
        now, before = self._context.now(), observed.status
        after = status_of(desired, observed, found, now)
        seen = isinstance(desired, Desired) and observed.synced
        after = _dated(after, observed.status, now, seen=seen)
        self._count(ObjectKey(self.kind, desired.resource.namespace, desired.resource.name), after)
        # What the last pass has written down is no news, but must not be unsaid either.
        due = memory.said_at is None or now - memory.said_at >= STATUS_EVERY or found.record
        again = _earliest(_look_again(found, _waited(after, now)), LOOK_EVERY.total_seconds())
        if after == before or not due:
            await self._events(manifest, before, before, found)
            return _earliest(again, SOON_S if after != before else None)
        await self._write(manifest, memory, after)
        await self._events(manifest, before, after, found)
        return again

    async def _write(self, manifest: Manifest, memory: _Memory, status: ClusterStatus) -> None:
        """Write a status about the very object that was read: refused if it has changed since."""
        metadata = manifest["metadata"]
        self._context.leading()
        await self._kube.apply_status(
            {
                "apiVersion": API_VERSION,
                "kind": self.kind,
                "metadata": {k: metadata[k] for k in ("name", "namespace", "resourceVersion")},
                "status": to_json(status),
            }
        )
        memory.said_at = self._context.now()

    async def _again(self, manifest: Manifest) -> Manifest:
        """Return the object after a write of ours; RetryError if it is another one by now."""
        metadata = manifest["metadata"]
        found = await self._kube.get(self.kind, metadata["namespace"], metadata["name"])
        if found is None or found["metadata"]["uid"] != metadata["uid"]:
            raise RetryError(f"{metadata['name']} is another object by now", delay_s=SOON_S)
        return found

    async def _events(
        self, manifest: Manifest, before: ClusterStatus, after: ClusterStatus, found: ReconcilePlan
    ) -> None:
        for event in events_of(before, after, found):
            await self._kube.event(manifest, event.type, event.reason, event.message)


def _dated(
    after: ClusterStatus, before: ClusterStatus, now: datetime, *, seen: bool
) -> ClusterStatus:
    """Say when it was observed: with whatever else is new, and now and then by itself.

    `seen`: whether it was observed now; else only what follows from that is said.
    """
    said = before.looked_at
    fresh = not seen or (said is not None and now - parsed(said) < LOOK_EVERY)
    if after == before and fresh:
        return after
    looked = written(now) if seen else said
    ready, serving = in_short(after)
    return replace(
        after,
        looked_at=looked,
        ready=f"{ready} at {written(now)[CLOCK]}",
        serving=f"{serving} at {written(now)[CLOCK]}",
    )


def _connected(registry: RegistryView | None) -> bool:
    return registry is not None and registry.connected


def _problems(failed: Iterable[OperatorError]) -> Iterable[ConditionFinding]:
    """Say what did not work and will not by itself."""
    for error in failed:
        if isinstance(error, BlockedError):
            yield ConditionFinding(
                type="Stalled", holds=True, reason=error.reason, message=error.told
            )
        elif isinstance(error, InvalidError):
            yield ConditionFinding(
                type="Stalled", holds=True, reason="InvalidSpec", message=str(error)
            )


def _look_again(found: ReconcilePlan, waited_s: float) -> float | None:
    """Return when to look again where no event of Kubernetes may tell."""
    if found.actions or found.record:
        return SOON_S
    if found.row is PlanRow.BLOCKED:
        return BLOCKED_S
    if found.wait is None:
        return None
    least = SOON_S if found.row in RESTLESS else WAIT_S
    return max(least, min(waited_s * PATIENCE, WAIT_MAX_S))


def _waited(status: ClusterStatus, now: datetime) -> float:
    """Return for how many seconds the same is waited for."""
    since = status.progress.since if status.progress else None
    return (now - parsed(since)).total_seconds() if since else 0.0


def _earliest(*moments: float | None) -> float | None:
    return min((moment for moment in moments if moment is not None), default=None)
