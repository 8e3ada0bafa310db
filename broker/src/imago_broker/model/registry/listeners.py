"""Where clients of further listeners reach a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerPorts:
    """A port for each protocol; 0: the listener has none."""

    metaq: int = 0
    rocketmq: int = 0
    grpc: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAddress:
    """One listener of a broker."""

    name: str
    host: str
    """What its clients are told; empty: nobody knows it yet, and they are told of other brokers."""
    told: ListenerPorts
    """The ports that they are told."""
    bound: ListenerPorts
    """Those that the broker has: other brokers pass connections on to them."""
