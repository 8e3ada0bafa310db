"""The filters of groups, by topic: nothing is asked of topics that have none."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.core.metaq.metaq_filters import filters_of
from imago_broker.core.sql92.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.core.metaq.metaq_filters import GroupFilter
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.service.topics.topics import TopicService

logger = logging.getLogger(__name__)


class GroupFilters:
    """Follows the topics' settings."""

    def __init__(self, topics: TopicService) -> None:
        self.by_topic: dict[str, Mapping[str, GroupFilter]] = {}
        """Filters by group, of topics that have any."""
        for config in topics.all():
            self._changed(config.name, config)
        topics.on_change.append(self._changed)

    def _changed(self, name: str, config: TopicConfig | None) -> None:
        self.by_topic.pop(name, None)
        try:
            found = {} if config is None else filters_of(config.attributes)
        except FilterError as error:
            # Nobody can set such a one: it is of another version.
            logger.warning("filters_not_read topic=%s reason=%s", name, error)
            return
        if found:
            self.by_topic[name] = found
