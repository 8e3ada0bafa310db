"""Users whose Secrets say something of a cluster: looked at again once it says something else.

Users are not watched for it: their own resources do not change. A look at one takes what a few
seconds before was known of its cluster, so all of them are looked at twice, the second time when
nothing older is remembered.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.belonging import cluster_of
from imago_operator.contents.connecting import checks_rights, entries_of, super_users
from imago_operator.errors import OperatorError
from imago_operator.model.desired import fingerprint
from imago_operator.reconcile import ObjectKey
from imago_operator.reconcilers.claims import SHARED_S
from imago_operator.spec.kinds import USER

if TYPE_CHECKING:
    from imago_operator.certificates.state import SeenCertificates
    from imago_operator.contents.belonging import Manifest
    from imago_operator.reconcile import Context

log = logging.getLogger(__name__)

FORGOTTEN: Final = timedelta(seconds=SHARED_S)


@dataclass(slots=True)
class Told:
    """What the users of a cluster were told last; losing it costs nothing: all are looked at."""

    mark: str = ""
    since: datetime | None = None
    """When it changed; None: all have heard of it."""


class Dependents:
    """Looks at users again."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def tell(self, told: Told, cluster: Manifest, seen: SeenCertificates | None) -> None:
        """Have users looked at if what their Secrets are to say is not what they were told."""
        mark, now = mark_of(cluster, seen), self._context.now()
        if not told.mark:
            told.mark = mark
        if told.mark != mark:
            told.mark, told.since = mark, now
        elif told.since is None or now - told.since <= FORGOTTEN:
            return
        else:
            told.since = None
        try:
            await self._wake(cluster)
        except OperatorError as error:
            log.info("users of %s: %s", cluster["metadata"]["name"], error)
            told.since = told.since or now

    async def _wake(self, cluster: Manifest) -> None:
        metadata = cluster["metadata"]
        place = (metadata.get("namespace", "default"), metadata["name"])
        for namespace in self._context.namespaces:
            for found in await self._context.kube.list(USER.name, namespace):
                if cluster_of(found) == place:
                    one = found["metadata"]
                    self._context.enqueue(ObjectKey(USER.name, one["namespace"], one["name"]))


def mark_of(cluster: Manifest, seen: SeenCertificates | None) -> str:
    """Return a fingerprint of all that a look at a user takes from its cluster."""
    shards = [n for n in seen.members if isinstance(n, int)] if seen is not None else []
    clients = seen.clients if seen is not None else None
    authority = clients.authority if clients is not None else None
    said: list[Any] = [
        entries_of(cluster),
        checks_rights(cluster),
        sorted(super_users(cluster)),
        [seen.members[n].trusted for n in sorted(shards)] if seen is not None else [],
        [clients.trusted if clients else "", authority.signer if authority else ""],
    ]
    return fingerprint(said)
