"""RocketMQ's settings of a broker, by its names: what is in force here, what is only kept.

Tools read and write all of them. Some have a meaning here and change ours, some say what this
broker is and cannot be changed; every other one is kept as it was told, shown, and has no effect,
which the log says. What was told stays over restarts, and wins over the configuration.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from imago_broker.processors.rocketmq.exchange import RequestError
from imago_log.errors import StoreError
from imago_wire.errors import WrongError, in_our_words
from imago_wire.remoting.bodies.route import MASTER_ID
from imago_wire.remoting.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.config.live import LiveSettings
    from imago_broker.config.sections.sections import RocketmqSection
    from imago_broker.ports import Registry, ToldEntries
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.serving_rules import ServingRules
    from imago_log.store import MessageStore

log = logging.getLogger(__name__)

TABLE = "original_settings.tsv"
VALUE_CHARS_MAX = 4096


class OriginalSetting(NamedTuple):
    """A setting of RocketMQ's configuration classes."""

    name: str
    kind: str
    """whole, number, truth or text."""
    owner: str
    """The class that has it."""
    default: str
    """Of version 5, or of 4.9 where 5 has none."""


@cache
def original_settings() -> Mapping[str, OriginalSetting]:
    """Return every setting that brokers of 4.9 and 5 have."""
    text = resources.files(__package__).joinpath(TABLE).read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {
        name: OriginalSetting(name, kind, owner, older if newer == "-" else newer)
        for name, kind, owner, older, newer in rows
    }


def _bytes(text: str) -> int:
    number = int(text)
    if not 0 < number <= 16 << 20:
        raise WrongError("must be 1 to 16777216")
    return number


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise WrongError("must be true or false")
    return text.lower() == "true"


def _seconds(text: str) -> int:
    return int(text) * 1000


HONOURED: dict[str, tuple[str, Callable[[str], object]]] = {
    "maxMessageSize": ("message_bytes_max", _bytes),
    "autoCreateTopicEnable": ("auto_create_topic", _truth),
    "autoCreateSubscriptionGroup": ("auto_create_group", _truth),
    "enablePropertyFilter": ("property_filter", _truth),
    "transactionTimeOut": ("transaction_timeout_ms", int),
    "transactionCheckInterval": ("transaction_check_interval_ms", int),
    "transactionCheckMax": ("transaction_checks_max", int),
    "timerMaxDelaySec": ("timer_delay_ms_max", _seconds),
    "recallMessageEnable": ("recall_enabled", _truth),
    "storeReplyMessageEnable": ("store_replies", _truth),
    "brokerFastFailureEnable": ("fast_failure", _truth),
    "waitTimeMillsInSendQueue": ("send_wait_ms_max", int),
    "enableLmq": ("light_queues", _truth),
    "enableMultiDispatch": ("light_queues", _truth),
    "maxLmqConsumeQueueNum": ("light_queues_max", int),
}
"""RocketMQ's name of a setting that may change while the broker runs: our name, its reader."""

FIXED = frozenset(
    {"configBlackList", "brokerConfigPath", "brokerClusterName", "brokerName", "brokerId"}
    | {"brokerIP1", "listenPort", "brokerRole"}
)
"""Names that say what this broker is: its black list."""

PERMISSION = "brokerPermission"
"""The shard's: whether producers find it by the routes. Kept in the registry, not here."""
READ_ONLY, READ_WRITE = "4", "6"

_READERS: dict[str, Callable[[str], object]] = {"whole": int, "number": float, "truth": _truth}


def with_told(settings: RocketmqSection, told: Mapping[str, str]) -> RocketmqSection:
    """Return the settings as tools have changed them; what makes no sense any more is left out."""
    for name, value in told.items():
        if name in HONOURED:
            try:
                settings = _honoured(settings, name, value)
            except RequestError as error:
                log.warning("told_setting_left_out name=%s reason=%s", name, error)
    return settings


class BrokerSettings:
    """RocketMQ's settings of this broker."""

    def __init__(
        self,
        *,
        store: MessageStore,
        registry: Registry,
        serving_rules: ServingRules,
        identity: RocketmqIdentity,
        settings: LiveSettings[RocketmqSection],
        told: ToldEntries,
    ) -> None:
        self._store, self._registry, self._serving_rules = store, registry, serving_rules
        self._identity, self._settings = identity, settings
        self._told = told
        self._entries = told.read()

    def entries(self) -> dict[str, str]:
        """Return all settings: those in force, then those set, then RocketMQ's defaults."""
        defaults = {name: setting.default for name, setting in original_settings().items()}
        return defaults | self._entries | self._in_force()

    def check(self, entries: Mapping[str, str]) -> None:
        """Refuse all of it where one name or value is wrong; change nothing."""
        self._changed(entries)

    def change(self, entries: Mapping[str, str]) -> None:
        """Take all of it, or nothing where one name or value is wrong."""
        before = self._settings.current
        settings, told = self._changed(entries)
        self._settings.change(settings)
        if told == self._entries:
            return
        try:
            self._told.write(told)
        except StoreError as error:
            self._settings.change(before)
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"nothing was changed, it cannot be kept: {error}"
            ) from error
        for key, value in sorted(told.items() - self._entries.items()):
            if key not in HONOURED:
                log.warning("setting_without_effect name=%s value=%.200r", key, value)
        self._entries = told

    def _changed(self, entries: Mapping[str, str]) -> tuple[RocketmqSection, dict[str, str]]:
        """Return what would be in force, and what was told, with these."""
        settings, told = self._settings.current, dict(self._entries)
        for key, text in entries.items():
            value = text.strip()
            if key in HONOURED:
                settings = _honoured(settings, key, value)
                told[key] = value
            else:
                told[key] = _checked(key, value)
        return settings, told

    def _in_force(self) -> dict[str, str]:
        identity, settings = self._identity, self._settings.current
        serving_rules, own = self._serving_rules, self._registry.registered
        wiped = identity.broker_name in self._registry.view().wiped
        replica_id = own.replica + 1 if own is not None and not serving_rules.leads else MASTER_ID
        return {
            "brokerClusterName": identity.cluster,
            "brokerName": identity.broker_name,
            "brokerId": str(replica_id),
            "brokerIP1": identity.host,
            "listenPort": str(identity.port),
            PERMISSION: READ_ONLY if wiped else READ_WRITE,
            "brokerRole": "ASYNC_MASTER" if serving_rules.leads else "SLAVE",
            "slaveReadEnable": _word(serving_rules.slave_reads),
            "maxMessageSize": str(settings.message_bytes_max),
            "autoCreateTopicEnable": _word(settings.auto_create_topic),
            "autoCreateSubscriptionGroup": _word(settings.auto_create_group),
            "enablePropertyFilter": _word(settings.property_filter),
            "transactionTimeOut": str(settings.transaction_timeout_ms),
            "transactionCheckInterval": str(settings.transaction_check_interval_ms),
            "transactionCheckMax": str(settings.transaction_checks_max),
            "timerMaxDelaySec": str(settings.timer_delay_ms_max // 1000),
            "recallMessageEnable": _word(settings.recall_enabled),
            "storeReplyMessageEnable": _word(settings.store_replies),
            "brokerFastFailureEnable": _word(settings.fast_failure),
            "waitTimeMillsInSendQueue": str(settings.send_wait_ms_max),
            "enableLmq": _word(settings.light_queues),
            "enableMultiDispatch": _word(settings.light_queues),
            "maxLmqConsumeQueueNum": str(settings.light_queues_max),
            **self._shown(),
        }

    def _shown(self) -> dict[str, str]:
        """Return what is so here unless somebody told another value, which has no effect."""
        settings, kept = self._settings.current, self._store.components.deleter.limits
        facts = {
            "defaultTopicQueueNums": str(settings.default_queues),
            "regionId": settings.region,
            "traceOn": _word(settings.trace_on),
            "messageDelayLevel": settings.delay_levels,
            "longPollingEnable": "true",
            "rejectTransactionMessage": "false",
            "timerWheelEnable": _word(settings.timer_delay_ms_max > 0),
            "flushDiskType": "ASYNC_FLUSH",
            "fileReservedTime": str(kept.retention_ms // 3_600_000),
            "filterServerNums": "0",
            "traceTopicEnable": "false",
            "msgTraceTopicName": "RMQ_SYS_TRACE_TOPIC",
            "useTLS": "false",
        }
        return {name: value for name, value in facts.items() if name not in self._entries}


def _honoured(settings: RocketmqSection, key: str, value: str) -> RocketmqSection:
    name, read = HONOURED[key]
    try:
        return replace(settings, **{name: read(value)})  # type: ignore[arg-type]  # the readers give what their field takes
    except ValueError as error:
        reason = in_our_words(error, f"{value[:64]!r} is not taken")
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"{key}: {reason}") from None


def _checked(key: str, value: str) -> str:
    """Return a value that is kept. RequestError: it or its name is wrong."""
    if key in FIXED:
        raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    known = original_settings().get(key)
    if known is None:
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the broker has no setting {key[:64]}")
    if len(value) > VALUE_CHARS_MAX or "\n" in value:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR,
            f"{key}: a value has one line of at most {VALUE_CHARS_MAX} characters",
        )
    try:
        _READERS.get(known.kind, str)(value)
    except ValueError:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"{key}: {value[:64]!r} is no {known.kind}"
        ) from None
    return value


def _word(value: bool) -> str:
    return "true" if value else "false"
