"""Certificates that name clients: only those of the authority that signs for clients do."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import aiohttp

from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.remoting import RemotingPeer
from imago_testing.processes.certificates import Authority, Pair
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path

    from imago_broker.app import Broker


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


async def named(broker: Broker, authority: Authority, shown: Pair | None) -> list[str]:
    """Return whom a broker takes a client for that shows this certificate; none: it is refused."""
    context = trusting(authority)
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    try:
        place = ("localhost", broker.rocketmq_port)
        peer = RemotingPeer(*await asyncio.open_connection(*place, ssl=context))
        await peer.call(RequestCode.HEART_BEAT)
    except (OSError, EOFError):
        return []
    found = [session.certificate_user for session in broker.ports.rocketmq.sessions]
    await peer.close()
    await broker.ports.rocketmq.until_connections(0)
    return found


async def reloaded(broker: Broker) -> str:
    """Have the broker look at its files; return what it says against them."""
    certificates = broker.ports.certificates
    assert certificates is not None
    await asyncio.to_thread(certificates.refresh)
    return certificates.problem


async def test_clients_may_have_an_authority_of_their_own(
    tmp_path: Path,
) -> None:
    """Who has a broker's certificate is let in, as another broker is, and is no user by it."""
    authority = Authority(tmp_path / "brokers", "brokers")
    clients, others = Authority(tmp_path / "clients", "clients"), Authority(tmp_path / "o", "o")
    own = authority.issue("server")
    trusted = tmp_path / "clients.pem"
    trusted.write_bytes(clients.file.read_bytes())
    settings = (
        f"tls.certificate_file={own.certificate}",
        f"tls.key_file={own.key}",
        "tls.mode=enforcing",
        "tls.client_auth=required",
        "tls.admin_client_auth=none",
        f"tls.ca_file={authority.file}",
        f"tls.client_ca_file={trusted}",
    )
    async with running_broker(tmp_path / "data", *settings) as started:
        assert await named(started, authority, clients.issue("ann")) == ["ann"]
        assert await named(started, authority, authority.issue("ann")) == [""]
        assert await named(started, authority, others.issue("ann")) == []
        assert await named(started, authority, None) == []
        url = f"https://localhost:{started.ports.admin_port}/livez"
        async with aiohttp.ClientSession() as http, http.get(url, ssl=trusting(authority)) as said:
            assert said.status == 200, "callers of the admin port are not asked"
        trusted.write_bytes(clients.file.read_bytes() + others.file.read_bytes())
        assert await reloaded(started) == ""
        assert await named(started, authority, others.issue("ann")) == ["ann"]
        trusted.write_bytes(authority.issue("leaf").certificate.read_bytes())
        assert "no certificate of an authority" in await reloaded(started)
        assert await named(started, authority, clients.issue("ann")) == ["ann"]
