"""Which broker leads which shard, asked of the brokers' admin interfaces."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from imago_cli.clusters.admin_http import cluster_at
from imago_cli.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.config import BrokerConfig
    from imago_cli.up.plan import BrokerPlace, ClusterPlan

SECONDS_MAX = 120.0
"""How long a cluster may take to settle: after a crash members first read their logs."""
_PAUSE_SECONDS = 0.1


class Roles:
    """Roles of the brokers of a plan, as they were seen last."""

    def __init__(self, plan: ClusterPlan, configs: Mapping[BrokerPlace, BrokerConfig]) -> None:
        self._plan = plan
        self._configs = configs
        self._role = {place: "slave" if place.replica else "master" for place in plan.places()}

    def of(self, place: BrokerPlace) -> str:
        """Return the broker's role."""
        return self._role[place]

    async def wait(self) -> None:
        """Return once each shard has a master, all members, and enough in sync to take puts.

        CommandError says what is missing.
        """
        if not self._asked:
            return
        missing = "nobody answers"
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while missing:
                    snapshot = await asyncio.to_thread(self._snapshot)
                    if snapshot is not None and not (missing := self._missing(snapshot)):
                        self._take(snapshot)
                        return
                    await asyncio.sleep(_PAUSE_SECONDS)
        except TimeoutError as error:
            raise CommandError(
                f"not ready after {SECONDS_MAX:g} s: {missing}",
                cure="see the logs below the data folder; imago cluster explain",
            ) from error

    async def masters(self) -> set[BrokerPlace]:
        """Return who leads now, as far as anybody says."""
        if self._asked and (snapshot := await asyncio.to_thread(self._snapshot)):
            self._take(snapshot)
        return {place for place, role in self._role.items() if role == "master"}

    @property
    def _asked(self) -> bool:
        return self._plan.replicas > 1

    def _snapshot(self) -> dict[str, Any] | None:
        """Ask the brokers in turn for the cluster; None when none answers."""
        for place in self._plan.places():
            admin = self._configs[place].admin
            bind = admin.bind or self._configs[place].broker.bind
            host = "127.0.0.1" if bind in ("", "0.0.0.0", "::") else bind  # noqa: S104  compared
            port = self._plan.broker_ports(place).admin
            if snapshot := cluster_at(host, port):
                return snapshot
        return None

    def _missing(self, snapshot: Mapping[str, Any]) -> str:
        """Return what a ready cluster would have besides; "": nothing."""
        shards = {shard["id"]: shard for shard in snapshot["shards"]}
        least = next(iter(self._configs.values())).min_in_sync
        for number in range(self._plan.shards):
            shard = shards.get(number, {"members": [], "master": None, "inSync": []})
            members, in_sync = len(shard["members"]), shard["inSync"]
            if members < self._plan.replicas:
                return f"shard-{number} has {members} of {self._plan.replicas} members"
            if shard["master"] is None:
                return f"shard-{number} has no master"
            if in_sync is not None and len(in_sync) < least:
                return f"shard-{number} has {len(in_sync)} of {least} members in sync"
        return ""

    def _take(self, snapshot: Mapping[str, Any]) -> None:
        by_port = {self._plan.broker_ports(place).admin: place for place in self._plan.places()}
        for shard in snapshot["shards"]:
            for member in shard["members"]:
                place = by_port.get(int(member["admin"].rpartition(":")[2]))
                if place is not None and place.shard == shard["id"]:
                    leads = member["uuid"] == shard["master"]
                    self._role[place] = "master" if leads else "slave"
