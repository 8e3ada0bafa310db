"""ImagoMirror: look, apply what is missing, ask its process, say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.belonging import claimant_of
from imago_operator.contents.conditions import ContentRefusal
from imago_operator.contents.mirrors import objects, saying
from imago_operator.errors import RetryError
from imago_operator.model import names
from imago_operator.reconcilers.attending import Attendant
from imago_operator.reconcilers.claims import ClaimLookup, status_from
from imago_operator.spec.kinds import MIRROR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_operator.contents.belonging import Manifest
    from imago_operator.contents.mirrors.saying import MirrorLook
    from imago_operator.reconcile import Context, ObjectKey
    from imago_operator.spec.mirror import MirrorPlace

AGAIN_S: Final = 15.0


class MirrorReconciler:
    """Has a mirror's process run, and tells how far it is."""

    kind: Final = MIRROR.name

    def __init__(self, context: Context) -> None:
        self._context, self._kube = context, context.kube
        self._lookup = ClaimLookup(context)
        self._attendant = Attendant(MIRROR, context, self._lookup)

    async def reconcile(self, key: ObjectKey) -> float | None:
        return await self._attendant.attend(key, self._look, self._work)

    async def _look(self, manifest: Manifest) -> MirrorLook:
        spec, me = MIRROR.read(manifest), claimant_of(manifest)
        look = saying.MirrorLook(me=me, spec=spec, status=status_from(MIRROR, manifest))
        if me.deleting or me.paused:
            return look
        for place in (spec.source, spec.target):
            if (refused := await self._refusal(manifest, place)) is not None:
                return replace(look, refusal=refused)
        labels = ",".join(f"{k}={v}" for k, v in objects.labels_of(me.name).items())
        pods = await self._kube.list("Pod", me.namespace, labels=labels)
        return replace(look, told=await self._told(pods), pods=_said(pods))

    async def _refusal(self, manifest: Manifest, place: MirrorPlace) -> ContentRefusal | None:
        """Return why one of the clusters cannot be used."""
        if (reference := place.cluster_ref) is not None:
            named = {"name": reference.name, "namespace": reference.namespace}
            of_it = {"metadata": manifest["metadata"], "spec": {"clusterRef": named}}
            if (refused := await self._lookup.refusal(of_it, reference)) is not None:
                return refused
        if place.secret_name is None or await self._keys(manifest, place):
            return None
        text = f"There is no Secret {place.secret_name} here, or nothing is in it."
        return ContentRefusal("SecretNotFound", text)

    async def _keys(self, manifest: Manifest, place: MirrorPlace) -> frozenset[str]:
        if place.secret_name is None:
            return frozenset()
        namespace = claimant_of(manifest).namespace
        found = await self._kube.get("Secret", namespace, place.secret_name)
        return frozenset((found or {}).get("data") or ())

    async def _side(self, manifest: Manifest, place: MirrorPlace) -> objects.MirrorSide:
        keys = await self._keys(manifest, place)
        namespace = claimant_of(manifest).namespace
        return objects.MirrorSide(place=place, namespace=namespace, keys=keys)

    async def _told(self, pods: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
        """Return what the process says: of several pods, one that is ready."""
        for pod in pods:
            address = (pod.get("status") or {}).get("podIP")
            if not address or "deletionTimestamp" in pod["metadata"]:
                continue
            try:
                return await self._context.mirrors(address, objects.PORT)
            except RetryError:
                continue
        return None

    async def _work(self, manifest: Manifest, look: MirrorLook) -> float | None:
        if look.me.deleting:
            return None  # its objects go with it, by their owner
        if look.refusal is None and not look.me.paused:
            await self._apply(manifest, look)
        after = saying.status_of(look, self._context.now())
        await self._attendant.voice.say(manifest, look.status, after)
        return AGAIN_S

    async def _apply(self, manifest: Manifest, look: MirrorLook) -> None:
        spec, me = look.spec, look.me
        desired = objects.DesiredMirror(
            me=me,
            spec=spec,
            source=await self._side(manifest, spec.source),
            target=await self._side(manifest, spec.target),
            operator=self._context.operator,
        )
        label = f"{names.MIRROR_LABEL}={me.name}"
        there = {
            kind: await self._kube.list(kind, me.namespace, labels=label) for kind in objects.KINDS
        }
        for made in objects.objects_of(desired):
            wanted = made["metadata"]["annotations"][names.APPLIED_HASH]
            hashes = [
                (each["metadata"].get("annotations") or {}).get(names.APPLIED_HASH)
                for each in there[made["kind"]]
            ]
            if wanted not in hashes:
                self._context.leading()
                await self._kube.apply(made)


def _said(pods: Sequence[Mapping[str, Any]]) -> str:
    """Return what the newest pod is at."""
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            last = (container.get("lastState") or {}).get("terminated") or {}
            if waiting:
                words = last.get("message") or waiting.get("message") or ""
                return f"{waiting.get('reason', 'Waiting')}: {words}"[:1000].rstrip(": \n")
    return "" if pods else "Its pod is not there yet."
