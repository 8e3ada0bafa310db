"""What a client is to go by: its own settings, with this broker's values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from imago_broker.model.groups import GroupConfig
from imago_broker.processors.grpc.checks import LITE_TOPIC_SIZE_MAX
from imago_wire.grpc.messages import NODE_JS, ClientType, duration, make

if TYPE_CHECKING:
    from collections.abc import Mapping

SEND_ATTEMPTS = 3
RECEIVE_BATCH = 32
POLLING_MS = 20_000
_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
_WAITS_MS: Final = (
    *(seconds * _SECOND for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    _HOUR,
    2 * _HOUR,
)
"""Before each try of a message after the first."""
LITE_QUOTA: Final = "lite.sub.client.quota"
"""The attribute of a group that says how many lite topics each of its clients may want."""
_QUOTA: Final = 2000
RETRY_POLICY: Final = "groupRetryPolicy"
"""The attribute of a group that says other ones."""
_NUMBER_HIGH: Final = 365 * 24 * _HOUR
"""What a larger number of it stands for: no client waits for longer, nor can each be told more."""
_UNSAID: Final = GroupConfig(name="unsaid")


def merged_settings(told: Any, group: GroupConfig | None, body_bytes_max: int) -> Any:
    """Return a client's settings with ours in them. `group`: a consumer's; None: the defaults."""
    merged = make("Settings")
    merged.CopyFrom(told)
    merged.metric.Clear()
    merged.metric.on = False
    if merged.WhichOneof("content") == "publishing":
        merged.backoff_policy.CopyFrom(_of_sends())
        merged.publishing.max_body_size = body_bytes_max
        merged.publishing.validate_message_type = True
        return merged
    grows_only = told.user_agent.language == NODE_JS
    merged.backoff_policy.CopyFrom(_of_group(group, grows_only=grows_only))
    subscription = merged.subscription
    subscription.fifo = group is not None and group.consume_message_orderly
    subscription.receive_batch_size = RECEIVE_BATCH
    subscription.long_polling_timeout.CopyFrom(duration(POLLING_MS))
    if merged.client_type in (ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER):
        said = "" if group is None else group.attributes.get(LITE_QUOTA, "")
        subscription.lite_subscription_quota = quota_of(said)
        subscription.max_lite_topic_size = LITE_TOPIC_SIZE_MAX
    return merged


def _of_sends() -> Any:
    backoff = make(
        "ExponentialBackoff", initial=duration(10), max=duration(_SECOND), multiplier=2.0
    )
    return make("RetryPolicy", max_attempts=SEND_ATTEMPTS, exponential_backoff=backoff)


def _of_group(group: GroupConfig | None, *, grows_only: bool) -> Any:
    """Return a group's policy. `grows_only`: for a client that takes no list of waits, and would
    go without a policy: nothing of an ordered group were tried twice."""
    attempts = _UNSAID.attempts if group is None else group.attempts
    policy = {} if group is None else _policy(group.attributes)
    if policy.get("type") == "EXPONENTIAL":
        said = policy.get("exponentialRetryPolicy")
        said = said if isinstance(said, dict) else {}
        backoff = make(
            "ExponentialBackoff",
            initial=duration(_number(said, "initial", 5 * _SECOND)),
            max=duration(_number(said, "max", 2 * _HOUR)),
            multiplier=float(_number(said, "multiplier", 2)),
        )
        return make("RetryPolicy", max_attempts=attempts, exponential_backoff=backoff)
    waits = _WAITS_MS
    customized = policy.get("customizedRetryPolicy")
    if isinstance(customized, dict) and isinstance(customized.get("next"), list):
        said_ms = [ms for ms in customized["next"] if isinstance(ms, int) and ms >= 0]
        waits = tuple(min(ms, _NUMBER_HIGH) for ms in said_ms) or waits
    if grows_only:
        backoff = make(
            "ExponentialBackoff",
            initial=duration(waits[0]),
            max=duration(max(waits)),
            multiplier=2.0,
        )
        return make("RetryPolicy", max_attempts=attempts, exponential_backoff=backoff)
    made = make("CustomizedBackoff", next=[duration(ms) for ms in waits])
    return make("RetryPolicy", max_attempts=attempts, customized_backoff=made)


def quota_of(text: str) -> int:
    """Return how many lite topics a client may want, by its group's attribute; -1: any."""
    return int(text[:9]) if text.removeprefix("-").isdecimal() and text.isascii() else _QUOTA


def _policy(attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return what a group says of its retries; nothing where nobody can read it."""
    try:
        said = json.loads(attributes.get(RETRY_POLICY, "{}"))
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _number(said: Mapping[str, Any], name: str, default: int) -> int:
    value = said.get(name)
    return min(value, _NUMBER_HIGH) if isinstance(value, int) and value > 0 else default
