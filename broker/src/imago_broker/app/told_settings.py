"""Settings that tools have told this broker, kept in its data folder over restarts."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq.original_settings import with_told
from imago_log.disk.files import read_whole, replace_whole
from imago_log.disk.vfs import OsVfs
from imago_wire.crc import crc31

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from imago_broker.config import BrokerConfig

logger = logging.getLogger(__name__)

FILE = "config/rocketmq-settings"
_DIGITS = 10


class ToldSettings:
    """A small file: ten digits of crc31, a line feed, then one JSON object, name to value."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE
        self._vfs = OsVfs()

    def read(self) -> dict[str, str]:
        """Return the settings that were set; none, and a log line, where the file is damaged."""
        data = read_whole(self._vfs, self._path)
        if data is None:
            return {}
        digits, _, content = data.partition(b"\n")
        if digits != b"%0*d" % (_DIGITS, crc31(content)):
            logger.error(
                "told_settings_damaged path=%s: the broker starts without them; tell them again",
                self._path,
            )
            return {}
        return {str(name): str(value) for name, value in json.loads(content).items()}

    def over(self, config: BrokerConfig) -> BrokerConfig:
        """Return a configuration with the settings that were set in their places."""
        return replace(config, rocketmq=with_told(config.rocketmq, self.read()))

    def write(self, entries: Mapping[str, str]) -> None:
        """Keep this instead, durably; LogIOError where it cannot be."""
        content = json.dumps(dict(sorted(entries.items())), separators=(",", ":")).encode()
        data = b"%0*d\n%b" % (_DIGITS, crc31(content), content)
        replace_whole(self._vfs, self._path, data)
