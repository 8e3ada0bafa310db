"""The Python MetaQ clients over TLS: whom they trust, and what they show."""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from typing import TYPE_CHECKING, Any

import pytest

from imago_client import ClientConfig, ClientError, UsageError
from imago_client.blocking import metaq as blocking
from imago_client.core.effects import Request, ask
from imago_client.errors import ConnectionLostError
from imago_client.metaq import MetaqClient, MetaqConfig, Partition
from imago_client.rocketmq.driver import Driver
from imago_testing.clusters.brokers import running_broker
from imago_testing.processes.certificates import Authority, Pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def server(authority: Authority, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a broker's MetaQ port with TLS."""
    own = Pair(tmp_path / "tls.pem", tmp_path / "tls.key")
    authority.issue("server").copy_to(own)
    settings = (
        f"tls.certificate_file={own.certificate}",
        f"tls.key_file={own.key}",
        "tls.metaq_port=0",
        "topics.orders.queues=1",
    )
    async with running_broker(tmp_path / "data", *settings) as broker:
        yield f"localhost:{broker.ports.metaq_tls.port}"


def config(server: str, authority: Authority) -> MetaqConfig:
    return MetaqConfig(servers=(server,), tls_ca_file=str(authority.file))


async def test_both_faces_put_and_get_over_tls(server: str, authority: Authority) -> None:
    body = b"a body of some size " * 5000

    def put() -> None:
        with blocking.MetaqClient(config(server, authority)) as client:
            with client.transaction() as transaction:
                transaction.send("orders", body, partition=0)
            assert client.send("orders", b"two").offset == 20 + len(body)
            assert client.get(Partition("orders", server, 0), 0, group="g").block

    await asyncio.to_thread(put)
    async with MetaqClient(config(server, authority)) as client:
        fetched = await client.get(Partition("orders", server, 0), 0, group="g")
        assert [each.payload for each in fetched.messages()] == [body, b"two"]


async def test_a_broker_that_nobody_vouches_for_is_not_talked_to(
    server: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = Authority(tmp_path_factory.mktemp("stranger"))
    async with MetaqClient(config(server, stranger)) as client:
        with pytest.raises(ConnectionLostError, match="its certificate is not trusted"):
            await client.stats(server)

    def ask() -> None:
        with (
            blocking.MetaqClient(config(server, stranger)) as client,
            pytest.raises(ConnectionLostError, match="its certificate is not trusted"),
        ):
            client.stats(server)

    await asyncio.to_thread(ask)


async def test_a_client_follows_the_file_of_those_whom_it_trusts(
    server: str,
    authority: Authority,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    trusted = tmp_path / "ca.crt"
    trusted.write_text(Authority(tmp_path_factory.mktemp("former")).file.read_text())
    async with MetaqClient(MetaqConfig(servers=(server,), tls_ca_file=str(trusted))) as client:
        with pytest.raises(ConnectionLostError, match="its certificate is not trusted"):
            await client.stats(server)
        trusted.unlink()
        with pytest.raises(ConnectionLostError, match="its certificate is not trusted"):
            await client.stats(server)
        trusted.write_text(authority.file.read_text())
        assert await client.stats(server)


def test_files_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="means nothing without tls_ca_file"):
        MetaqConfig(servers=("h:1",), tls_certificate_file="x")
    missing = MetaqConfig(servers=("h:1",), tls_ca_file=str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match="tls_ca_file"):
        MetaqClient(missing)


def _as_in_3_11_2(transport: Any) -> None:
    """End a TLS transport as Python's does up to 3.11.3: it must still know what it is of."""
    transport._closed = True
    transport._ssl_protocol._abort()


@pytest.mark.parametrize("protocol", ["metaq", "rocketmq"])
async def test_a_client_whose_tls_connection_was_lost_is_closed(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """The server answers what ends the connection at the client, which then closes it itself."""
    monkeypatch.setattr(sslproto._SSLProtocolTransport, "abort", _as_in_3_11_2)
    own = Pair(tmp_path / "tls.pem", tmp_path / "tls.key")
    authority.issue("server").copy_to(own)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own.certificate, own.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\xff" * 64 + b"\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    address = f"localhost:{server.sockets[0].getsockname()[1]}"
    trusted = str(authority.file)
    async with server:
        if protocol == "metaq":
            client = MetaqClient(MetaqConfig(servers=(address,), tls_ca_file=trusted))
            with pytest.raises(ClientError):
                await client.get(Partition("orders", address, 0), 0, group="g")
            await client.close()
        else:
            driver = Driver(
                ClientConfig(bootstrap=(address,), tls_ca_file=trusted), lambda *_: None
            )
            with pytest.raises(ClientError):
                await driver.run(ask(Request(address, 105, None, b"", 5.0)))
            await driver.close()
