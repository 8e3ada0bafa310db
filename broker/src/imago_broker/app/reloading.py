"""Taking what can change while a broker runs from a new configuration."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_broker.config.changes import Changes, compare
from imago_broker.core.metaq.metaq_filters import check_config
from imago_broker.errors import RequestError
from imago_log.errors import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app.kept_settings.declared_topics import DeclaredTopics
    from imago_broker.config import BrokerConfig

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0

FileSeen = tuple[int, int, int]
"""Inode, size and time of the last change of a file."""


def reload(
    current: BrokerConfig,
    config: BrokerConfig,
    *,
    declared: DeclaredTopics,
    leads: bool,
    apply: Callable[[BrokerConfig], None],
) -> Changes:
    """Take dynamic keys and declared topics; topics only where this member leads.

    ValueError or RequestError: a declared topic cannot be; nothing of it was changed.
    DiskFullError: the log has no room for the topics, and the same again makes the rest.
    """
    check_config(config)
    changes = compare(current, config)
    if leads:
        declared.check(current, config)
        declared.bring(current, config)
    apply(changes.config)
    logger.info(
        "config_reloaded applied=%s needs_restart=%s topics=%s removed=%s",
        *map(",".join, (changes.applied, changes.waiting, changes.topics, changes.removed)),
    )
    return changes


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
        self._seen = self._changing = self._look()
        self._again = False
        """Whether what the file says waits for room on the disk."""
        self._timer: asyncio.TimerHandle | None = None
        self._one_at_a_time = asyncio.Lock()
        self._wanted = False
        """Whether the file is to be read again, once more where that is under way."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch MetaQ's server.ini from now on, where there is one."""
        if self._path is not None and self._reread is not None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def read_again(self) -> None:
        """Take the same file again at the next look: what is in force had no room in the log."""
        self._again = True

    async def reload(self) -> Changes:
        """Read everything again, in a thread since a file of many topics takes long, and take it.

        ValueError, RequestError: nothing was changed. DiskFullError: some topics may have been.
        """
        if self._reread is None:
            raise RequestError("this broker's configuration was given to it: there is no file")
        async with self._one_at_a_time:
            self._seen = self._changing = self._look()
            changes = self._take(await asyncio.to_thread(self._reread))
            self._again = False
        return changes

    def reload_soon(self) -> None:
        """The same for a signal, or for a file that changed: a mistake leaves the old in force."""
        self._wanted = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._reload_while_wanted())

    async def _reload_while_wanted(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._reload_or_warn()
        finally:
            self._task = None

    async def _reload_or_warn(self) -> None:
        waited, self._again = self._again, False
        try:
            await self.reload()
        except DiskFullError as error:
            self._again = True
            if not waited:
                logger.warning("config_not_reloaded reason=%s: it is read again until then", error)
        except (OSError, ValueError, RequestError) as error:
            logger.warning("config_not_reloaded reason=%s: what was in force stays", error)

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._tick)
        before, self._changing = self._changing, self._look()
        # Of a file that is being written, a part may be a whole configuration: without topics.
        if self._changing == before and (self._again or before != self._seen):
            self.reload_soon()

    def _look(self) -> FileSeen | None:
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return found and (found.st_ino, found.st_size, found.st_mtime_ns)
