"""What is counted. Counting is adding to an int; Prometheus reads the ints when it asks.

A metric object with a lock and labels would cost more than storing a message, so the hot path has
none: each part owns a plain object of ints, and one collector turns all of them into samples. The
metrics themselves, with names and help, are in `app/metrics/metrics.py`,
`app/metrics/shard_metrics.py` and `app/metrics/group_metrics.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector, CollectorRegistry


BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, math.inf)
"""What is faster than a millisecond is not told apart: a send waits for the loop's turn as long."""


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
    """What is read when Prometheus asks. `kind` is ``counter``, ``gauge`` or ``histogram``."""

    name: str
    help: str
    read: Callable[..., float]
    """A histogram's returns how many values are below so many seconds."""
    kind: str = "counter"
    labels: tuple[tuple[str, str], ...] = ()


def gauge(name: str, text: str, read: Callable[[], float], port: str = "") -> Sample:
    """Return a value that goes up and down; `port` is its label, if it has one."""
    return Sample(f"imago_{name}", text, read, "gauge", (("port", port),) if port else ())


def counter(name: str, text: str, read: Callable[[], float], port: str = "") -> Sample:
    """Return a total since the start."""
    return Sample(f"imago_{name}", text, read, "counter", (("port", port),) if port else ())


def histogram(name: str, text: str, below: Callable[[float], int]) -> Sample:
    """Return counts of durations; `below` says how many took less than so many seconds."""
    return Sample(f"imago_{name}", text, below, "histogram")


def longest(name: str, text: str, read_s: Callable[[], float]) -> list[Sample]:
    """Return a duration's maximum in seconds, and in milliseconds under its name of 0.1."""
    old = f"{text.removesuffix('.')}, in milliseconds; use imago_{name}_seconds_max."
    return [
        gauge(f"{name}_seconds_max", f"{text.removesuffix('.')}, in seconds.", read_s),
        gauge(f"{name}_ms_max", old, lambda: read_s() * 1000),
    ]


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
            _add(family, sample, list(labels.values()))
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
        "tx_xa_begin": "XA transactions begun, or begun again",
        "tx_commit": "requests to commit",
        "tx_rollback": "requests to roll back",
    }
    return [
        Sample(f"imago_metaq_{name}", f"MetaQ: {text}.", partial(getattr, counters, name))
        for name, text in texts.items()
    ]


def _family(sample: Sample, labels: list[str]) -> Metric:
    from prometheus_client import core  # noqa: PLC0415  see BrokerCollector

    match sample.kind:
        case "counter":
            return core.CounterMetricFamily(sample.name, sample.help, labels=labels)
        case "histogram":
            return core.HistogramMetricFamily(sample.name, sample.help, labels=labels)
        case _:
            return core.GaugeMetricFamily(sample.name, sample.help, labels=labels)


def _add(family: Any, sample: Sample, labels: list[str]) -> None:
    read = sample.read
    if sample.kind != "histogram":
        family.add_metric(labels, read())
        return
    buckets = [(str(s).replace("inf", "+Inf"), read(s)) for s in BUCKETS_S]
    family.add_metric(labels, buckets, None)
