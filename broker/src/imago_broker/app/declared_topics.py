"""The topics that the configuration names, brought into the log by whoever leads.

A table of our own TOML makes a topic that is missing; a reload changes it. MetaQ's server.ini says
what its topics are: what changed there while this broker was down counts like what changes while it
runs. So the data folder has a file with what this member brought in last.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_broker.app.checked_file import CheckedFile
from imago_broker.errors import ExitCode, FatalError, RequestError
from imago_broker.model.declared import declared_topic
from imago_broker.model.sealing import seal_of
from imago_log.errors import DiskFullError, LogIOError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imago_broker.config import BrokerConfig
    from imago_broker.config.settings import Scalar
    from imago_broker.model.topics import TopicConfig
    from imago_broker.service.topics import TopicService

    Declared = Mapping[str, Mapping[str, Scalar]]
    """Name to settings."""

logger = logging.getLogger(__name__)

FILE: Final = "config/server-ini-topics"
REMOVED: Final = "removed"
"""Cause of a seal: the topic stands in MetaQ's server.ini no more."""


class DeclaredTopics:
    """Makes, changes and seals topics as the configuration says."""

    def __init__(self, topics: TopicService, data_dir: Path) -> None:
        self._topics = topics
        self._file = CheckedFile(data_dir / FILE)

    def lead(self, config: BrokerConfig) -> None:
        """Make what is missing, and change what server.ini says otherwise than it did.

        FatalError names a missing topic that cannot be. Where the disk has no room the log stays
        as it is, and the next one who leads makes the rest.
        """
        try:
            brought = self._brought(config)
            self._make_missing(config.declared)
        except DiskFullError as error:
            logger.warning("topics_not_made reason=%s", error)
            return
        if brought:
            self._note(config)

    def check(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Raise ValueError or RequestError where `bring` would be refused."""
        for topic in self._wanted(old.declared, new):
            self._topics.check(topic)

    def bring(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Change what another configuration says otherwise; only where this member leads."""
        self._bring(old.declared, new)
        self._note(new)

    def _brought(self, config: BrokerConfig) -> bool:
        """Bring in what changed in server.ini since this member did so last; false: it cannot."""
        if not config.metaq.server_ini:
            return False
        try:
            noted = self._file.read()
        except ValueError as error:
            logger.warning("server_ini_topics_damaged path=%s error=%s", self._file.path, error)
            noted = None
        try:
            # Without a note nobody knows what changed: topics that are there stay as they are.
            self._bring(config.declared if noted is None else noted, config)
        except (ValueError, RequestError) as error:
            logger.warning("topics_not_changed reason=%s: they stay as they were", error)
            return False
        return True

    def _make_missing(self, declared: Declared) -> None:
        for name, settings in declared.items():
            try:
                topic = declared_topic(name, settings)
                if self._topics.get(name) is None:
                    self._topics.create_or_update(topic)
            except (ValueError, RequestError) as error:
                raise FatalError(f"topics.{name}: {error}", exit_code=ExitCode.USAGE) from error

    def _bring(self, old: Declared, new: BrokerConfig) -> None:
        for topic in self._wanted(old, new):
            self._topics.create_or_update(topic)
        if not new.metaq.server_ini:
            return
        for name in new.declared:
            self._open_again(name)
        for name in sorted(old.keys() - new.declared.keys()):
            # As in the original its messages stay; unlike there it takes no more at once.
            self._topics.seal(name, until_ms=0, cause=REMOVED)

    def _open_again(self, name: str) -> None:
        """Unseal a topic whose section is back; one that was moved or is drained stays sealed."""
        topic = self._topics.get(name)
        seal = seal_of(topic) if topic is not None else None
        if seal is not None and seal.cause == REMOVED:
            self._topics.unseal(name)

    def _wanted(self, old: Declared, new: BrokerConfig) -> list[TopicConfig]:
        """Return the topics that are declared otherwise, as they are declared now."""
        found = []
        for name, settings in new.declared.items():
            before = old.get(name)
            if before == settings:
                continue
            # What is declared no more is as before it was.
            gone = before.keys() - settings.keys() if before is not None else ()
            topic = declared_topic(name, settings, self._topics.get(name), gone=gone)
            # By MetaQ's own file fewer partitions hide nothing; by ours that is refused.
            found.append(self._without_hiding(topic) if new.metaq.server_ini else topic)
        return found

    def _without_hiding(self, topic: TopicConfig) -> TopicConfig:
        """Fewer partitions take messages, but all that hold some stay readable."""
        old = self._topics.get(topic.name)
        if old is None or not self._topics.hidden_by(topic):
            return topic
        return replace(topic, read_queues=old.read_queues)

    def _note(self, config: BrokerConfig) -> None:
        """Keep what is in the log now; without that the next start brings the same in again."""
        if not config.metaq.server_ini:
            return
        declared = {name: dict(settings) for name, settings in config.declared.items()}
        try:
            if self._file.read() == declared:
                return
        except ValueError:
            pass  # what is damaged is replaced
        try:
            self._file.write(declared)
        except LogIOError as error:
            logger.warning("server_ini_topics_not_noted path=%s error=%s", self._file.path, error)
