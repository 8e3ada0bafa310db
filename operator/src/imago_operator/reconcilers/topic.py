"""ImagoTopic: look, plan, do, say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from imago_operator.contents import topics
from imago_operator.contents.belonging import claimant_of, cluster_of
from imago_operator.errors import RetryError
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.attending import Attendant
from imago_operator.reconcilers.claims import ClaimLookup, content_name, problem_of, status_from
from imago_operator.reconcilers.recent import Listings
from imago_operator.reconcilers.waiting import WaitingObjects
from imago_operator.spec.kinds import TOPIC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.contents.belonging import Manifest, Place
    from imago_operator.contents.conditions import ContentRefusal
    from imago_operator.contents.topics import TopicLook, TopicPlan
    from imago_operator.contents.values import SeenTopic
    from imago_operator.reconcile import Context

LISTING_S: Final = 5.0
SOON_S: Final = 2.0
"""After something was done: what does the registry say of it?"""
SILENT_S: Final = 10.0
REFUSED_S: Final = 30.0


class TopicReconciler:
    """Brings one topic one step on. One list of a cluster's topics serves all of a pass."""

    kind: Final = TOPIC.name

    def __init__(self, context: Context) -> None:
        self._context, self._lookup = context, ClaimLookup(context)
        self._attendant = Attendant(TOPIC, context, self._lookup)
        self._voice = self._attendant.voice
        self._lists: Listings[Mapping[str, SeenTopic]] = Listings(context.now, age_s=LISTING_S)
        self._waiting = WaitingObjects(context.enqueue)

    async def reconcile(self, key: ObjectKey) -> float | None:
        self._waiting.forget(key)
        return await self._attendant.attend(key, self._look, self._work)

    async def _look(self, manifest: Manifest) -> TopicLook:
        spec, me = TOPIC.read(manifest), claimant_of(manifest)
        name, place = content_name(manifest, "topicName"), cluster_of(manifest)
        refused = await self._lookup.refusal(manifest, spec.cluster_ref)
        listing = None if refused else await self._topics(place, name)
        return topics.TopicLook(
            me=me,
            spec=spec,
            name=name,
            status=status_from(TOPIC, manifest),
            refusal=refused,
            rivals=await self._lookup.rivals(TOPIC, me, manifest),
            listed=listing is not None,
            topic=listing.get(name) if listing else None,
        )

    async def _topics(self, place: Place, name: str) -> Mapping[str, SeenTopic] | None:
        """Return the topics of a cluster; None: no broker could tell."""

        async def ask() -> Mapping[str, SeenTopic]:
            reached = await self._lookup.reached(place)
            return await reached.contents.topics(reached.brokers)

        try:
            return await self._lists.get(place, name, ask)
        except RetryError:
            return None

    async def _work(self, manifest: Manifest, look: TopicLook) -> float | None:
        key = ObjectKey(self.kind, look.me.namespace, look.me.name)
        self._waiting.note(cluster_of(manifest), key, answered=look.listed)
        now, limit = self._context.now(), self._context.release_after_s
        planned = topics.plan(look, now, release_after_s=limit)
        if planned.record is not None:
            await self._voice.write(manifest, planned.record)
            return 0.0
        if await self._voice.settle(manifest, planned):
            return None
        problem = await self._act(manifest, look, planned)
        done = planned.act is not None and problem is None
        after = topics.status_of(look, planned, self._context.now(), done=done, problem=problem)
        await self._voice.say(manifest, look.status, after)
        return _look_again(look, planned, problem)

    async def _act(
        self, manifest: Manifest, look: TopicLook, planned: TopicPlan
    ) -> ContentRefusal | None:
        """Have brokers do it; return why they did not."""
        if planned.act is None:
            return None
        place = cluster_of(manifest)
        self._context.leading()
        problem = await problem_of(self._have_done(place, look.name, planned.act))
        if problem is None:
            self._lists.note_change(place, look.name)
        return problem

    async def _have_done(
        self, place: Place, name: str, act: topics.PutTopic | topics.DeleteTopic
    ) -> None:
        reached = await self._lookup.reached(place)
        epoch = await reached.epoch()
        if isinstance(act, topics.PutTopic):
            await reached.contents.put_topic(reached.brokers, name, act.body, operator_epoch=epoch)
        else:
            await reached.contents.delete_topic(reached.brokers, name, operator_epoch=epoch)


def _look_again(
    look: TopicLook, planned: TopicPlan, problem: ContentRefusal | None
) -> float | None:
    if problem is not None:
        return REFUSED_S if problem.reason == "BrokerRejected" else SILENT_S
    if planned.act is not None:
        return SOON_S
    if look.refusal is not None:
        return None if look.me.deleting else REFUSED_S
    if look.owner is not look.me and not look.me.deleting:
        return REFUSED_S
    return SILENT_S if not look.listed or look.me.deleting else None
