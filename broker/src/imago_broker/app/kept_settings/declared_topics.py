"""The topics that the configuration names, brought into the log by whoever leads.

A table of our own TOML makes a topic that is missing; a reload changes it. MetaQ's server.ini says
what its topics are: what changed there while this broker was down, or followed, counts like what
changes while it leads. `declared_notes` knows what is in the log already.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from imago_broker.app.kept_settings.declared_notes import DeclaredNotes
from imago_broker.errors import ExitCode, FatalError, RequestError, ShardDrainedError
from imago_broker.model.topics.declared import QUEUES, declared_topic
from imago_broker.model.topics.sealing import seal_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_broker.app.kept_settings.declared_notes import Declared
    from imago_broker.config import BrokerConfig
    from imago_broker.model.topics.topics import TopicConfig
    from imago_broker.service.topics.topics import TopicService
    from imago_log.errors import DiskFullError
    from imago_log.store import MessageStore

logger = logging.getLogger(__name__)

REMOVED: Final = "removed"
"""Cause of a seal: the topic stands in MetaQ's server.ini no more."""
_OF_TABLES: Final = "a start makes topics that are missing, and changes none that is there"
_OF_INI: Final = "it was changed by other means since server.ini was"
"""Why a topic may have fewer queues than the configuration says."""


class DeclaredTopics:
    """Makes, changes and seals topics as the configuration says."""

    def __init__(self, store: MessageStore, topics: TopicService, data_dir: Path) -> None:
        self.on_no_room: list[Callable[[], None]] = []
        """Called where the log has no room: the same configuration again makes the rest."""
        self._topics = topics
        self._notes = DeclaredNotes(store, data_dir)
        self._incomplete = False
        """Whether there was no room for all topics when this member began to lead."""

    def join(self, config: BrokerConfig) -> None:
        """Begin as one of several members: what changes from now on counts when this one leads."""
        if config.metaq.server_ini and self._notes.own() is None:
            self._notes.keep(config.declared)

    def lead(self, config: BrokerConfig) -> None:
        """Make what is missing, and change what server.ini says otherwise than the log has it.

        FatalError names a missing topic that cannot be. DiskFullError: see `wait_for_room`. What
        is refused stays as it was until a reload.
        """
        self._incomplete = True
        brought = self._brought(config)
        self._make_missing(config)
        self._incomplete = False
        if brought:
            self._notes.keep(config.declared)

    def wait_for_room(self, error: DiskFullError) -> None:
        """Have the rest made once the log has room."""
        logger.warning("topics_not_made reason=%s", error)
        self._incomplete = True
        for listener in self.on_no_room:
            listener()

    def check(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Raise ValueError or RequestError where `bring` would be refused."""
        self._check(self._in_log(old, new), new)

    def bring(self, old: BrokerConfig, new: BrokerConfig) -> None:
        """Change what another configuration says otherwise; only where this member leads."""
        self._bring(self._in_log(old, new), new)
        self._incomplete = False
        if new.metaq.server_ini:
            self._notes.keep(new.declared)

    def _in_log(self, old: BrokerConfig, new: BrokerConfig) -> Declared:
        """Return what the log has: not what is in force, where that was refused or had no room."""
        noted = self._notes.own() if new.metaq.server_ini else None
        return old.declared if noted is None else noted

    def _brought(self, config: BrokerConfig) -> bool:
        """Bring in what server.ini says otherwise than the log has it; false: it is refused."""
        if not config.metaq.server_ini:
            return False
        # Without a note nobody knows what changed: topics that are there stay as they are.
        old = self._in_log(config, config)
        try:
            self._check(old, config)
            self._bring(old, config)
        except (ValueError, RequestError) as error:
            logger.warning("topics_not_changed reason=%s: they stay as they were", error)
            return False
        return True

    def _make_missing(self, config: BrokerConfig) -> None:
        cause = _OF_INI if config.metaq.server_ini else _OF_TABLES
        for name, settings in config.declared.items():
            try:
                topic, known = declared_topic(name, settings), self._topics.get(name)
                if known is None:
                    self._topics.create_or_update(topic)
                elif QUEUES in settings and seal_of(known) is None:
                    _tell_if_fewer(known, topic, cause)
            except ShardDrainedError as error:
                logger.info("topic_not_made reason=%s", error)
            except (ValueError, RequestError) as error:
                raise FatalError(f"topics.{name}: {error}", exit_code=ExitCode.USAGE) from error

    def _check(self, old: Declared, new: BrokerConfig) -> None:
        for topic in self._wanted(old, new):
            self._topics.check(topic)

    def _bring(self, old: Declared, new: BrokerConfig) -> None:
        for topic in self._wanted(old, new):
            self._topics.create_or_update(topic)
        if not new.metaq.server_ini:
            return
        for name in new.declared:
            self._open_again(name)
        gone = sorted(old.keys() - new.declared.keys())
        for name in gone:
            # As in the original its messages stay; unlike there it takes no more at once.
            if not self._notes.is_in_log(name, None):
                self._topics.seal(name, until_ms=0, cause=REMOVED)
        changed = [name for name, each in new.declared.items() if old.get(name) != each]
        self._notes.keep_in_log(new.declared, [*changed, *gone])

    def _open_again(self, name: str) -> None:
        """Unseal a topic whose section is back; one that was moved or is drained stays sealed."""
        topic = self._topics.get(name)
        seal = seal_of(topic) if topic is not None else None
        if seal is not None and seal.cause == REMOVED:
            self._topics.unseal(name)

    def _wanted(self, old: Declared, new: BrokerConfig) -> list[TopicConfig]:
        """Return the topics that are declared otherwise, as they are declared now."""
        server_ini = new.metaq.server_ini
        found = []
        for name, settings in new.declared.items():
            before, known = old.get(name), self._topics.get(name)
            if before == settings and not (known is None and self._incomplete):
                continue
            if server_ini and known is not None and self._notes.is_in_log(name, settings):
                continue  # another leader has brought it in
            # What is declared no more is as before it was.
            gone = before.keys() - settings.keys() if before is not None else ()
            topic = declared_topic(name, settings, known, gone=gone)
            # By MetaQ's own file fewer partitions hide nothing; by ours that is refused.
            found.append(self._without_hiding(topic) if server_ini else topic)
        return found

    def _without_hiding(self, topic: TopicConfig) -> TopicConfig:
        """Fewer partitions take messages, but all that hold some stay readable."""
        old = self._topics.get(topic.name)
        if old is None or not self._topics.hidden_by(topic):
            return topic
        return replace(topic, read_queues=old.read_queues)


def _tell_if_fewer(known: TopicConfig, declared: TopicConfig, cause: str) -> None:
    """Say that a topic has not the partitions that the configuration names, and why."""
    if known.write_queues < declared.write_queues:
        logger.warning(
            "topic_has_fewer_queues topic=%s queues=%d declared=%d: %s; more: imago topic alter %s"
            " --queues %d",
            known.name,
            known.write_queues,
            declared.write_queues,
            cause,
            known.name,
            declared.write_queues,
        )
