"""The cluster as the clients of a further listener see it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView


def record_at(broker: BrokerRecord, listener: str) -> BrokerRecord | None:
    """Return a broker with the addresses that a listener's clients are told; None: it has none.

    One without any listener that tells clients another address than members has not been restarted
    since listeners came: it is told by that one.
    """
    found = broker.listener(listener)
    if not broker.listeners and broker.client_host:
        return broker
    if found is None or not found.host:
        return None
    return replace(
        broker,
        metaq=found.bound.metaq,
        rocketmq=found.bound.rocketmq,
        grpc=found.bound.grpc,
        client_host=found.host,
        client_metaq=found.told.metaq,
        client_rocketmq=found.told.rocketmq,
        client_grpc=found.told.grpc,
        metaq_listener="",
    )


class Viewed(Protocol):
    """What has a view of the cluster: the registry, or one listener's part of it."""

    def view(self) -> ClusterView:
        """Return the last snapshot."""
        ...


class ViewAt:
    """The registry for one listener: each snapshot is made over once."""

    def __init__(self, registry: Viewed, listener: str) -> None:
        self._registry, self._listener = registry, listener
        self._of: ClusterView | None = None
        self._seen: ClusterView | None = None

    def view(self) -> ClusterView:
        """Return the snapshot of now, with the brokers that are reached through the listener."""
        view = self._registry.view()
        if self._seen is None or view is not self._of:
            told = (record_at(broker, self._listener) for broker in view.brokers)
            self._of = view
            self._seen = replace(view, brokers=tuple(each for each in told if each is not None))
        return self._seen
