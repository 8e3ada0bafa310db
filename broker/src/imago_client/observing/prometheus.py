"""A client's counters for Prometheus: `REGISTRY.register(CountersCollector(client))`."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client.core import CounterMetricFamily

from imago_client.observing.watch import ClientCounters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HELP: Final = {
    "sent": "Messages that a broker acknowledged",
    "sent_bytes": "Bytes of the bodies of these",
    "send_tries_failed": "Requests to store messages that failed; most are tried again",
    "received": "Messages that group members read, and POP consumers took",
    "received_bytes": "Bytes of the records of these",
    "handlers_failed": "Calls of handlers that raised",
    "handed_back": "Messages that are to come again, or went to the dead letters",
}


class Counted(Protocol):
    """A client: of either face."""

    @property
    def counters(self) -> ClientCounters: ...


class CountersCollector:
    """Reads the counters when they are asked for; `labels` tell several clients apart."""

    def __init__(self, client: Counted, labels: Mapping[str, str] | None = None) -> None:
        self._client = client
        self._labels = dict(labels or {})

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield `imago_client_sent_total` and the others."""
        for one in fields(ClientCounters):
            family = CounterMetricFamily(
                f"imago_client_{one.name}", _HELP[one.name], labels=list(self._labels)
            )
            family.add_metric(list(self._labels.values()), getattr(self._client.counters, one.name))
            yield family
