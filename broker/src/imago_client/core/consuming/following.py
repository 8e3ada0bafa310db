"""Which topics a member of a group reads: those named, or all that a pattern matches now."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from imago_client.checks import topic_tags
from imago_client.core.consuming.subscriptions import ALL, group_subscriptions, subscribe
from imago_client.core.lookup import all_topics, cluster_info
from imago_client.naming import RETRY_PREFIX
from imago_wire.system_topics import is_system

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import TypeAlias

    from imago_client.core.consuming.subscriptions import Subscription
    from imago_client.core.effects import Operation
    from imago_client.core.state import ClientState

    Wanted: TypeAlias = Mapping[str, str] | Sequence[str] | re.Pattern[str]

log = logging.getLogger(__name__)

TOPICS_MAX: Final = 1000
"""That one pattern takes: each is named in every heart beat."""


class FollowedTopics:
    """The subscriptions of one member by topic, that of its group's retry topic among them."""

    def __init__(self, topics: Wanted, group: str, version: int) -> None:
        self._pattern = topics if isinstance(topics, re.Pattern) else None
        self._retry = RETRY_PREFIX + group
        self.by_topic: dict[str, Subscription] = {}
        if isinstance(topics, re.Pattern):
            self.by_topic[self._retry] = subscribe(self._retry, ALL, version)
        else:
            self.by_topic = group_subscriptions(topic_tags(topics, ALL), group, version)

    def look(self, state: ClientState, read: Collection[str]) -> Operation[list[str]]:
        """Take the topics whose names match now; return those that are new.

        One that is gone is left out once nothing of it is read any more.
        """
        if self._pattern is None:
            return []
        names = yield from all_topics(state)
        clusters = (yield from cluster_info(state)).cluster_addr_table
        found = sorted(
            name
            for name in names
            if self._pattern.fullmatch(name)
            and not (name.startswith("%") or is_system(name, clusters))
        )
        if len(found) > TOPICS_MAX:
            said = "pattern_too_wide pattern=%s topics=%d: the first %d are read"
            log.warning(said, self._pattern.pattern, len(found), TOPICS_MAX)
            del found[TOPICS_MAX:]
        for topic in self.by_topic.keys() - {self._retry, *found, *read}:
            del self.by_topic[topic]
        new = [topic for topic in found if topic not in self.by_topic]
        for topic in new:
            self.by_topic[topic] = subscribe(topic, ALL, state.clock_ms())
        return new
