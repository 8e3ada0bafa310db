"""Groups of MetaQ's consumers, who keep in ZooKeeper how far they are: what that means here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.admin.lags import lag_of, sums
from imago_broker.model.names import group_problem
from imago_broker.service.readers import reached

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from imago_broker.admin.services import AdminServices

Side = dict[str, Any]
"""`members`: consumers with a session; `topics`: what is unread, as `lags.lag_of` says it."""


async def sides(services: AdminServices, names: Collection[str]) -> Mapping[str, Side]:
    """Return what MetaQ's consumers of these groups have not read on this shard.

    Groups of which MetaQ's tree says nothing are left out. CoordinatorError: nobody knows.
    """
    asked = [name for name in names if not group_problem(name)]
    duals = [config.name for config in services.topics.all() if config.dual]
    members = await services.metaq_consumers.metaq_members(asked)
    found: dict[str, Side] = {
        name: {"members": sorted(members[name]), "topics": {}}
        for name in asked
        if members.get(name)
    }
    progress = await services.metaq_consumers.metaq_progress(duals, asked)
    for topic, of_groups in progress.items():
        for name, positions in of_groups.items():
            if not positions:
                continue
            offsets = {q: reached(services.store, topic, q, at) for q, at in positions.items()}
            side = found.setdefault(name, {"members": [], "topics": {}})
            side["topics"][topic] = lag_of(services, topic, offsets)
    return found


def together(one: Side | None, other: Side | None) -> Side | None:
    """Return what two shards say; consumers are known to both."""
    if one is None or other is None:
        return one or other
    members = sorted({*one["members"], *other["members"]})
    return {"members": members, "topics": sums(one["topics"], other["topics"])}
