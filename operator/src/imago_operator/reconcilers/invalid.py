"""A resource whose spec is wrong: nothing is done about it, and that is said."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from imago_operator.contents.belonging import claimant_of
from imago_operator.contents.conditions import Refusal, conditions
from imago_operator.contents.leaving import Leaving
from imago_operator.reconcilers.claims import status_from

if TYPE_CHECKING:
    from datetime import datetime

    from imago_operator.contents.belonging import Manifest
    from imago_operator.reconcilers.claims import Voice
    from imago_operator.spec.kinds import Kind


async def refuse(
    kind: Kind[Any], voice: Voice, manifest: Manifest, problem: str, now: datetime
) -> None:
    """Say what is wrong; one that is being deleted goes, and what it is about stays."""
    me, before = claimant_of(manifest), status_from(kind, manifest)
    if me.deleting:
        if me.held:
            why = Leaving("Retained", f"It stays: {problem}", release=True, warning=True)
            await voice.release(manifest, why)
        return
    found = (Refusal("InvalidSpec", problem).finding,)
    said = conditions(found, before.conditions, me.generation, now)
    after = replace(before, observed_generation=me.generation, conditions=said)
    await voice.say(manifest, before, after)
