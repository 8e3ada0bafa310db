"""The metrics of ports: their connections, TLS, and the memory of commands that are not whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.metrics import Sample, counter, gauge

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_broker.app.ports.listeners import Ports
    from imago_broker.core.budget import InputBudget
    from imago_broker.server.listener import Listener
    from imago_broker.server.tls.tls_entry import TlsDoor


def port_samples(ports: Ports) -> list[Sample]:
    """Return what ports, TLS and the memory of unfinished commands count."""
    return [
        *_port("metaq", ports.metaq),
        *_port("rocketmq", ports.rocketmq),
        *_port("fast", ports.fast),
        *_port("namesrv", ports.names),
        *(
            sample
            for entrance in ports.entrances
            for protocol, listener in entrance.ports.items()
            for sample in _port(f"{protocol}_{entrance.name}", listener)
        ),
        *_tls(ports),
        *_input(ports.input_budget),
        gauge(
            "connections_max",
            "Connections of all client ports that the process has files for.",
            lambda: ports.places.count_max,
        ),
    ]


def _tls(ports: Ports) -> list[Sample]:
    certificates = ports.certificates
    if certificates is None:
        return []
    doors = ports.doors

    def total(read: Callable[[TlsDoor], int]) -> int:
        return sum(map(read, doors))

    return [
        *_port("metaq_tls", ports.metaq_tls),
        gauge(
            "tls_certificate_expires_seconds",
            "End of the TLS certificate in force, in seconds since 1970; 0: not valid now.",
            lambda: certificates.contexts.expires_s,
        ),
        gauge(
            "tls_certificate_refused",
            "1 while the files of the TLS certificate have something that cannot be used.",
            lambda: bool(certificates.problem),
        ),
        counter(
            "tls_certificates_loaded",
            "TLS certificates that came into force.",
            lambda: certificates.loaded,
        ),
        counter(
            "tls_handshakes",
            "TLS handshakes that were finished.",
            lambda: total(lambda door: door.handshakes),
        ),
        counter(
            "tls_handshakes_failed",
            "Connections that were not served for want of TLS.",
            lambda: total(lambda door: door.failures.count),
        ),
        counter(
            "tls_handshakes_delayed",
            "TLS handshakes that waited for their turn (tls.handshakes_per_second_max).",
            lambda: ports.handshakes.delayed,
        ),
        gauge(
            "tls_handshakes_waiting",
            "TLS handshakes that wait for their turn now.",
            lambda: ports.handshakes.waiting,
        ),
    ]


def _port(name: str, listener: Listener) -> list[Sample]:
    return [
        gauge("connections", "Open connections of a port.", lambda: listener.connections, name),
        counter(
            "connections_accepted",
            "Connections that a port has accepted.",
            lambda: listener.accepted,
            name,
        ),
        counter(
            "connections_refused",
            "Connections that a port has refused above a limit.",
            lambda: listener.refused,
            name,
        ),
    ]


def _input(budget: InputBudget) -> list[Sample]:
    return [
        gauge(
            "input_unfinished_bytes",
            "Bytes held of commands that are not whole yet.",
            lambda: budget.held,
        ),
        gauge(
            "input_waiting",
            "Connections not read now, since unfinished commands hold too many bytes.",
            lambda: budget.waiting,
        ),
        counter(
            "input_dropped",
            "Connections ended, since unfinished commands held too many bytes.",
            lambda: budget.dropped,
        ),
    ]
