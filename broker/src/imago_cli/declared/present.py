"""Which topics and groups a cluster has, in the form in which a file says them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from imago_broker.model.names import OWN_GROUPS
from imago_broker.model.topics.attributes import unknown_problem
from imago_cli.clusters.admin_http import ask
from imago_cli.clusters.missing import all_pages, merged
from imago_cli.declared.wanted import ATTRIBUTES, GROUP_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_GROUPS_OWN: Final = ("%RETRY%", "%DLQ%")
"""Topics that brokers make for groups, with the settings that these say."""


class PresentState:
    """Settings by name, as the cluster has them."""

    def __init__(
        self, topics: Sequence[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]]
    ) -> None:
        self.placed = {one["name"]: _open(one) for one in topics}
        """Topics with the shards on which they accept messages."""
        self.attributes = {one["name"]: _settable(one["attributes"]) for one in topics}
        self.order = {one["name"]: one["order"] for one in topics}
        self.groups = {
            one["name"]: {name: one["settings"][name] for name in GROUP_SETTINGS}
            for one in groups
            if one["settings"] and one["name"] not in OWN_GROUPS
        }

    @property
    def topics(self) -> dict[str, dict[str, Any]]:
        """Return each topic's settings: those of most of its shards where they differ."""
        return {
            name: _most(shards)
            | {"order": self.order[name]}
            | ({ATTRIBUTES: dict(sorted(own.items()))} if (own := self.attributes[name]) else {})
            for name, shards in self.placed.items()
            if shards
        }

    @property
    def differing(self) -> list[str]:
        """Return the topics that are not the same on each of their shards."""
        return [n for n, shards in self.placed.items() if len(set(map(_settings, shards))) > 1]

    @property
    def sealed(self) -> list[str]:
        """Return the topics that accept messages nowhere."""
        return [name for name, shards in self.placed.items() if not shards]


def present_state(admin: str) -> tuple[PresentState, list[dict[str, Any]]]:
    """Ask for all topics and groups; also which shards did not answer."""
    topics, missing = all_pages(partial(ask, admin), "/admin/v1/cluster/topics")
    groups, others = all_pages(partial(ask, admin), "/admin/v1/cluster/groups")
    mine = [one for one in topics if not one["name"].startswith(_GROUPS_OWN)]
    return PresentState(mine, groups), merged([{"missing": missing}, {"missing": others}])


def _open(topic: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [shard for shard in topic["shards"] if shard["writeQueues"]]


def _settable(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if not unknown_problem([name])}


def _settings(shard: Mapping[str, Any]) -> tuple[int, int, int]:
    return shard["writeQueues"], shard["readQueues"], shard["perm"]


def _most(shards: list[dict[str, Any]]) -> dict[str, Any]:
    (write, read, perm), _ = Counter(map(_settings, shards)).most_common(1)[0]
    queues = {"queues": write} if write == read else {"writeQueues": write, "readQueues": read}
    return {**queues, "perm": perm}
