"""How one object is attended to: read, planned, worked on; obstacles are reported.

Nothing stands still without a word: a spec that is wrong, a right that the operator lacks and a
mistake of its own show in the object's status, or, where even that may not be written, in an event.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from imago_operator.contents.belonging import claimant_of
from imago_operator.contents.conditions import ContentRefusal, conditions, holds
from imago_operator.contents.leaving import Leaving
from imago_operator.errors import BlockedError, InvalidError, OperatorError, RetryError
from imago_operator.reconcilers.claims import Voice, status_from
from imago_operator.reporting.status import mistake

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from imago_operator.contents.belonging import Manifest
    from imago_operator.model.state import ConditionFinding
    from imago_operator.reconcile import Context, ObjectKey
    from imago_operator.reconcilers.claims import ClaimLookup
    from imago_operator.spec.kinds import Kind

log = logging.getLogger(__name__)

AWAY_S: Final = 60.0
"""When to look again whether another installation still looks after the cluster."""
LookT = TypeVar("LookT")


class Attendant:
    """Attends to the objects of one kind."""

    def __init__(self, kind: Kind[Any], context: Context, lookup: ClaimLookup) -> None:
        self._kind, self._context, self._lookup = kind, context, lookup
        self.voice = Voice(context)

    async def attend(
        self,
        key: ObjectKey,
        look: Callable[[Manifest], Awaitable[LookT]],
        work: Callable[[Manifest, LookT], Awaitable[float | None]],
    ) -> float | None:
        """Return when to reconcile the object again, as `Reconciler.reconcile` does.

        `look` raises InvalidError where the spec is wrong; both raise BlockedError where Kubernetes
        refuses something.
        """
        manifest = await self._context.kube.get(key.kind, key.namespace, key.name)
        if manifest is None:
            return None
        try:
            if why := await self._lookup.elsewhere(manifest):
                log.debug("%s: %s", key, why)
                return AWAY_S
            try:
                seen = await look(manifest)
            except InvalidError as error:
                await self._refuse(manifest, str(error))
                return None
            return await work(manifest, seen)
        except BlockedError as error:
            refusal = ContentRefusal(error.reason, error.told)
            stalled = holds("Stalled", error.reason, error.told)
            await self._stall(key, manifest, stalled, refusal.finding)
            raise
        except OperatorError:
            raise
        except Exception as error:
            await self._stall(key, manifest, mistake(error))
            raise

    async def _refuse(self, manifest: Manifest, problem: str) -> None:
        """Say what is wrong; one that is being deleted goes, and what it is about stays."""
        me = claimant_of(manifest)
        if not me.deleting:
            await self._write_status(manifest, ContentRefusal("InvalidSpec", problem).finding)
        elif me.held:
            why = Leaving("Retained", f"It stays: {problem}", release=True, warning=True)
            await self.voice.release(manifest, why)

    async def _stall(self, key: ObjectKey, manifest: Manifest, *found: ConditionFinding) -> None:
        """Say what keeps the object from its end; the first finding stands for all."""
        with suppress(RetryError):
            try:
                # What this very look has written down must not be unsaid.
                now = await self._context.kube.get(key.kind, key.namespace, key.name)
                if now is not None and now["metadata"]["uid"] == manifest["metadata"]["uid"]:
                    await self._write_status(now, *found)
            except Exception as error:
                if isinstance(error, RetryError):
                    raise
                # A status that cannot be read may be what went wrong.
                await self.voice.call_out(manifest, found[0].reason, found[0].message)

    async def _write_status(self, manifest: Manifest, *found: ConditionFinding) -> None:
        me, before = claimant_of(manifest), status_from(self._kind, manifest)
        said = conditions(found, before.conditions, me.generation, self._context.now())
        after = replace(before, observed_generation=me.generation, conditions=said)
        await self.voice.say(manifest, before, after)
