"""What clients say where TLS is asked for by one side alone, and where nobody answers."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_cli.connect import client_errors
from imago_cli.exits import CommandError
from imago_client import Client, ClientConfig
from imago_client import blocking as rocketmq_blocking
from imago_client.blocking import metaq as metaq_blocking
from imago_client.credentials import UserCredentials
from imago_client.errors import ConnectionLostError
from imago_client.metaq import MetaqClient, MetaqConfig
from imago_client.metaq.introducing import Introduction
from imago_testing.clusters.brokers import running_broker
from imago_testing.processes.certificates import Authority, Pair

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    Ask = Callable[[str, ClientConfig], Awaitable[object]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


def metaq_config(address: str, config: ClientConfig) -> MetaqConfig:
    return MetaqConfig(
        servers=(address,),
        tls_ca_file=config.tls_ca_file,
        connect_timeout_s=config.connect_timeout_s,
        user=config.user,
        password=config.password,
    )


async def ask_metaq(address: str, config: ClientConfig) -> None:
    async with MetaqClient(metaq_config(address, config)) as client:
        await client.stats(address)


async def ask_metaq_blocking(address: str, config: ClientConfig) -> None:
    def ask() -> None:
        with metaq_blocking.MetaqClient(metaq_config(address, config)) as client:
            client.stats(address)

    await asyncio.to_thread(ask)


async def ask_rocketmq(address: str, config: ClientConfig) -> None:
    async with Client(replace(config, bootstrap=(address,))) as client:
        await client.admin.topics()


async def ask_rocketmq_blocking(address: str, config: ClientConfig) -> None:
    def ask() -> None:
        with rocketmq_blocking.Client(replace(config, bootstrap=(address,))) as client:
            client.admin.topics()

    await asyncio.to_thread(ask)


METAQ, ROCKETMQ = (ask_metaq, ask_metaq_blocking), (ask_rocketmq, ask_rocketmq_blocking)
PLAIN = ClientConfig(bootstrap=("unused:1",))


def trusting(authority: Authority) -> ClientConfig:
    return replace(PLAIN, tls_ca_file=str(authority.file))


async def said(ask: Ask, address: str, config: ClientConfig) -> tuple[str, str]:
    """What the client says, and the cure that commands add."""
    with pytest.raises(CommandError) as raised, client_errors():
        await ask(address, config)
    assert isinstance(raised.value.__cause__, ConnectionLostError)
    return str(raised.value), raised.value.cure


async def test_tls_at_ports_without_it(tmp_path: Path, authority: Authority) -> None:
    async with running_broker(tmp_path, "topics.orders.queues=1") as broker:
        ports = broker.ports
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for asks, port in ((METAQ, ports.metaq_port), (ROCKETMQ, ports.namesrv_port)):
            for ask in asks:
                text, cure = await said(ask, f"localhost:{port}", trusting(authority))
                assert "closed the connection at the TLS handshake; does this port serve" in text
                assert "is the server running" not in text
                assert "unset it" in cure
        assert loop.time() - begun < trusting(authority).connect_timeout_s, "it was told at once"


async def test_ports_that_serve_tls_alone(
    tmp_path: Path, authority: Authority, stranger: Authority
) -> None:
    own = Pair(tmp_path / "tls.pem", tmp_path / "tls.key")
    authority.issue("server").copy_to(own)
    settings = (
        *(f"tls.certificate_file={own.certificate}", f"tls.key_file={own.key}"),
        *("tls.mode=enforcing", "tls.metaq_port=0"),
    )
    async with running_broker(tmp_path / "data", *settings) as broker:
        ports = broker.ports
        for asks, port in ((METAQ, ports.metaq_tls.port), (ROCKETMQ, ports.namesrv_port)):
            for ask in asks:
                address = f"localhost:{port}"
                text, cure = await said(ask, address, PLAIN)
                assert "closed; does this port ask for TLS (tls_ca_file)?" in text.replace(
                    "closed the connection", "closed"
                )
                assert "is the server running" not in text
                assert "export IMAGO_TLS_CA" in cure
                text, cure = await said(ask, address, trusting(stranger))
                assert "not trusted: unable to get local issuer certificate; tls_ca_file" in text
                assert f"({stranger.file}) must hold" in text
                assert "IMAGO_TLS_CA names the file" in cure
        for ask in METAQ:
            named = replace(PLAIN, user="ann", password="password")
            text, cure = await said(ask, f"localhost:{ports.metaq_tls.port}", named)
            assert "when user ann was named; does this port ask for TLS" in text
            assert "export IMAGO_TLS_CA" in cure


@pytest.mark.parametrize("ca", [None, "ca.pem"])
def test_a_connection_that_ends_at_its_user_asks_of_tls_where_there_is_none(
    ca: str | None,
) -> None:
    credentials = UserCredentials("ann", "password")
    told = MetaqConfig(servers=("h:1",), tls_ca_file=ca)
    lost = Introduction("h:1", credentials).closed(ConnectionLostError("h:1", "closed"), told)
    assert ("TLS" in str(lost)) is (ca is None)
    assert "Others know no users" in str(lost)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a port that takes connections and says nothing."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("ask", [*METAQ, *ROCKETMQ])
async def test_a_server_that_does_not_answer_a_handshake(
    ask: Ask, silent: str, authority: Authority
) -> None:
    config = replace(trusting(authority), connect_timeout_s=0.2)
    text, cure = await said(ask, silent, config)
    assert "TLS" in text.partition(";")[0]
    assert "does this port serve TLS?" in text
    assert "unset it" in cure


@pytest.mark.parametrize("ask", [*METAQ, *ROCKETMQ])
async def test_nobody_is_there(ask: Ask, authority: Authority) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    for config in (PLAIN, trusting(authority)):
        text, cure = await said(ask, address, config)
        assert (
            text == f"{address}: Connection refused; is the server running and reachable from here?"
        )
        assert "`imago up` starts a cluster" in cure
        assert "--bootstrap" in cure
