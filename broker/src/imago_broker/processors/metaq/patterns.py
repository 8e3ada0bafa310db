"""Which topics a MetaQ put may use, and which are counted in the real-time statistics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from imago_broker.model.topics.declared import pattern_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.metaq_section import MetaqSection
    from imago_broker.config.settings import Scalar
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.service.topics.topics import TopicService

    Settings = Mapping[str, Scalar]
    Patterns = Mapping[str, Settings]
    """Pattern to the settings of topics that it makes."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the expression of a pattern, in which ``*`` stands for anything.

    Unlike the original, everything else stands for itself: there a dot matches any character, and
    a name that is no valid expression stops the broker.
    """
    return re.compile(re.escape(pattern).replace(r"\*", ".*"), re.ASCII)


class TopicPatterns:
    """The accept patterns of the settings in force."""

    def __init__(
        self,
        settings: LiveSettings[MetaqSection],
        patterns: LiveSettings[Patterns],
        topics: TopicService,
    ) -> None:
        self._settings = settings
        self._patterns = patterns
        self.topics = topics
        self._compiled_from: Patterns = {}
        self._compiled: list[tuple[re.Pattern[str], Settings]] = []

    def made(self, topic: str) -> TopicConfig | None:
        """Return the topic as a put makes it; None: a put may not.

        Where several patterns match, the first in the configuration counts.
        """
        patterns, settings = self._patterns.current, self._settings.current
        if patterns is not self._compiled_from:
            self._compiled_from = patterns
            self._compiled = [(compile_pattern(name), own) for name, own in patterns.items()]
        found = (own for expression, own in self._compiled if expression.fullmatch(topic))
        own = next(found, {} if settings.auto_create_topic else None)
        if own is None:
            return None
        return pattern_topic(topic, own, queues=settings.default_partitions)

    def counts(self, topic: str) -> bool:
        """Return whether the topic is in the real-time statistics."""
        config = self.topics.get(topic)
        own = None if config is None else config.metaq_stat
        return self._settings.current.stat if own is None else own

    def may_count(self) -> bool:
        """Return whether any topic at all is in the real-time statistics."""
        return self._settings.current.stat or bool(self.topics.with_stat)
