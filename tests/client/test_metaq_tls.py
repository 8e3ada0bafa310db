"""The Python MetaQ clients over TLS: whom they trust, and what they show."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from imago_client import UsageError
from imago_client.blocking import metaq as blocking
from imago_client.errors import ConnectionLostError
from imago_client.metaq import MetaqClient, MetaqConfig, Partition
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
