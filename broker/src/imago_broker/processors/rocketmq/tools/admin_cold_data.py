"""Flow control of reads of old messages, as RocketMQ's tools set it; it has no effect here.

Reads of old messages come from the disk without crowding out those of new ones: nothing is
slowed. What the tools set is shown to them until the broker ends, as by the original.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.texts.properties_text import decode_properties_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.processors.rocketmq.tools.original_settings import BrokerSettings

log = logging.getLogger(__name__)

GROUPS_MAX = 10_000
READ_AHEAD_FIELD = "READ_AHEAD_MODE"
READ_AHEAD_MODES = {"0": "true", "1": "false"}
"""madvise's numbers (normal, random) to whether the file system may read ahead."""


class ColdDataAdmin:
    """The request codes about reads of old messages."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._thresholds: dict[str, int] = {}

    def update(self, exchange: Exchange) -> Reply:
        """UPDATE_COLD_DATA_FLOW_CTR_CONFIG: thresholds in bytes by group; all, or none of them."""
        entries = decode_properties_text(exchange.command.body)
        if exchange.command.body and not entries:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "string2Properties error")
        thresholds = self._thresholds | {
            _group(name): _threshold(name, text) for name, text in entries.items()
        }
        if len(thresholds) > GROUPS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"there are thresholds of {GROUPS_MAX} groups already"
            )
        self._thresholds = thresholds
        for name in entries:
            log.warning("cold_data_threshold_without_effect group=%s", name)
        return OK

    def remove(self, exchange: Exchange) -> Reply:
        """REMOVE_COLD_DATA_FLOW_CTR_CONFIG: of one group, whether there is a threshold or not."""
        self._thresholds.pop(exchange.command.body.decode(errors="replace"), None)
        return OK

    def show(self, _: Exchange) -> Reply:
        """GET_COLD_DATA_FLOW_CTR_INFO."""
        settings: Mapping[str, str] = self._settings.entries()
        info = {
            "cgColdReadThreshold": int(settings["cgColdReadThreshold"]),
            "configTable": self._thresholds,
            "globalAcc": 0,
            "globalColdReadThreshold": int(settings["globalColdReadThreshold"]),
            "runtimeTable": {},
        }
        return Reply(body=json.dumps(info, separators=(",", ":")).encode())

    def read_ahead(self, exchange: Exchange) -> Reply:
        """SET_COMMITLOG_READ_MODE: shown as the setting that it is."""
        mode = exchange.ext.get(READ_AHEAD_FIELD)
        if mode is None:
            raise rules.invalid("set commitlog readahead mode param error")
        enabled = READ_AHEAD_MODES.get(mode)
        if enabled is None:
            raise rules.invalid("set commitlog readahead mode param value error")
        self._settings.change({"dataReadAheadEnable": enabled})
        return Reply(remark=f"set commitlog readahead mode success, mode: {mode}")


def _group(name: str) -> str:
    if problem := rules.group_problem(name):
        raise rules.invalid(problem)
    return name


def _threshold(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"{name}: {text[:64]!r} is no number of bytes"
        ) from None
