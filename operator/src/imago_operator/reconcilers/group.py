"""ImagoConsumerGroup: look, plan, do, say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_operator.contents import groups
from imago_operator.contents.belonging import claimant_of, cluster_of
from imago_operator.contents.conditions import holds
from imago_operator.errors import BlockedError, InvalidError, RetryError
from imago_operator.reconcilers.attending import Attendant
from imago_operator.reconcilers.claims import ClaimLookup, content_name, problem_of, status_from
from imago_operator.reconcilers.recent import Recent
from imago_operator.spec.kinds import CONSUMER_GROUP

if TYPE_CHECKING:
    from imago_operator.contents.belonging import Manifest, Place
    from imago_operator.contents.conditions import ContentRefusal
    from imago_operator.contents.groups import GroupLook, GroupPlan, ResetGroup
    from imago_operator.contents.values import SeenGroups
    from imago_operator.reconcile import Context, ObjectKey
    from imago_operator.spec.group import LastReset, ResetRequest

LISTING_S: Final = 10.0
LAG_S: Final = 30.0
"""How often lags are read: no event in Kubernetes reports them."""
SOON_S: Final = 1.0
WAIT_S: Final = 5.0
SILENT_S: Final = 10.0
REFUSED_S: Final = 30.0


class GroupReconciler:
    """Brings one group one step on. One question about all groups of a cluster serves a pass."""

    kind: Final = CONSUMER_GROUP.name

    def __init__(self, context: Context) -> None:
        self._context, self._lookup = context, ClaimLookup(context)
        self._attendant = Attendant(CONSUMER_GROUP, context, self._lookup)
        self._voice = self._attendant.voice
        self._lists: Recent[Place, tuple[frozenset[str], SeenGroups]] = Recent(
            context.now, age_s=LISTING_S
        )

    async def reconcile(self, key: ObjectKey) -> float | None:
        return await self._attendant.attend(key, self._look, self._work)

    async def _look(self, manifest: Manifest) -> GroupLook:
        spec, me = CONSUMER_GROUP.read(manifest), claimant_of(manifest)
        status = status_from(CONSUMER_GROUP, manifest)
        name, place = content_name(manifest, "groupName"), cluster_of(manifest)
        refused = await self._lookup.refusal(manifest, spec.cluster_ref)
        urgent = me.deleting or (
            spec.reset is not None and not _is_over(spec.reset, status.last_reset)
        )
        listing = None if refused else await self._groups(place, name, urgent=urgent)
        return groups.GroupLook(
            me=me,
            spec=spec,
            name=name,
            status=status,
            refusal=refused,
            rivals=await self._lookup.rivals(CONSUMER_GROUP, me, manifest),
            listed=listing is not None,
            missing=listing.missing if listing else (),
            group=listing.groups.get(name) if listing else None,
        )

    async def _groups(self, place: Place, name: str, *, urgent: bool) -> SeenGroups | None:
        """Return the groups that resources of a cluster are about; None: no broker could tell.

        `urgent`: who consumes decides what is done, so an answer of before does not do.
        """

        async def ask() -> tuple[frozenset[str], SeenGroups]:
            known = (await self._lookup.index(CONSUMER_GROUP)).by_content
            names = {about for where, about in known if where == place} | {name}
            reached = await self._lookup.reached(place)
            return frozenset(names), await reached.contents.groups(reached.brokers, names)

        try:
            if urgent:
                reached = await self._lookup.reached(place)
                return await reached.contents.groups(reached.brokers, {name})
            return (await self._lists.get(place, ask, fits=lambda found: name in found[0]))[1]
        except RetryError:
            return None

    async def _work(self, manifest: Manifest, look: GroupLook) -> float | None:
        now, limit = self._context.now(), self._context.release_after_s
        planned = groups.plan(look, now, release_after_s=limit)
        if await self._voice.settle(manifest, planned):
            return None
        problem = await self._act(manifest, look, planned)
        last: LastReset | None = None
        if planned.reset is not None and problem is None:
            try:
                last = await self._reset(manifest, look, planned.reset)
            except (RetryError, BlockedError) as error:
                said = holds("ResetPending", "BrokerRejected", str(error))
                planned = replace(planned, findings=(*planned.findings, said))
        now = self._context.now()
        after = groups.status_of(look, planned, now, problem=problem, last=last)
        await self._voice.say(manifest, look.status, after)
        return _look_again(look, planned, problem, finished=last is not None)

    async def _act(
        self, manifest: Manifest, look: GroupLook, planned: GroupPlan
    ) -> ContentRefusal | None:
        if planned.act is None:
            return None
        self._context.leading()
        return await problem_of(self._have_done(cluster_of(manifest), look.name, planned.act))

    async def _have_done(
        self, place: Place, name: str, act: groups.PutGroup | groups.DeleteGroup
    ) -> None:
        reached = await self._lookup.reached(place)
        epoch, calls = await reached.epoch(), reached.contents
        if isinstance(act, groups.PutGroup):
            await calls.put_group(reached.brokers, name, act.body, operator_epoch=epoch)
        else:
            await calls.delete_group(reached.brokers, name, operator_epoch=epoch)

    async def _reset(self, manifest: Manifest, look: GroupLook, reset: ResetGroup) -> LastReset:
        """Set the offsets of all topics; one that brokers refuse keeps none of the others."""
        self._context.leading()
        reached = await self._lookup.reached(cluster_of(manifest))
        epoch = await reached.epoch()
        problems: dict[str, str] = {}
        for topic in reset.topics:
            try:
                await reached.contents.reset_group(
                    reached.brokers, look.name, topic, reset.to, operator_epoch=epoch
                )
            except InvalidError as error:
                problems[topic] = str(error)
        return groups.finished(look, problems, self._context.now())


def _is_over(reset: ResetRequest, last: LastReset | None) -> bool:
    same = last is not None and last.request_id == reset.request_id
    return same and last is not None and last.result != groups.STARTED


def _look_again(
    look: GroupLook, planned: GroupPlan, problem: ContentRefusal | None, *, finished: bool
) -> float | None:
    if look.refusal is not None:
        return None if look.me.deleting else REFUSED_S
    if problem is not None or not look.listed:
        return SILENT_S
    if finished or planned.record is not None or planned.act is not None:
        return SOON_S
    if look.me.deleting or any(f.type == "ResetPending" for f in planned.findings):
        return WAIT_S
    return LAG_S
