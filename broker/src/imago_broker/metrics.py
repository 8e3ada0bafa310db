"""What is counted. Counting is adding to an int; Prometheus reads the ints when it asks.

A metric object with a lock and labels would cost more than storing a message, so the hot path has
none: each part owns a plain object of ints, and one collector turns all of them into samples. The
metrics themselves, with names and help, are in `app/metrics/metrics.py`,
`app/metrics/shard_metrics.py` and `app/metrics/group_metrics.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector, CollectorRegistry


class MetaqCounters:
    """Totals of the MetaQ port since the start, as its own ``stats`` names them."""

    __slots__ = (
        "bytes_out",
        "cmd_get",
        "cmd_offset",
        "cmd_put",
        "get_miss",
        "malformed",
        "put_failed",
        "puts_stored",
        "tx_begin",
        "tx_commit",
        "tx_rollback",
        "tx_xa_begin",
    )

    def __init__(self) -> None:
        self.cmd_put = 0
        self.cmd_get = 0
        self.cmd_offset = 0
        self.get_miss = 0
        self.put_failed = 0
        self.puts_stored = 0
        self.malformed = 0
        """Connections closed because of bytes that are no command."""
        self.bytes_out = 0
        """Of messages in their stored form."""
        self.tx_begin = 0
        self.tx_xa_begin = 0
        """Those of them that are XA."""
        self.tx_commit = 0
        self.tx_rollback = 0
        """Requests, also those that were refused."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One number to be read when Prometheus asks. `kind` is ``counter`` or ``gauge``."""

    name: str
    help: str
    read: Callable[[], float]
    kind: str = "counter"
    labels: tuple[tuple[str, str], ...] = ()


def gauge(name: str, text: str, read: Callable[[], float], port: str = "") -> Sample:
    """Return a value that goes up and down; `port` is its label, if it has one."""
    return Sample(f"imago_{name}", text, read, "gauge", (("port", port),) if port else ())


def counter(name: str, text: str, read: Callable[[], float], port: str = "") -> Sample:
    """Return a total since the start."""
    return Sample(f"imago_{name}", text, read, "counter", (("port", port),) if port else ())


class BrokerCollector:
    """All samples of the process. Parts add theirs while the broker is put together.

    A Collector to Prometheus' library, which is not loaded before somebody asks: it brings an HTTP
    server of its own along, and a start does not wait for that.
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._sources: list[Callable[[], Iterable[Sample]]] = []

    def add(self, samples: Iterable[Sample]) -> None:
        """Have these read from now on."""
        self._samples += samples

    def add_source(self, source: Callable[[], Iterable[Sample]]) -> None:
        """Ask this for samples whenever Prometheus asks: their labels come and go."""
        self._sources.append(source)

    def collect(self) -> Iterator[Metric]:
        """Read every sample, those of one name together."""
        families: dict[str, Metric] = {}
        made = (sample for source in self._sources for sample in source())
        for sample in (*self._samples, *made):
            labels = dict(sample.labels)
            family = families.get(sample.name)
            if family is None:
                family = families[sample.name] = _family(sample, list(labels))
            family.add_metric(list(labels.values()), sample.read())  # type: ignore[attr-defined]  # both families have it
        yield from families.values()


def registry(collector: BrokerCollector) -> CollectorRegistry:
    """Return a registry of its own with this collector: several brokers may share a process."""
    from prometheus_client.registry import CollectorRegistry  # noqa: PLC0415  see BrokerCollector

    made = CollectorRegistry(auto_describe=False)
    made.register(cast("Collector", collector))
    return made


def metaq_samples(counters: MetaqCounters) -> list[Sample]:
    """Return the samples of the MetaQ port."""
    texts: Mapping[str, str] = {
        "cmd_put": "put commands received",
        "cmd_get": "get commands received",
        "cmd_offset": "offset commands and redirected gets",
        "get_miss": "gets that found nothing",
        "put_failed": "puts answered with an error",
        "puts_stored": "messages stored",
        "malformed": "connections closed for malformed input",
        "bytes_out": "bytes of messages sent",
        "tx_begin": "transactions begun, or begun again",
        "tx_xa_begin": "those of them that are XA",
        "tx_commit": "requests to commit",
        "tx_rollback": "requests to roll back",
    }
    return [
        Sample(f"imago_metaq_{name}", f"MetaQ: {text}.", partial(getattr, counters, name))
        for name, text in texts.items()
    ]


def _family(sample: Sample, labels: list[str]) -> Metric:
    from prometheus_client.core import (  # noqa: PLC0415  see BrokerCollector
        CounterMetricFamily,
        GaugeMetricFamily,
    )

    make = CounterMetricFamily if sample.kind == "counter" else GaugeMetricFamily
    return make(sample.name, sample.help, labels=labels)
