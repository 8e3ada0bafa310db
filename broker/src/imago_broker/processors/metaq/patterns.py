"""Which topics a MetaQ put may use, and which are counted in the real-time statistics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections import MetaqSection
    from imago_broker.service.topics import TopicService


def compile_patterns(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Return one expression for all patterns, in which ``*`` stands for anything; None: no topic.

    Unlike the original, everything else stands for itself: there a dot matches any character, and
    a name that is no valid expression stops the broker.
    """
    parts = [re.escape(pattern).replace(r"\*", ".*") for pattern in patterns]
    return re.compile("|".join(parts), re.ASCII) if parts else None


class TopicPatterns:
    """The accept patterns of the settings in force."""

    def __init__(self, settings: LiveSettings[MetaqSection], topics: TopicService) -> None:
        self._settings = settings
        self._topics = topics
        self._compiled_from: tuple[str, ...] = ()
        self._compiled: re.Pattern[str] | None = None

    def accept(self, topic: str) -> bool:
        """Return whether a put may make the topic."""
        settings = self._settings.current
        if settings.auto_create_topic:
            return True
        if settings.topic_patterns != self._compiled_from:
            self._compiled_from = settings.topic_patterns
            self._compiled = compile_patterns(settings.topic_patterns)
        return self._compiled is not None and self._compiled.fullmatch(topic) is not None

    def counts(self, topic: str) -> bool:
        """Return whether the topic is in the real-time statistics."""
        config = self._topics.get(topic)
        own = None if config is None else config.metaq_stat
        return self._settings.current.stat if own is None else own

    def may_count(self) -> bool:
        """Return whether any topic at all is in the real-time statistics."""
        return self._settings.current.stat or self._topics.any_stat
