"""The topics that brokers make for themselves, by name: one list for all that tell them apart.

A name that merely looks like one of these (`rmq_sys_mine`, `orders_REPLY_TOPIC`) is a client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SYSTEM_TOPICS: Final = frozenset(
    {
        "IMAGO_META",
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SELF_TEST_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_metaq_prepared",
        "rmq_sys_metaq_outcomes",
    }
)
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"


def reply_topic(cluster: str) -> str:
    """Return the topic to which consumers send their replies to requests."""
    return cluster + REPLY_TOPIC_SUFFIX


def is_system(name: str, clusters: Iterable[str]) -> bool:
    """Return whether brokers of these clusters have the topic for themselves."""
    return name in SYSTEM_TOPICS or any(name == reply_topic(cluster) for cluster in clusters)
