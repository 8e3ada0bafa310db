"""Further listeners (`broker.listeners`): their ports, and what their clients are told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from imago_broker.config.sections.client_listeners import hosts_of
from imago_broker.model.registry.listeners import ListenerAddress, ListenerPorts
from imago_broker.server.client_ports import Door

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from imago_broker.config.sections.client_listeners import ListenerSetting
    from imago_broker.config.sections.security_sections import TlsSection
    from imago_broker.model.registry.cluster import BrokerRecord
    from imago_broker.server.listener import Listener
    from imago_broker.server.tls.handshake_queue import HandshakeQueue
    from imago_broker.server.tls.self_signed import SelfSigned
    from imago_broker.server.tls.tls_certificates import Certificates

logger = logging.getLogger(__name__)

HOSTS_BYTES_MAX: Final = 64 << 10
"""Of `broker.listener_hosts_file`."""


class Entrance:
    """One of them: a port for each protocol that it has."""

    def __init__(self, setting: ListenerSetting, listener: Callable[[int], Listener]) -> None:
        self.setting = setting
        self.name = setting.name
        self.ports = {protocol: listener(port) for protocol, port in setting.ports.items()}

    def bound(self, protocol: str) -> int:
        """Return the port of a protocol; 0: there is none."""
        listener = self.ports.get(protocol)
        return 0 if listener is None else listener.port

    def told(self, protocol: str) -> int:
        """Return the port of a protocol that clients are told; 0: there is none."""
        return self.setting.told.get(protocol) or self.bound(protocol)

    def address(self, host: str) -> ListenerAddress:
        """Return how other brokers tell its clients of this one."""
        told, bound = (
            ListenerPorts(metaq=of("metaq"), rocketmq=of("rocketmq"), grpc=of("grpc"))
            for of in (self.told, self.bound)
        )
        return ListenerAddress(name=self.name, host=host, told=told, bound=bound)

    def secure(
        self, certificates: Certificates | None, queue: HandshakeQueue, tls: TlsSection
    ) -> None:
        """Serve TLS as the listener asks, else as RocketMQ's other ports do."""
        only = self.setting.tls
        for protocol, listener in self.ports.items():
            if certificates is None or (tls.mode == "disabled" and not only):
                continue
            if only or protocol != "metaq":
                plain_too = not only and tls.mode == "permissive"
                listener.secure(certificates, queue, plain_too=plain_too)

    def self_sign(self, made: SelfSigned, queue: HandshakeQueue) -> None:
        """Offer SDKs, which ask for TLS, a certificate that they do not check."""
        if (grpc := self.ports.get("grpc")) is not None:
            grpc.secure(made, queue, plain_too=True)

    def doors(self) -> Iterator[Door]:
        """Yield its ports of connections that are passed on while the mastership moves.

        To the same listener of the next master, which tells clients what they were told here; to
        the master's own port while it is without.
        """
        for protocol, own in _OWN_PORTS.items():
            if (listener := self.ports.get(protocol)) is not None:
                yield Door(listener, self._port_of(protocol, own))

    def grpc_of(self, record: BrokerRecord) -> int:
        """Return the port of another broker to which connections of SDKs are passed on."""
        return self._port_of("grpc", lambda record: record.grpc)(record)

    def _port_of(
        self, protocol: str, own: Callable[[BrokerRecord], int]
    ) -> Callable[[BrokerRecord], int]:
        def port_of(record: BrokerRecord) -> int:
            found = record.listener(self.name)
            port: int = 0 if found is None else getattr(found.bound, protocol)
            # A port for TLS alone is not passed on to one without: who is told to use it counts
            # on that.
            return port or (0 if self.setting.tls else own(record))

        return port_of


_OWN_PORTS: Final[dict[str, Callable[[BrokerRecord], int]]] = {
    "metaq": lambda record: record.metaq,
    "rocketmq": lambda record: record.rocketmq,
}


class ToldHosts:
    """What a file says of the hosts of listeners, as long as it can be read."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        self._seen: tuple[int, int, int] | None = None
        self.hosts: dict[str, str] = {}
        self.look()

    def of(self, entrance: Entrance) -> str:
        """Return what a listener's clients are told; empty: nobody knows it yet."""
        return entrance.setting.host or self.hosts.get(entrance.name, "")

    def look(self) -> bool:
        """Read the file if it has changed; return whether it says something else now."""
        if self._path is None:
            return False
        try:
            status = self._path.stat()
            seen = (status.st_ino, status.st_size, status.st_mtime_ns)
            if seen == self._seen:
                return False
            with self._path.open(encoding="utf-8") as file:
                found = hosts_of(file.read(HOSTS_BYTES_MAX))
        except FileNotFoundError:
            seen, found = None, self.hosts  # not written yet, or being replaced
        except (OSError, UnicodeDecodeError) as error:
            logger.warning("listener_hosts_unreadable file=%s reason=%s", self._path, error)
            return False
        self._seen, before, self.hosts = seen, self.hosts, found
        if found != before:
            told = " ".join(f"{name}={host}" for name, host in sorted(found.items()))
            logger.info("listener_hosts_changed hosts=%s", told or "none")
        return found != before
