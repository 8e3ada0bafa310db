"""Taking what can change while a broker runs from a new configuration."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_broker.config.changes import Changes, compare
from imago_broker.config.section import is_pattern
from imago_broker.core.metaq_filters import check_config
from imago_broker.errors import RequestError
from imago_broker.model.declared import declared_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.config import BrokerConfig
    from imago_broker.model.topics import TopicConfig
    from imago_broker.service.topics import TopicService

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
REMOVED: Final = "removed"
"""Cause of a seal: the topic stands in MetaQ's server.ini no more."""

FileSeen = tuple[int, int, int]
"""Inode, size and time of the last change of a file."""


def reload(
    current: BrokerConfig,
    config: BrokerConfig,
    *,
    topics: TopicService,
    apply: Callable[[BrokerConfig], None],
) -> Changes:
    """Take dynamic keys and declared topics; topics only where this member leads.

    ValueError or RequestError: a declared topic cannot be; nothing of it was changed.
    """
    check_config(config)
    changes = compare(current, config)
    declared = [
        _as_declared(name, current, config, topics.get(name))
        for name in changes.topics
        if topics.may_change and not is_pattern(name)
    ]
    # By MetaQ's own file fewer partitions hide nothing; by ours that is refused.
    of_metaq = bool(config.metaq.server_ini)
    wanted = [_without_hiding(topic, topics) if of_metaq else topic for topic in declared]
    for topic in wanted:
        topics.check(topic)
    apply(changes.config)
    for topic in wanted:
        topics.create_or_update(topic)
        if topic.name in changes.back:
            topics.unseal(topic.name)
    for name in changes.removed if topics.may_change else ():
        # As in the original its messages stay; unlike there it takes no more at once.
        topics.seal(name, until_ms=0, cause=REMOVED)
    logger.info(
        "config_reloaded applied=%s needs_restart=%s topics=%s removed=%s",
        *map(",".join, (changes.applied, changes.waiting, changes.topics, changes.removed)),
    )
    return changes


def _as_declared(
    name: str, old: BrokerConfig, new: BrokerConfig, base: TopicConfig | None
) -> TopicConfig:
    """Return a topic as it is declared now: what is declared no more is as before it was."""
    settings = new.topics[name]
    gone = old.topics.get(name, {}).keys() - settings.keys()
    return declared_topic(name, settings, base, gone=gone)


def _without_hiding(topic: TopicConfig, topics: TopicService) -> TopicConfig:
    """Fewer partitions take messages, but all that hold some stay readable."""
    old = topics.get(topic.name)
    if old is None or not topics.hidden_by(topic):
        return topic
    return replace(topic, read_queues=old.read_queues)


class ConfigSource:
    """Where the configuration came from: read again when asked, and when a file changes."""

    def __init__(
        self,
        reread: Callable[[], BrokerConfig] | None,
        take: Callable[[BrokerConfig], Changes],
        server_ini: str,
    ) -> None:
        self._reread, self._take = reread, take
        self._path = Path(server_ini) if server_ini else None
        self._seen = self._look()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch MetaQ's server.ini from now on, where there is one."""
        if self._path is not None and self._reread is not None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def reload(self) -> Changes:
        """Read everything again and take it; ValueError, RequestError: nothing was changed."""
        if self._reread is None:
            raise RequestError("this broker's configuration was given to it: there is no file")
        self._seen = self._look()
        return self._take(self._reread())

    def reload_or_warn(self) -> None:
        """The same for a signal, or for a file that changed: a mistake leaves the old in force."""
        try:
            self.reload()
        except (OSError, ValueError, RequestError) as error:
            logger.warning("config_not_reloaded reason=%s: what was in force stays", error)

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._tick)
        if self._look() != self._seen:
            self.reload_or_warn()

    def _look(self) -> FileSeen | None:
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return found and (found.st_ino, found.st_size, found.st_mtime_ns)
