"""Taking what can change while a broker runs from a new configuration."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from imago_broker.config.changes import Changes, compare
from imago_broker.config.section import is_pattern
from imago_broker.model.declared import check_declared, declared_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config import BrokerConfig
    from imago_broker.service.topics import TopicService

logger = logging.getLogger(__name__)


def reload(
    current: BrokerConfig,
    config: BrokerConfig,
    *,
    topics: TopicService,
    apply: Callable[[BrokerConfig], None],
) -> Changes:
    """Take dynamic keys and declared topics.

    ValueError or RequestError: a declared topic cannot be; nothing of it was changed.
    """
    check_declared(config.topics, config.metaq.topic_patterns)
    changes = compare(current, config)
    declared = [
        declared_topic(name, settings, topics.get(name))
        for name, settings in changes.topics.items()
        if not is_pattern(name)
    ]
    for topic in declared:
        topics.check(topic)
    apply(changes.config)
    for topic in declared:
        topics.create_or_update(topic)
    logger.info(
        "config_reloaded applied=%s needs_restart=%s topics=%s",
        *map(",".join, (changes.applied, changes.waiting, changes.topics)),
    )
    return changes
