"""Who is connected to the ports for clients: each connection with what is known of its client.

RocketMQ's clients say who they are by their heartbeats, those of its SDKs over telemetry; MetaQ's
never do, and are known by what they read. Connections to the name service are not among them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from imago_broker.admin.services import ClientConnection
from imago_broker.server.grpc.grpc_session import GrpcSession
from imago_broker.server.peer_address import peer_text
from imago_broker.server.relay.relay_handover import ClientSession
from imago_broker.server.text.text_session import TextSession
from imago_wire.remoting.peer import version_name

if TYPE_CHECKING:
    from collections.abc import Collection

    from imago_broker.app.ports.listeners import Ports
    from imago_broker.server.listener import Listener
    from imago_broker.server.session import Session
    from imago_broker.service.groups.channel import Channel
    from imago_broker.service.groups.clients import ClientRegistry, ConnectedClient

AT_ONCE: Final = 500
"""Connections, and memberships of groups, that are looked at before other work comes in."""


@dataclass(slots=True)
class _Said:
    """What one client of a connection has said of itself."""

    client: ConnectedClient
    producers: set[str] = field(default_factory=set)
    consumers: set[str] = field(default_factory=set)
    topics: list[Collection[str]] = field(default_factory=list)


class ConnectedClients:
    """The connections of clients to this broker."""

    def __init__(self, ports: Ports, registry: ClientRegistry) -> None:
        self._ports, self._registry = ports, registry
        self._looked_at = 0

    async def find(self) -> list[ClientConnection]:
        """Return the connections that there are, once for each of their clients."""
        return [shown for _, shown in await self._all()]

    async def close(self, client: str) -> int:
        """Close all connections of the client of this name, or the one of this address, at once.

        Return how many. Other clients of the same connections lose them, too.
        """
        found = dict.fromkeys(
            session for session, shown in await self._all() if shown.is_named(client)
        )
        for session in found:
            session.abort()
        return len(found)

    async def _all(self) -> list[tuple[Session, ClientConnection]]:
        said = await self._said()
        found: list[tuple[Session, ClientConnection]] = []
        for protocol, listener in self._listeners():
            for session in listener.sessions:
                await self._pause()
                # Others have not begun to speak the protocol: TLS is not agreed upon yet.
                if isinstance(session, ClientSession | GrpcSession):
                    shown = _connection(session, protocol)
                    clients = _clients(shown, said.get(shown.peer, {}).values())
                    found += [(session, one) for one in clients]
        return found

    def _listeners(self) -> list[tuple[str, Listener]]:
        ports = self._ports
        return [
            ("metaq", ports.metaq),
            ("metaq", ports.metaq_tls),
            ("rocketmq", ports.rocketmq),
            ("rocketmq", ports.fast),
            ("grpc", ports.grpc),
            *(
                (protocol, listener)
                for entrance in ports.entrances
                for protocol, listener in entrance.ports.items()
                if protocol != "namesrv"
            ),
        ]

    async def _said(self) -> dict[str, dict[str, _Said]]:
        """Return by the peer's address, and by name, what clients have said of themselves."""
        found: dict[str, dict[str, _Said]] = {}

        def of(channel: Channel, client: ConnectedClient) -> _Said:
            return found.setdefault(channel.peer, {}).setdefault(client.client_id, _Said(client))

        for name, members in list(self._registry.producer_groups().items()):
            for channel, client in list(members.items()):
                await self._pause()
                of(channel, client).producers.add(name)
        for name, group in list(self._registry.consumer_groups().items()):
            for channel, client in list(group.members.items()):
                await self._pause()
                said = of(channel, client)
                said.consumers.add(name)
                said.topics.append(group.subscriptions)
        return found

    async def _pause(self) -> None:
        self._looked_at += 1
        if self._looked_at % AT_ONCE == 0:
            await asyncio.sleep(0)


def _connection(session: Session, protocol: str) -> ClientConnection:
    peer = f"{peer_text(session.peer_name[0])}:{session.peer_name[1]}"
    shown = ClientConnection(
        name=peer, peer=peer, protocol=protocol, tls=session.secure, user=session.certificate_user
    )
    if isinstance(session, TextSession):
        shown.topics = [session.channel.reads]
        shown.consumer_groups = sorted(set(session.channel.reads.values()))
    return shown


def _clients(connection: ClientConnection, known: Collection[_Said]) -> list[ClientConnection]:
    """Return a connection as each of its clients has it: as it is where none has said a word."""
    if not known:
        return [connection]
    names = [said.client.client_id or connection.peer for said in known]
    return [_client(replace(connection, clients=names), said) for said in known]


def _client(shown: ClientConnection, said: _Said) -> ClientConnection:
    client = said.client
    shown.name, shown.user = client.client_id or shown.peer, client.user or shown.user
    shown.language, shown.version = client.language.name, version_name(client.version)
    shown.consumer_groups, shown.topics = sorted(said.consumers), said.topics
    if shown.protocol == "grpc":  # its producers have no groups, and stand in those of their topics
        shown.topics = [*said.topics, said.producers]
    else:
        shown.producer_groups = sorted(said.producers)
    return shown
