"""What of MetaQ's server.ini is in the log: as this member knows it, and as the log says itself.

A file of the data folder has the topics that this member's server.ini named when it last knew them
to be in the log. What differs from it is this member's to bring in, unless the log's metadata says
that another leader has done so: what tools have changed since would go back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from imago_broker.app.kept_settings.checked_file import CheckedFile
from imago_log.errors import LogIOError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from imago_broker.config.settings import Scalar
    from imago_log.store import MessageStore

    Settings = Mapping[str, Scalar]
    Declared = Mapping[str, Settings]
    """Name to settings."""

logger = logging.getLogger(__name__)

FILE: Final = "config/server-ini-topics"
KIND: Final = "server-ini-topic"
GONE: Final = False
"""In the place of settings: the topic's section was removed."""


class DeclaredNotes:
    """The note of this member, and those of the log."""

    def __init__(self, store: MessageStore, data_dir: Path) -> None:
        self._store = store
        self._file = CheckedFile(data_dir / FILE)
        self._own: Declared | None = None

    def own(self) -> Declared | None:
        """Return what this member knows to be in the log; None: it has no note that can be read."""
        if self._own is None:
            try:
                self._own = self._file.read()
            except ValueError as error:
                logger.warning("server_ini_topics_damaged path=%s error=%s", self._file.path, error)
        return self._own

    def is_in_log(self, name: str, settings: Settings | None) -> bool:
        """Whether a leader has brought in exactly this; None: that the section is gone."""
        noted = self._store.meta(KIND).get(name)
        return bool(noted is GONE if settings is None else noted == settings)

    def keep_in_log(self, declared: Declared, changed: Iterable[str]) -> None:
        """Have the log say what was `changed`, and what it says nothing of yet."""
        noted = self._store.meta(KIND)
        names = set(changed) | (declared.keys() - noted.keys())
        self._store.put_meta(
            [
                (KIND, name, dict(declared[name]) if name in declared else GONE)
                for name in sorted(names)
                if not self.is_in_log(name, declared.get(name))
            ]
        )

    def keep(self, declared: Declared) -> None:
        """Keep this as this member's note, durably; where that cannot be, until it ends."""
        self._own = {name: dict(settings) for name, settings in declared.items()}
        try:
            if self._file.read() == self._own:
                return
        except ValueError:
            pass  # what is damaged is replaced
        try:
            self._file.write(self._own)
        except LogIOError as error:
            logger.warning("server_ini_topics_not_noted path=%s error=%s", self._file.path, error)
