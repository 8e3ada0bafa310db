"""Settings that tools have told this broker, kept in its data folder over restarts."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.app.kept_settings.checked_file import CheckedFile
from imago_broker.processors.rocketmq.tools.original_settings import with_told

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imago_broker.config import BrokerConfig

logger = logging.getLogger(__name__)

FILE = "config/rocketmq-settings"


class ToldSettings:
    """A checked file: name to value."""

    def __init__(self, data_dir: Path) -> None:
        self._file = CheckedFile(data_dir / FILE)

    def read(self) -> dict[str, str]:
        """Return the settings that were set; none, and a log line, where the file is damaged."""
        try:
            found = self._file.read() or {}
        except ValueError:
            logger.warning(
                "told_settings_damaged path=%s: the broker starts without them; tell them again",
                self._file.path,
            )
            return {}
        return {str(name): str(value) for name, value in found.items()}

    def over(self, config: BrokerConfig) -> BrokerConfig:
        """Return a configuration with the settings that were set in their places."""
        return replace(config, rocketmq=with_told(config.rocketmq, self.read()))

    def write(self, entries: Mapping[str, str]) -> None:
        """Keep this instead, durably; LogIOError where it cannot be."""
        self._file.write(entries)
