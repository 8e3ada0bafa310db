"""The metrics of limits per tenant, made again whenever Prometheus asks."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from imago_broker.metrics import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_broker.service.access.throttling import QuotaAccount, QuotaService

SUBJECTS_MAX: Final = 1000
"""Subjects that are reported; of more, the first by name."""


def quota_samples(quotas: QuotaService) -> list[Sample]:
    """Return how long each subject was throttled, what it was refused, what it is connected by."""
    known = sorted(quotas.accounts.items(), key=lambda item: str(item[0]))
    return [each for _, account in islice(known, SUBJECTS_MAX) for each in _of(account)]


def _of(account: QuotaAccount) -> Iterator[Sample]:
    labels = (("subject", str(account.subject)),)
    throttled, refused = account.throttled_ms / 1000, account.refused
    connections = len(account.connections)
    yield Sample(
        "imago_quota_throttled_seconds_total",
        "For how long connections were not read, since a limit was exceeded.",
        lambda: throttled,
        "counter",
        labels,
    )
    yield Sample(
        "imago_quota_refused_total",
        "Requests that were answered as busy, since a limit was exceeded.",
        lambda: refused,
        "counter",
        labels,
    )
    if account.counts_connections:
        yield Sample(
            "imago_quota_connections",
            "Connections of a user whose number is limited.",
            lambda: connections,
            "gauge",
            labels,
        )
