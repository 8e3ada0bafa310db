"""The settings that an original master's `server.ini` gives its topics (`autoSyncMasterConfig`).

The original's slave replaces its own `server.ini` by the master's, ports and paths with it; here
only the topics' settings are taken. What cannot be had or cannot be read holds up no copying.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from imago_broker.config.metaq.metaq_ini import settings_of_topics
from imago_broker.config.sections.section import FILTER_PREFIX, ConfigError
from imago_broker.model.topics.declared import QUEUES, declared_topic
from imago_broker.model.topics.topics import METAQ_FILTER
from imago_wire.text.commands import Result, Stats
from imago_wire.text.status import Status

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from imago_broker.config.settings import Scalar
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.replication.metaq.copied import Ask

logger = logging.getLogger(__name__)

FILE: Final = "the master's server.ini"
TAKEN: Final = (
    "acknowledgement", "delete_when", "metaq_archive", "metaq_publish", "metaq_stat",
    "metaq_subscribe", "retention_ms",
)  # fmt: skip
"""What the file says of a topic, beside filters of groups; how many partitions the tree says."""


class MasterSettings:
    """What the master's file says of its topics, as it was last told."""

    def __init__(self) -> None:
        self._settings: Mapping[str, Mapping[str, Scalar]] = {}
        self.problem = ""
        """What of it is not in force here; empty: all is."""

    async def ask(self, ask: Ask, topics: Collection[str]) -> None:
        """Ask the master; where it does not tell, what it told before stays in force."""
        answer = await ask(lambda opaque: Stats("config", opaque))
        if isinstance(answer, Result) and answer.code == Status.SUCCESS:
            problem = self._take(answer.text, topics)
        else:
            problem = f"{FILE}: the master does not tell it: {answer!r:.200}"
        if problem and problem != self.problem:
            logger.warning("metaq_slave_config problem=%s", problem)
        self.problem = problem

    def _take(self, text: str, topics: Collection[str]) -> str:
        """Take what the text says; return what of it cannot be had."""
        try:
            self._settings, notes = settings_of_topics(text, FILE, topics)
        except ConfigError as error:
            return str(error)
        return "; ".join(notes)

    def of(self, topic: TopicConfig) -> TopicConfig:
        """Return the topic as the master has it; what the file says no more is forgotten."""
        told = self._settings.get(topic.name)
        if told is None:
            return topic
        filters = [key for key in topic.attributes if key.startswith(METAQ_FILTER)]
        gone = [FILTER_PREFIX + key.removeprefix(METAQ_FILTER) for key in filters]
        settings = {key: value for key, value in told.items() if key != QUEUES}
        return declared_topic(topic.name, settings, topic, gone=(*TAKEN, *gone))
