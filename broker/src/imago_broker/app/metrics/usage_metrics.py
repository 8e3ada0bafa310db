"""The metrics of what topics took and groups were given, made again whenever Prometheus asks."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from imago_broker.metrics import Sample
from imago_broker.service.figures.usage import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.service.figures.usage import UsageFigures

SERIES_MAX: Final = 5000
"""Series that are reported: of more, the first that were counted."""
NS_PER_SECOND: Final = 1e9
NAMES: Final = {
    Usage.TOPIC_PUT_NUMS: "imago_topic_messages",
    Usage.TOPIC_PUT_SIZE: "imago_topic_bytes",
    Usage.GROUP_GET_NUMS: "imago_group_messages_out",
    Usage.GROUP_GET_SIZE: "imago_group_bytes_out",
    Usage.GROUP_GET_LATENCY: "imago_group_read_seconds",
    Usage.SNDBCK_PUT_NUMS: "imago_group_sent_back",
}


def usage_samples(usage: UsageFigures) -> list[Sample]:
    """Return all counters of topics and groups."""
    return list(islice(_samples(usage), SERIES_MAX))


def _samples(usage: UsageFigures) -> Iterator[Sample]:
    for counted, key, total in usage.totals():
        name = NAMES.get(counted)
        if name is None:
            continue
        topic, _, group = key.partition("@")
        labels = (("group", group), ("topic", topic)) if group else (("topic", topic),)
        help_text = f"{counted.value[0].upper()}{counted.value[1:]}."
        value = float(total)
        if counted is Usage.GROUP_GET_LATENCY:
            help_text, value = help_text.replace("Nanoseconds", "Seconds"), total / NS_PER_SECOND
        yield Sample(name, help_text, partial(float, value), "counter", labels)
