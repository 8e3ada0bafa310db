"""ImagoRebalance: look, plan, write down, do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from imago_operator.contents import moves
from imago_operator.contents.belonging import claimant_of, cluster_of
from imago_operator.errors import OperatorError, RetryError, TakenBackError
from imago_operator.reconcilers.attending import Attendant
from imago_operator.reconcilers.claims import ClaimLookup, content_name, status_from
from imago_operator.spec.kinds import REBALANCE, TOPIC
from imago_operator.spec.rebalance import Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.contents.belonging import Manifest, Place
    from imago_operator.contents.moves import RebalanceLook, RebalancePlan, Step
    from imago_operator.contents.values import SeenShard, SeenTopic
    from imago_operator.reconcile import Context, ObjectKey, Reached

SOON_S: Final = 1.0
WAIT_S: Final = 3.0
SILENT_S: Final = 10.0
REFUSED_S: Final = 30.0


class RebalanceReconciler:
    """Brings one rebalance one step on; whatever was done shows in topics and shards."""

    kind: Final = REBALANCE.name

    def __init__(self, context: Context) -> None:
        self._context, self._lookup = context, ClaimLookup(context)
        self._attendant = Attendant(REBALANCE, context, self._lookup)
        self._voice = self._attendant.voice

    async def reconcile(self, key: ObjectKey) -> float | None:
        return await self._attendant.attend(key, self._look, self._work)

    async def _work(self, manifest: Manifest, look: RebalanceLook | None) -> float | None:
        if look is None:
            return None
        planned = moves.plan(look, self._context.now())
        await self._voice.say(manifest, look.status, planned.status)
        if planned.steps:
            return await self._carry_out(manifest, look, planned)
        if look.refusal is not None or not look.listed:
            return SILENT_S
        if not planned.again:
            return None
        return 0.0 if planned.status.phase is Phase.APPROVED else WAIT_S

    async def _look(self, manifest: Manifest) -> RebalanceLook | None:
        """Return what there is; None: the rebalance is over."""
        if _is_over(manifest):
            return None
        spec, place = REBALANCE.read(manifest), cluster_of(manifest)
        refused = await self._lookup.refusal(manifest, spec.cluster_ref)
        seen = None if refused else await self._seen(place)
        topics, shards = seen or ({}, {})
        return moves.RebalanceLook(
            me=claimant_of(manifest),
            spec=spec,
            status=status_from(REBALANCE, manifest),
            refusal=refused,
            listed=seen is not None,
            topics=topics,
            shards=shards,
            placed=await self._placed(place),
        )

    async def _seen(
        self, place: Place
    ) -> tuple[Mapping[str, SeenTopic], Mapping[int, SeenShard]] | None:
        try:
            reached = await self._lookup.reached(place)
            return await asyncio.gather(
                reached.contents.topics(reached.brokers), reached.contents.shards(reached.brokers)
            )
        except RetryError:
            return None

    async def _placed(self, place: Place) -> frozenset[str]:
        """Return topics of which an ImagoTopic says on which shards they are."""
        return frozenset(
            content_name(one, "topicName")
            for one in (await self._lookup.index(TOPIC)).manifests
            if cluster_of(one) == place and any((one["spec"].get("placement") or {}).values())
        )

    async def _carry_out(
        self, manifest: Manifest, look: RebalanceLook, planned: RebalancePlan
    ) -> float:
        self._context.leading()
        reached = await self._lookup.reached(cluster_of(manifest))
        epoch = await reached.epoch()
        done = await asyncio.gather(
            *(_have_done(reached, look, step, epoch) for step in planned.steps),
            return_exceptions=True,
        )
        problems = [found for found in done if isinstance(found, BaseException)]
        if not problems:
            return SOON_S
        bugs = [found for found in problems if not isinstance(found, OperatorError)]
        if bugs:
            raise bugs[0]
        return await self._failed(manifest, look, planned, problems[0])

    async def _failed(
        self,
        manifest: Manifest,
        look: RebalanceLook,
        planned: RebalancePlan,
        problem: BaseException,
    ) -> float:
        now = self._context.now()
        if isinstance(problem, TakenBackError):
            over = moves.failed(look, "TakenBack", str(problem), now)
            await self._voice.say(manifest, planned.status, over.status)
            return REFUSED_S
        said = moves.refused(look, planned, str(problem), now)
        await self._voice.say(manifest, planned.status, said)
        return SILENT_S if isinstance(problem, RetryError) else REFUSED_S


async def _have_done(reached: Reached, look: RebalanceLook, step: Step, epoch: int) -> None:
    calls, brokers = reached.contents, reached.brokers
    match step:
        case moves.DrainShard(shard, move):
            await calls.drain(
                brokers, shard, request_id=look.me.uid, move=move, operator_epoch=epoch
            )
        case moves.Undrain(shard):
            await calls.undrain(brokers, shard, operator_epoch=epoch)
        case moves.Spread(topic, to):
            await calls.spread(brokers, topic, to, operator_epoch=epoch)
        case moves.LeaveShard(topic, shard, move):
            leave = calls.move if move else calls.seal
            await leave(brokers, topic, shard, operator_epoch=epoch)


def _is_over(manifest: Manifest) -> bool:
    return (manifest.get("status") or {}).get("phase") in {Phase.SUCCEEDED, Phase.FAILED}
