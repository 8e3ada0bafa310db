"""Which installation of the operator looks after a cluster: one, however many there are.

An installation is its Lease: namespace and name. The first that observes a cluster puts itself into
the cluster's status, before it does anything else; the others do nothing to the cluster as long as
it lives. It lives while it renews its Lease; where that cannot be seen, it counts as living, and a
person says by an annotation who is to go on.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from imago_operator.errors import BlockedError
from imago_operator.model import names
from imago_operator.model.renewals import Renewals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.reconcile import Context

LEASE: Final = "Lease"
REMEMBERED_MAX: Final = 1000


class Installations:
    """Tells who else looks after a cluster."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._renewals: OrderedDict[str, Renewals] = OrderedDict()

    async def other(self, cluster: Mapping[str, Any]) -> str | None:
        """Return why a cluster is another installation's, and what helps; None: it is ours."""
        mine = self._context.installation
        chosen = (cluster["metadata"].get("annotations") or {}).get(names.OPERATED_BY)
        named = chosen or operated_by(cluster)
        if named in (None, mine):
            return None
        seen = "is to look" if chosen else await self._living(named)
        return None if seen is None else _told(cluster["metadata"]["name"], named, seen, mine)

    async def _living(self, named: str) -> str | None:
        """Return what is known of an installation that looks after a cluster; None: it is over."""
        namespace, _, name = named.partition("/")
        try:
            lease = await self._context.kube.get(LEASE, namespace, name)
        except BlockedError:
            return "looks (whether it still lives cannot be seen: no right to get its Lease)"
        if lease is None or self._of(named).over(lease.get("spec") or {}):
            return None
        return "looks"

    def _of(self, named: str) -> Renewals:
        found = self._renewals.setdefault(named, Renewals(self._context.clock))
        self._renewals.move_to_end(named)
        while len(self._renewals) > REMEMBERED_MAX:
            self._renewals.popitem(last=False)
        return found


def operated_by(cluster: Mapping[str, Any]) -> str | None:
    """Return the installation that the status of a cluster names."""
    said: str | None = (cluster.get("status") or {}).get("operatedBy")
    return said


def _told(cluster: str, named: str, seen: str, mine: str) -> str:
    return (
        f"Installation {named} {seen} after this cluster, so {mine} does nothing to it. Take the"
        " namespace out of the scope of one of them, or say who it is to be:"
        f" kubectl annotate imc {cluster} --overwrite {names.OPERATED_BY}={mine}"
    )
