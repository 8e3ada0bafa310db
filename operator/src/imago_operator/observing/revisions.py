"""Pods that were made of a template that somebody had edited, and that was put back since.

Kubernetes keeps each template that a StatefulSet has had as a ControllerRevision, and says on each
pod of which it was made. Where that is not today's, though the operator's notes on both are the
same, the fields that the operator says are compared: what others add restarts nothing.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from imago_operator.errors import OperatorError
from imago_operator.model import names
from imago_operator.model.state import STATEFUL_SET

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_operator.model.state import OwnedObject
    from imago_operator.ports import KubePort

    Manifest = Mapping[str, Any]

LABEL: Final = "controller-revision-hash"
KEPT_MAX: Final = 1000


class Revisions:
    """Finds them; a revision never changes, so that each is read once."""

    def __init__(self, kube: KubePort) -> None:
        self._kube = kube
        self._specs: OrderedDict[tuple[str, str], Manifest] = OrderedDict()

    async def edited(
        self, children: Iterable[OwnedObject], pods: Iterable[Manifest]
    ) -> frozenset[str]:
        """Return the names of such pods."""
        sets = {child.name: child for child in children if child.kind == STATEFUL_SET}
        found = set()
        for pod in pods:
            owner = sets.get(pod["metadata"]["name"].rpartition("-")[0])
            if owner is not None and await self._is_edited(owner, pod["metadata"]):
                found.add(pod["metadata"]["name"])
        return frozenset(found)

    async def _is_edited(self, owner: OwnedObject, pod: Manifest) -> bool:
        mine = (pod.get("labels") or {}).get(LABEL)
        notes, status = pod.get("annotations") or {}, owner.live.get("status") or {}
        today = status.get("updateRevision")
        if mine is None or today is None or mine == today:
            return False
        if notes.get(names.TEMPLATE_HASH) != owner.annotations.get(names.TEMPLATE_HASH):
            return False  # it is of a template of ours from before
        if status.get("observedGeneration") != owner.live["metadata"].get("generation"):
            return False  # today's is not known yet
        fields = _ours(owner)
        if fields is None:
            return False
        specs = [await self._spec(pod["namespace"], name) for name in (mine, today)]
        return None not in specs and differ(fields, *specs)

    async def _spec(self, namespace: str, name: str) -> Manifest | None:
        """Return the pods' spec of a revision; None: it cannot be read."""
        key = (namespace, name)
        if key not in self._specs:
            try:
                found = await self._kube.get("ControllerRevision", namespace, name)
            except OperatorError:
                return None
            if found is None:
                return None
            self._specs[key] = _without_file(found["data"]["spec"]["template"]["spec"])
            while len(self._specs) > KEPT_MAX:
                self._specs.popitem(last=False)
        return self._specs[key]


def _without_file(spec: Manifest) -> Manifest:
    """Return the pods' spec whichever settings of ours it names: what of them needs a restart is
    among the notes.
    """
    volumes = spec.get("volumes") or ()
    other = [v for v in volumes if not names.is_config((v.get("configMap") or {}).get("name", ""))]
    return {**spec, "volumes": other}


def _ours(owner: OwnedObject) -> Manifest | None:
    """Return the fields of the pods' spec that the operator says now, as Kubernetes keeps them."""
    node: Any = next((fields for who, fields in owner.managed or () if who == names.MANAGER), None)
    for step in ("f:spec", "f:template", "f:spec"):
        node = node.get(step) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else None


def differ(fields: Manifest, one: Any, other: Any) -> bool:
    """Whether two values differ in any of these fields; none at all stand for the whole."""
    parts = {key: part for key, part in fields.items() if key != "."}
    if not parts or one is None or other is None:
        return bool(one != other)
    return any(differ(part, _at(one, key), _at(other, key)) for key, part in parts.items())


def _at(value: Any, key: str) -> Any:
    """Return a part of a value: a field, or the item of a list that has this key or value."""
    kind, _, name = key.partition(":")
    if kind == "f":
        return value.get(name) if isinstance(value, Mapping) else None
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    wanted = json.loads(name)
    if kind == "v":
        return next((item for item in items if item == wanted), None)
    return next((item for item in items if wanted.items() <= dict(item).items()), None)
