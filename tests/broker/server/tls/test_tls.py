"""TLS on the ports of a whole broker: who is served, with which certificate, and who is not."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.core import client_hello
from imago_broker.errors import FatalError
from imago_broker.server.tls import tls_certificates, tls_entry
from imago_client import Client, Message
from imago_client.blocking import Client as BlockingClient
from imago_client.config import ClientConfig, parse_addresses
from imago_client.errors import ConnectionLostError, SendFailedError
from imago_testing.clusters.brokers import loopback_config, running_broker
from imago_testing.clusters.roles import step_down
from imago_testing.peers.metaq import MetaqPeer, put_frame, put_place, value_body
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.processes.certificates import Authority, Pair
from imago_wire.remoting.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def pair(authority: Authority, tmp_path: Path) -> Pair:
    """The files that the broker is given."""
    own = Pair(tmp_path / "tls.pem", tmp_path / "tls.key")
    authority.issue("server").copy_to(own)
    return own


def tls_settings(pair: Pair, *more: str) -> list[str]:
    files = [f"tls.certificate_file={pair.certificate}", f"tls.key_file={pair.key}"]
    return [*files, "tls.metaq_port=0", *more]


@pytest.fixture
async def broker(pair: Pair, tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", *tls_settings(pair)) as started:
        yield started


@pytest.fixture
async def enforcing(pair: Pair, tmp_path: Path) -> AsyncIterator[Broker]:
    settings = tls_settings(pair, "tls.mode=enforcing")
    async with running_broker(tmp_path / "data", *settings) as started:
        yield started


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


async def secured(port: int, context: ssl.SSLContext) -> RemotingPeer:
    return RemotingPeer(*await asyncio.open_connection("localhost", port, ssl=context))


async def is_refused(port: int, context: ssl.SSLContext) -> bool:
    """Whether no request is served: TLS 1.3 says so only after the client's last word."""
    try:
        peer = await secured(port, context)
    except OSError:
        return True
    try:
        await peer.call(RequestCode.GET_BROKER_CONFIG)
    except (OSError, EOFError):
        return True
    finally:
        with contextlib.suppress(OSError):
            await peer.close()
    return False


async def shown(port: int, context: ssl.SSLContext) -> bytes:
    """Return the certificate that a new connection is shown."""
    reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
    del reader
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


async def test_one_port_serves_both_and_the_messages_are_the_same(
    broker: Broker, authority: Authority
) -> None:
    plain = await RemotingPeer.connect(broker.rocketmq_port)
    tls = await secured(broker.rocketmq_port, trusting(authority))
    for number, peer in enumerate((plain, tls)):
        sent = await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"body")
        assert (sent.code, sent.ext["queueOffset"]) == (0, str(number))
    door = broker.ports.rocketmq.door
    assert door is not None
    assert (door.handshakes, door.failures.count) == (1, 0)
    assert broker.ports.rocketmq.connections == 2
    await tls.close()
    await plain.close()


async def test_requests_in_the_clients_first_words_are_served(
    broker: Broker, authority: Authority
) -> None:
    peer = await secured(broker.rocketmq_port, trusting(authority))
    asked = [peer.send(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x" * 9000) for _ in range(50)]
    for opaque in asked:
        assert (await peer.answer(opaque)).code == 0
    await peer.close()


async def test_enforcing_serves_nobody_without_tls(enforcing: Broker, authority: Authority) -> None:
    for listener in (enforcing.ports.rocketmq, enforcing.ports.fast, enforcing.ports.names):
        peer = await RemotingPeer.connect(listener.port)
        peer.send(RequestCode.GET_BROKER_CONFIG)
        assert await peer.closed()
        await peer.close()
        assert not await is_refused(listener.port, trusting(authority))
    door = enforcing.ports.rocketmq.door
    assert door is not None
    assert door.failures.count == 1


async def test_without_a_certificate_a_handshake_is_refused(
    tmp_path: Path, authority: Authority
) -> None:
    async with running_broker(tmp_path / "data") as started:
        assert await is_refused(started.rocketmq_port, trusting(authority))


async def test_metaq_has_a_port_of_its_own_where_files_are_encrypted_too(
    broker: Broker, authority: Authority
) -> None:
    """Long answers go from files to sockets by the kernel, but never past TLS."""
    body = b"marked body " * 4000
    port, context = broker.ports.metaq_tls.port, trusting(authority)
    created = await RemotingPeer.connect(broker.rocketmq_port)
    await created.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"first")
    await created.close()
    peer = MetaqPeer(*await asyncio.open_connection("localhost", port, ssl=context))
    answers = [await peer.ask(put_frame("T", 0, body)) for _ in range(8)]
    _, _, position = put_place(answers[0])
    for _ in range(20):
        assert body in value_body(await peer.get("T", 0, position))
    plain = MetaqPeer(*await asyncio.open_connection("127.0.0.1", port))
    await plain.send(b"version\r\n")
    assert await plain.is_closed_without_an_answer()
    plain.writer.close()
    peer.writer.close()


async def test_the_admin_port_answers_https_and_http(broker: Broker, authority: Authority) -> None:
    port = broker.ports.admin_port
    text = ""
    async with aiohttp.ClientSession() as session:
        for scheme in ("https", "http"):
            url = f"{scheme}://localhost:{port}/metrics"
            async with session.get(url, ssl=trusting(authority)) as answer:
                assert answer.status == 200
                text = await answer.text()
    assert "imago_tls_certificate_expires_seconds" in text
    assert "imago_tls_certificate_refused 0" in text


async def test_wrong_authority_and_wrong_host_are_seen_by_clients(
    broker: Broker, authority: Authority, tmp_path: Path, pair: Pair
) -> None:
    other = Authority(tmp_path / "other")
    assert await is_refused(broker.rocketmq_port, trusting(other))
    authority.issue("elsewhere", hosts="DNS:elsewhere.example").copy_to(pair)
    await reloaded(broker)
    assert await is_refused(broker.rocketmq_port, trusting(authority))


@pytest.mark.parametrize(
    ("version", "served"), [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)]
)
async def test_openssl_finds_tls_of_today_only(
    broker: Broker, authority: Authority, version: str, served: bool
) -> None:
    connect = f"localhost:{broker.rocketmq_port}"
    command = ["openssl", "s_client", "-connect", connect, "-CAfile", str(authority.file)]
    command += ["-verify_return_error", "-verify_hostname", "localhost", version]
    command += ["-cipher", "ALL:@SECLEVEL=0"]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert (b"Verify return code: 0 (ok)" in out and process.returncode == 0) == served, out


async def test_clients_show_certificates_where_they_are_required(
    pair: Pair, tmp_path: Path, authority: Authority
) -> None:
    settings = tls_settings(
        pair, "tls.mode=enforcing", "tls.client_auth=required", f"tls.ca_file={authority.file}"
    )
    async with running_broker(tmp_path / "data", *settings) as started:
        nobody = trusting(authority)
        assert await is_refused(started.rocketmq_port, nobody)
        stranger = trusting(authority)
        strange = Authority(tmp_path / "strange").issue("client")
        stranger.load_cert_chain(strange.certificate, strange.key)
        assert await is_refused(started.rocketmq_port, stranger)
        known = trusting(authority)
        own = authority.issue("client")
        known.load_cert_chain(own.certificate, own.key)
        assert not await is_refused(started.rocketmq_port, known)


async def reloaded(broker: Broker) -> str:
    """Have the broker look at its files; return what it says against them."""
    certificates = broker.ports.certificates
    assert certificates is not None
    await asyncio.to_thread(certificates.refresh)
    return certificates.problem


async def test_a_new_certificate_is_taken_and_no_connection_is_dropped(
    broker: Broker, authority: Authority, pair: Pair
) -> None:
    context, port = trusting(authority), broker.rocketmq_port
    peer = await secured(port, context)
    before = await shown(port, context)
    authority.issue("next").copy_to(pair)
    certificates = broker.ports.certificates
    assert certificates is not None
    while certificates.loaded == 1:  # noqa: ASYNC110  the broker looks by itself
        await asyncio.sleep(0.05)
    assert await shown(port, context) != before
    sent = await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"body")
    assert sent.code == 0
    await peer.close()


@pytest.mark.parametrize("fault", ["half written", "other key", "expired", "gone"])
async def test_files_that_cannot_be_used_leave_the_former_certificate_in_force(
    broker: Broker, authority: Authority, pair: Pair, fault: str
) -> None:
    context, port = trusting(authority), broker.rocketmq_port
    before = await shown(port, context)
    if fault == "half written":
        pair.certificate.write_bytes(pair.certificate.read_bytes()[:200])
    elif fault == "other key":
        pair.key.write_bytes(authority.issue("other").key.read_bytes())
    elif fault == "expired":
        authority.issue("old", days=-1).copy_to(pair)
    else:
        pair.certificate.unlink()
    problem = await reloaded(broker)
    assert str(pair.certificate) in problem
    assert await shown(port, context) == before
    authority.issue("good").copy_to(pair)
    assert await reloaded(broker) == ""
    assert await shown(port, context) != before


async def test_a_broker_names_the_file_that_keeps_it_from_starting(
    pair: Pair, tmp_path: Path
) -> None:
    pair.key.write_text("no key")
    with pytest.raises(FatalError, match=r"tls\.key.*set tls\.certificate_file"):
        async with running_broker(tmp_path / "data", *tls_settings(pair)):
            pass


async def test_first_words_larger_than_any_handshake_begins_with_are_not_kept(
    broker: Broker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would wait for their turn, with whatever a read brings."""
    listener = broker.ports.rocketmq
    hello = b"\x16\x03\x01\x10\x00"
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(hello + bytes(client_hello.FIRST_BYTES_MAX))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert listener.door is not None
    assert listener.door.failures.count == 1
    assert not await is_refused(listener.port, trusting(authority))
    monkeypatch.setattr(client_hello, "FIRST_BYTES_MAX", 16)
    assert await is_refused(listener.port, trusting(authority))


async def test_peers_that_do_not_finish_their_handshake_are_closed(
    broker: Broker,
) -> None:
    listener = broker.ports.rocketmq
    for first in (b"", b"\x16\x03\x01"):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(first)
        while not listener.connections:  # noqa: ASYNC110  the loop accepts it
            await asyncio.sleep(0.001)
        assert listener.places.held("127.0.0.1") == 1
        (session,) = listener.sessions
        assert isinstance(session, tls_entry.TlsEntry)
        limit_ms = tls_entry.HANDSHAKE_SECONDS_MAX * 1000
        session.sweep(session._since_ms + limit_ms)
        assert listener.connections == 1
        session.sweep(session._since_ms + limit_ms + 1)
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        await listener.until_connections(0)
        writer.close()


async def test_the_python_client_follows_the_file_of_those_whom_it_trusts(
    enforcing: Broker, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "former").mkdir()
    trusted = tmp_path / "ca.crt"
    trusted.write_text(Authority(tmp_path / "former").file.read_text())
    bootstrap = parse_addresses(f"localhost:{enforcing.ports.namesrv_port}")
    config = ClientConfig(bootstrap=bootstrap, tls_ca_file=str(trusted), failover_timeout_s=0.1)
    async with Client(config) as client:
        with pytest.raises(ConnectionLostError, match="its certificate is not trusted"):
            await client.admin.topics()
        trusted.write_text(authority.file.read_text())
        assert await client.admin.topics()


async def test_the_python_clients_speak_tls(enforcing: Broker, authority: Authority) -> None:
    address = f"localhost:{enforcing.ports.namesrv_port}"
    config = ClientConfig(bootstrap=parse_addresses(address), tls_ca_file=str(authority.file))
    async with Client(config) as client:
        sent = await client.producer().send(Message("T", b"by asyncio"))
        assert sent.offset == 0

    def blocking() -> None:
        with BlockingClient(config) as client:
            client.producer().send(Message("T", b"blocking"))

    await asyncio.to_thread(blocking)
    async with Client(address) as client:
        with pytest.raises(SendFailedError, match="not acknowledged"):
            await client.producer().send(Message("T", b"in the clear"))


@pytest.mark.parametrize(
    ("mode", "next_mode"),
    [("enforcing", "enforcing"), ("permissive", "enforcing"), ("enforcing", "permissive")],
)
async def test_a_former_master_passes_requests_on_with_tls(
    pair: Pair, tmp_path: Path, authority: Authority, mode: str, next_mode: str
) -> None:
    """A shard that changes over has members that serve TLS only, and others, for a while."""
    settings = tls_settings(pair, f"tls.ca_file={authority.file}")
    async with (
        running_broker(tmp_path / "former", *settings, f"tls.mode={mode}") as former,
        running_broker(tmp_path / "next", *settings, f"tls.mode={next_mode}") as following,
    ):
        peer = await secured(former.rocketmq_port, trusting(authority))
        other = await secured(following.rocketmq_port, trusting(authority))
        for each in (peer, other):
            await each.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"first")
        former.client_ports.relay_to(following.record(), 60_000)
        while former.client_ports.waiting:  # noqa: ASYNC110  what another task comes to
            await asyncio.sleep(0.001)
        step_down(former)
        sent = await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"there")
        assert sent.code == 0
        assert following.store.queue_range("T", 0)[1] == 2
        await peer.close()
        await other.close()


def test_the_files_are_looked_at_more_often_than_certificates_end() -> None:
    assert tls_certificates.CHECK_SECONDS <= tls_certificates.RETRY_SECONDS


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["tls.mode=enforcing"], "tls.mode = enforcing: needs a certificate"),
        (["tls.metaq_port=0"], "tls.metaq_port: needs a certificate"),
        (["tls.key_file=k"], "tls.key_file: needs a certificate"),
        (["tls.certificate_file=c"], "set tls.key_file"),
        (
            ["tls.certificate_file=c", "tls.key_file=k", "tls.client_auth=required"],
            "set tls.client_ca_file or tls.ca_file",
        ),
        (
            ["tls.certificate_file=c", "tls.key_file=k", "tls.admin_client_auth=required"],
            "tls.admin_client_auth: required, needs authorities",
        ),
        (["tls.client_ca_file=c"], "tls.client_ca_file: needs a certificate"),
        (
            ["tls.certificate_file=c", "tls.key_file=k", "tls.client_ca_file=c"],
            "nobody is asked for a certificate: set tls.client_auth",
        ),
    ],
)
def test_tls_that_lacks_something_names_it(settings: list[str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=said):
        loopback_config(tmp_path, *settings)
