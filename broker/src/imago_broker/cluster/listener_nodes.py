"""Further listeners of a broker, as its registration holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_broker.model.registry.listeners import ListenerAddress, ListenerPorts

if TYPE_CHECKING:
    from collections.abc import Sequence

_PORTS = ("metaq", "rocketmq", "grpc")


def listeners_json(listeners: Sequence[ListenerAddress]) -> list[dict[str, object]]:
    """Return them as plain values."""
    return [
        {
            "name": each.name,
            "host": each.host,
            "told": [getattr(each.told, name) for name in _PORTS],
            "bound": [getattr(each.bound, name) for name in _PORTS],
        }
        for each in listeners
    ]


def listeners_of(values: Any) -> tuple[ListenerAddress, ...]:
    """Return what a registration says of them; members of earlier versions say nothing."""
    return tuple(
        ListenerAddress(
            name=value["name"],
            host=value["host"],
            told=_ports(value["told"]),
            bound=_ports(value["bound"]),
        )
        for value in values
    )


def _ports(values: Any) -> ListenerPorts:
    return ListenerPorts(**dict(zip(_PORTS, values, strict=True)))
