"""Figures about the operator's work, for Prometheus: names begin with `imago_operator_`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from imago_operator.reconcile import ObjectKey

CertificateEnd = tuple[str, str, str, float]
"""Namespace and name of a cluster, whose certificate it is, its end in seconds since 1970."""
BUCKETS: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class _CertificateEnds(Collector):
    """Asked when Prometheus asks: what is gone is shown no more."""

    def __init__(self, ends: Callable[[], Iterable[CertificateEnd]]) -> None:
        self._ends = ends

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "imago_operator_certificate_expires_seconds",
            "End of a certificate or an authority of a cluster, in seconds since 1970.",
            labels=["cluster_namespace", "cluster", "certificate"],
        )
        for *labels, end in self._ends():
            family.add_metric([str(each) for each in labels], float(end))
        yield family


class Metrics:
    """All figures. Each operator process has its own registry of them."""

    def __init__(self, wall: Callable[[], float]) -> None:
        """`wall`: seconds since 1970."""
        self._wall = wall
        self.registry = CollectorRegistry()
        self._seconds = Histogram(
            "imago_operator_reconcile_seconds",
            "Duration of reconciliations.",
            ["kind"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._outcomes = Counter(
            "imago_operator_reconcile",
            "Reconciliations by outcome: done, retry, blocked, invalid, bug, cancelled.",
            ["kind", "outcome"],
            registry=self.registry,
        )
        self._last = Gauge(
            "imago_operator_last_success_timestamp_seconds",
            "When an object of the kind was last reconciled without an error.",
            ["kind"],
            registry=self.registry,
        )
        self._calls = Counter(
            "imago_operator_kubernetes_requests",
            "Calls to the API server by verb, resource and status; status 0: no answer.",
            ["verb", "resource", "status"],
            registry=self.registry,
        )
        started = self._gauge("start_timestamp_seconds", "When the process began.")
        started.set(wall())

    def finished(self, kind: str, outcome: str, seconds: float) -> None:
        """A look is over."""
        self._seconds.labels(kind).observe(seconds)
        self._outcomes.labels(kind, outcome).inc()
        if outcome == "done":
            self._last.labels(kind).set(self._wall())

    def called(self, verb: str, resource: str, status: int) -> None:
        """A call to the API server is over."""
        self._calls.labels(verb, resource, str(status)).inc()

    def watch_work(
        self, depth: Callable[[], int], running: Callable[[], Mapping[ObjectKey, float]]
    ) -> None:
        """Show what waits and what is worked on. `running`: for how many seconds, by object."""
        waiting = self._gauge("queue_depth", "Objects that are due and wait for their turn.")
        waiting.set_function(depth)
        oldest = self._gauge(
            "oldest_reconcile_start_timestamp_seconds",
            "When the oldest look that is under way began; 0: none is.",
        )

        def began() -> float:
            seconds = max(running().values(), default=None)
            return 0.0 if seconds is None else self._wall() - seconds

        oldest.set_function(began)

    def watch_clusters(
        self,
        known: Callable[[], int],
        stalled: Callable[[], int],
        unready: Callable[[], int],
        unavailable: Callable[[], int],
    ) -> None:
        """Show how many clusters there are, and how many of them are not well."""
        self._gauge("clusters", "Clusters that the operator manages.").set_function(known)
        text = "Clusters that need help to progress, or are late."
        self._gauge("stalled_clusters", text).set_function(stalled)
        text = "Clusters whose Ready condition is not True."
        self._gauge("unready_clusters", text).set_function(unready)
        text = "Clusters on which clients cannot put or get everywhere, or nobody can tell."
        self._gauge("unavailable_clusters", text).set_function(unavailable)

    def watch_certificates(self, ends: Callable[[], Iterable[CertificateEnd]]) -> None:
        """Show when certificates of clusters end."""
        self.registry.register(_CertificateEnds(ends))

    def watch_leader(self, leads: Callable[[], bool]) -> None:
        """Show whether this process is the one that works."""
        self._gauge("leader", "1 where the process holds the lease.").set_function(leads)

    def watch_events(self, suppressed: Callable[[], int]) -> None:
        """Show how many events were too many."""
        text = "Events that were not recorded because there were too many of their object."
        self._gauge("suppressed_events", text).set_function(suppressed)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"imago_operator_{name}", text, registry=self.registry)
