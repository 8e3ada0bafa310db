"""Whether the watches still tell of everything: a list is compared with what they have told."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from imago_operator.errors import OperatorError
from imago_operator.runtime.watched import OWN, key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from imago_operator.kube.objects import Kubernetes
    from imago_operator.reconcile import ObjectKey
    from imago_operator.runtime.loop import Loop

log = logging.getLogger(__name__)

EVERY_S: Final = 300.0
AGAIN_S: Final = 10.0
"""Until the next look, as long as something is missed."""
GRACE: Final = timedelta(seconds=30)


class Audit:
    """Finds objects that no watch has reported."""

    def __init__(
        self,
        kube: Kubernetes,
        loop: Loop,
        namespaces: Sequence[str],
        now: Callable[[], datetime],
    ) -> None:
        self._kube, self._loop, self._now = kube, loop, now
        self._namespaces = tuple(namespaces) or ("",)
        self._missed: list[ObjectKey] = []

    @property
    def missed(self) -> list[ObjectKey]:
        """What was there at the last look, and no watch has reported since."""
        return [key for key in self._missed if key not in self._loop.known]

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_S if self.missed else EVERY_S)
            try:
                self._missed = await self.look()
            except OperatorError as error:
                log.warning("audit: %s", error)
            if self.missed:
                log.error("no watch has reported %s", ", ".join(map(str, self.missed[:10])))

    async def look(self) -> list[ObjectKey]:
        """Return objects that are older than a moment, and not known.

        Each is asked for by its name: it may have gone since it was listed.
        """
        found: list[ObjectKey] = []
        for watched in OWN:
            if watched.kind not in self._loop.kinds:
                continue
            for namespace in self._namespaces:
                items = await self._kube.list(watched.kind, namespace, metadata_only=True)
                old = [item for item in items if self._is_old(item["metadata"])]
                keys = [key_of(watched.kind, item) for item in old]
                found += [key for key in keys if key not in self._loop.known]
        return [key for key in found if await self._is_there(key)]

    async def _is_there(self, key: ObjectKey) -> bool:
        item = await self._kube.get(key.kind, key.namespace, key.name)
        return item is not None and self._is_old(item["metadata"])

    def _is_old(self, metadata: object) -> bool:
        assert isinstance(metadata, dict)
        made = datetime.fromisoformat(metadata["creationTimestamp"])
        return self._now() - made > GRACE
