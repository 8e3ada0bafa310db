"""RocketMQ's settings of a name service, by its names: what is in force here, what is only kept.

Tools read and write all of them. What was set is kept as long as the process runs.
"""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from imago_broker.processors.rocketmq.exchange import RequestError
from imago_broker.processors.rocketmq.tools.original_settings import original_settings
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.namesrv.settings import NameServiceConfig

log = logging.getLogger(__name__)

FIXED: Final = ("configBlackList", "configStorePath", "kvConfigPath", "listenPort")
ORDER, ALL_TOPICS, TOPICS, ORDER_TO_BROKERS, SMALLEST_IDS = (
    "orderMessageEnable",
    "enableAllTopicList",
    "enableTopicList",
    "returnOrderTopicConfigToBroker",
    "notifyMinBrokerIdChanged",
)
HONOURED: Final = frozenset({ORDER, ALL_TOPICS, TOPICS, ORDER_TO_BROKERS, SMALLEST_IDS})
SERVER: Final = "NettyServerConfig"
VALUE_CHARS_MAX: Final = 4096
DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clientRequestThreadPoolNums": "8",
        "clientRequestThreadPoolQueueCapacity": "50000",
        "clusterTest": "false",
        "configBlackList": "configBlackList;configStorePath;kvConfigPath",
        "configStorePath": "",
        "defaultThreadPoolNums": "16",
        "defaultThreadPoolQueueCapacity": "10000",
        "deleteTopicWithBrokerRegistration": "false",
        "enableAllTopicList": "true",
        "enableControllerInNamesrv": "false",
        "enableTopicList": "true",
        "kvConfigPath": "",
        "needWaitForService": "false",
        "notifyMinBrokerIdChanged": "false",
        "orderMessageEnable": "false",
        "productEnvName": "center",
        "returnOrderTopicConfigToBroker": "true",
        "rocketmqHome": "",
        "scanNotActiveBrokerInterval": "5000",
        "supportActingMaster": "false",
        "unRegisterBrokerQueueCapacity": "3000",
        "waitSecondsForService": "45",
    }
)
"""RocketMQ 5's NamesrvConfig, as its objects are made; kinds follow from the values."""


class NameSettings:
    """All settings of one name service."""

    def __init__(self, config: NameServiceConfig) -> None:
        server = {
            row.name: row.default for row in original_settings().values() if row.owner == SERVER
        }
        self._entries = {**server, **DEFAULTS, "listenPort": str(config.port)}
        self._entries[ORDER] = "true" if config.order_messages else "false"

    def entries(self) -> Mapping[str, str]:
        """Return every setting as text."""
        return dict(sorted(self._entries.items()))

    def allows(self, name: str) -> bool:
        """Whether one that says yes or no says yes."""
        return self._entries[name] == "true"

    def change(self, told: Mapping[str, str]) -> None:
        """Take all settings, or none of them. RequestError: one of them cannot be."""
        if any(name in FIXED for name in told):
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        checked = {name: self._checked(name, value.strip()) for name, value in told.items()}
        for name, value in checked.items():
            if name not in HONOURED and self._entries[name] != value:
                log.warning("setting_without_effect name=%s value=%.200r", name, value)
        self._entries |= checked

    def _checked(self, name: str, value: str) -> str:
        known = self._entries.get(name)
        if known is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"the name service has no setting {name[:64]}"
            )
        if known in ("true", "false"):
            value = value.lower()
            is_right = value in ("true", "false")
        elif known.isdecimal():
            is_right = value.removeprefix("-").isdecimal()
        else:
            is_right = True
        if not is_right or len(value) > VALUE_CHARS_MAX:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{name}: {value[:64]!r} is not taken")
        return value
