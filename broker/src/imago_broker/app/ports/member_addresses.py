"""Whether a caller comes from a machine on which a broker of the cluster is registered."""

from __future__ import annotations

import contextlib
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView

Address = IPv4Address | IPv6Address


class MemberAddresses:
    """The registered addresses of all brokers, read again where the registry has changed.

    Names are not looked up: a broker registers the addresses of its machine beside its host. What
    brokers announce through the open name service does not count, since anybody may; nor does
    loopback, which is every client's where all run on one machine.
    """

    def __init__(self, view: Callable[[], ClusterView]) -> None:
        self._view = view
        self._seen: ClusterView | None = None
        self._addresses: frozenset[Address] = frozenset()

    def __call__(self, peer: str) -> bool:
        view = self._view()
        if view is not self._seen:
            self._seen = view
            self._addresses = frozenset(
                address for broker in view.brokers for address in _registered(broker)
            )
        return any(address in self._addresses for address in _parsed(peer))


def _registered(broker: BrokerRecord) -> Iterator[Address]:
    for text in (broker.host, *broker.addresses):
        for address in _parsed(text):
            if not address.is_loopback:
                yield address


def _parsed(text: str) -> Iterator[Address]:
    """Yield the address that a text is, if it is one."""
    with contextlib.suppress(ValueError):
        address = ip_address(text.partition("%")[0])
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        yield mapped or address
