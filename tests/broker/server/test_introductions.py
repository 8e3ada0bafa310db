"""What a broker says first of a client whose requests it passes on, and who believes it."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import Introduced, User
from imago_broker.server import introduction_entry, introductions
from imago_broker.server.introductions import (
    FIRST_BYTE,
    TAKEN,
    IntroductionError,
    Introductions,
    target_of,
)
from imago_broker.service.access.access_edits import Actor
from imago_testing.clusters.brokers import running_broker
from imago_testing.clusters.roles import step_down
from imago_testing.peers.metaq import MetaqPeer, metaq_peer, put_frame
from imago_testing.peers.remoting import RemotingPeer, send_ext
from imago_testing.peers.signing import call_signed
from imago_testing.processes.certificates import Authority
from imago_testing.virtual.clocks import ManualClock
from imago_wire.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.app import Broker

BY = Actor("the tests", "nowhere")
ANN = Introduced("ann", "10.1.2.3", 4567)
TARGET = "10.0.0.1:10911"


class Sides:
    """Two brokers that have the same token, and a clock."""

    def __init__(self) -> None:
        self.clock, self.count, self.key = ManualClock(), 0, "sesame"
        self.clock.advance(1 << 40)
        self.former, self.following = self._side(), self._side()

    def _side(self) -> Introductions:
        return Introductions(
            key=lambda: self.key, epoch_ms=self.clock.epoch_ms, random_bytes=self._number
        )

    def _number(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")


def test_they_count_once_for_their_port_and_now() -> None:
    sides = Sides()
    said = sides.former.written(ANN, TARGET)
    for size in range(len(said)):
        assert sides.following.read(said[:size], TARGET) is None
    with pytest.raises(IntroductionError, match="for this port"):
        sides.following.read(said, "10.0.0.2:10911")
    assert sides.following.read(said + b"more", TARGET) == (ANN, len(said))
    with pytest.raises(IntroductionError, match="used already"):
        sides.following.read(said, TARGET)
    with pytest.raises(IntroductionError, match="no introduction"):
        sides.following.read(b"\x02" + sides.former.written(ANN, TARGET)[1:], TARGET)
    late, early = sides.former.written(ANN, TARGET), sides.former.written(ANN, TARGET)
    sides.clock.advance(introductions.CLOCKS_DIFFER_MS_MAX)
    assert sides.following.read(late, TARGET) is not None
    sides.clock.advance(1)
    for old in (said, early):
        with pytest.raises(IntroductionError, match="another time"):
            sides.following.read(old, TARGET)


def test_what_is_changed_or_made_without_the_token_is_refused() -> None:
    sides = Sides()
    said = sides.former.written(ANN, TARGET)
    for at in range(3, len(said)):
        changed = bytearray(said)
        changed[at] ^= 1
        with pytest.raises(IntroductionError):
            sides.following.read(changed, TARGET)
    for size in (0, 32, introductions.SIZE_MAX + 1, 0xFFFF):
        with pytest.raises(IntroductionError, match="of"):
            sides.following.read(bytes((FIRST_BYTE, *size.to_bytes(2, "big"))), TARGET)
    sides.key = ""
    without = sides.former.written(ANN, TARGET)
    with pytest.raises(IntroductionError, match="no broker of ours"):
        sides.following.read(without, TARGET)


def test_what_is_remembered_has_a_limit_and_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introductions, "NUMBERS_MAX", 2)
    sides = Sides()
    for _ in range(2):
        assert sides.following.read(sides.former.written(ANN, TARGET), TARGET) is not None
    with pytest.raises(IntroductionError, match="more than 2"):
        sides.following.read(sides.former.written(ANN, TARGET), TARGET)
    sides.clock.advance(introductions.CLOCKS_DIFFER_MS_MAX + 1)
    assert sides.following.read(sides.former.written(ANN, TARGET), TARGET) is not None


def test_those_from_before_a_start_are_refused() -> None:
    sides = Sides()
    said = sides.former.written(ANN, TARGET)
    sides.clock.advance(1)
    sides.following = sides._side()
    with pytest.raises(IntroductionError, match="before this broker's start"):
        sides.following.read(said, TARGET)


# Whole brokers


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
async def brokers(tmp_path: Path, authority: Authority) -> AsyncIterator[tuple[Broker, Broker]]:
    """The former master and the new one, with access control, TLS and the topic T."""
    (tmp_path / "token").write_text("sesame")
    pair = authority.issue("the-broker")
    settings = (
        "acl.enabled=true",
        f"admin.token_file={tmp_path / 'token'}",
        f"tls.certificate_file={pair.certificate}",
        f"tls.key_file={pair.key}",
        f"tls.ca_file={authority.file}",
        "tls.client_auth=optional",
        "topics.T.queues=1",
    )
    async with (
        running_broker(tmp_path / "former", *settings) as former,
        running_broker(tmp_path / "next", *settings) as following,
    ):
        yield former, following


def allow(broker: Broker, name: str, *hosts: str) -> None:
    rules = [AccessRule(Resource(AccessKind.TOPIC, "T"), frozenset(Operation), hosts)]
    if name == "anonymous":
        broker.core.access.set_rules(name, rules, BY)
    else:
        broker.core.access.put_account(User(name=name, secret=f"secret-{name}"), rules, BY)


async def relayed(former: Broker, following: Broker) -> None:
    """Have the former master pass requests on, at once: not by running out of patience."""
    former.client_ports.relay_to(following.record(), 60_000)
    async with asyncio.timeout(50):
        while former.client_ports.waiting:  # noqa: ASYNC110  what another task comes to
            await asyncio.sleep(0.001)
    assert former.client_ports.relaying, "the new master was not asked whether it leads"
    step_down(former)


def count(broker: Broker) -> int:
    return broker.store.queue_range("T", 0)[1]


async def test_requests_are_passed_on_with_access_control(
    brokers: tuple[Broker, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    from imago_broker.server import client_ports

    monkeypatch.setattr(client_ports, "HOLD_SECONDS_MAX", 600)
    former, following = brokers
    for each in brokers:
        allow(each, "ann")
    peer = await RemotingPeer.connect(former.rocketmq_port)
    await relayed(former, following)
    for user, code in (("ann", 0), ("eve", ResponseCode.NO_PERMISSION)):
        ext = send_ext("T")
        said = await call_signed(
            peer, RequestCode.SEND_MESSAGE_V2, ext, b"x", user=user, secret=f"secret-{user}"
        )
        assert said.code == code
    assert (count(former), count(following)) == (0, 1)
    await peer.close()


async def test_brokers_that_are_known_by_names_pass_requests_on(tmp_path: Path) -> None:
    """As pods are: whoever asks whether the next one leads has no address to tell."""
    (tmp_path / "token").write_text("sesame")
    settings = (
        "acl.enabled=true",
        f"admin.token_file={tmp_path / 'token'}",
        "broker.host=localhost",
        "topics.T.queues=1",
    )
    async with (
        running_broker(tmp_path / "former", *settings) as former,
        running_broker(tmp_path / "next", *settings) as following,
    ):
        assert following.record().host == "localhost"
        for each in (former, following):
            allow(each, "anonymous")
        peer = await RemotingPeer.connect(former.rocketmq_port)
        await relayed(former, following)
        said = await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x")
        assert (said.code, count(former), count(following)) == (0, 0, 1)
        await peer.close()


async def test_a_relayed_client_is_not_the_broker_that_passes_it_on(
    brokers: tuple[Broker, Broker], authority: Authority
) -> None:
    """Neither its certificate nor its address."""
    former, following = brokers
    for each in brokers:
        allow(each, "ann")
        allow(each, "the-broker")
        allow(each, "anonymous", "127.0.0.9")
    peers = {}
    for name in ("ann", "bob", ""):
        context = ssl.create_default_context(cafile=str(authority.file))
        if name:
            pair = authority.issue(name)
            context.load_cert_chain(pair.certificate, pair.key)
        port = former.rocketmq_port
        peers[name] = RemotingPeer(*await asyncio.open_connection("localhost", port, ssl=context))
    peers["near"] = await _from("127.0.0.9", former.rocketmq_port)
    peers["far"] = await _from("127.0.0.8", former.rocketmq_port)
    await relayed(former, following)
    codes = {}
    for name, peer in peers.items():
        said = await peer.call(RequestCode.SEND_MESSAGE_V2, send_ext("T"), b"x")
        codes[name] = said.code
        await peer.close()
    no = ResponseCode.NO_PERMISSION
    assert codes == {"ann": 0, "bob": no, "": no, "near": 0, "far": no}
    assert (count(former), count(following)) == (0, 2)


async def _from(host: str, port: int) -> RemotingPeer:
    return RemotingPeer(*await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0)))


async def test_metaq_clients_keep_their_address(brokers: tuple[Broker, Broker]) -> None:
    former, following = brokers
    for each in brokers:
        allow(each, "anonymous", "127.0.0.9")
    found = {}
    peers = {}
    for host in ("127.0.0.9", "127.0.0.8"):
        streams = await asyncio.open_connection(
            "127.0.0.1", former.metaq_port, local_addr=(host, 0)
        )
        peers[host] = MetaqPeer(*streams)
    await relayed(former, following)
    for host, peer in peers.items():
        found[host] = (await peer.put("T", 0, b"x")).split()[1]
        peer.writer.close()
    assert found == {"127.0.0.9": b"200", "127.0.0.8": b"403"}
    assert (count(former), count(following)) == (0, 1)


@pytest.mark.parametrize("pieces", [1, 5, 1000])
async def test_an_introduction_in_pieces(brokers: tuple[Broker, Broker], pieces: int) -> None:
    former, following = brokers
    allow(following, "anonymous", "10.1.2.3")
    own = following.record()
    said = former.client_ports._introductions
    assert said is not None
    data = said.written(ANN._replace(user=""), target_of(own.host, own.metaq))
    data += put_frame("T", 0, b"hello")
    async with metaq_peer(following.metaq_port) as peer:
        for at in range(0, len(data), pieces):
            peer.writer.write(data[at : at + pieces])
            await asyncio.sleep(0)
        assert await peer.reader.readexactly(1) == TAKEN
        assert (await peer.frame()).split()[1] == b"200"
    async with metaq_peer(following.metaq_port) as peer:
        peer.writer.write(data)
        assert await peer.is_closed_without_an_answer(), "it counts once"


async def test_who_says_nothing_is_served_later(
    brokers: tuple[Broker, Broker],
) -> None:
    _, following = brokers
    listener = following.ports.metaq
    async with metaq_peer(following.metaq_port) as peer:
        while not listener.sessions:  # noqa: ASYNC110  what the loop comes to
            await asyncio.sleep(0.001)
        (entry,) = listener.sessions
        assert isinstance(entry, introduction_entry.IntroductionEntry)
        limit_ms = introduction_entry.WAIT_SECONDS_MAX * 1000
        entry.sweep(entry._since_ms + limit_ms)
        assert listener.sessions == {entry}
        entry.sweep(entry._since_ms + limit_ms + 1)
        assert (len(listener.sessions), entry in listener.sessions) == (1, False)
        assert (await peer.ask(b"version 1\r\n")).startswith(b"result 200 ")
    async with metaq_peer(following.metaq_port) as peer:
        peer.writer.write(bytes((FIRST_BYTE,)))
        while not any(getattr(each, "_told", b"") for each in listener.sessions):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        for each in listener.sessions:
            each.sweep(1 << 62)
        with contextlib.suppress(ConnectionError):
            assert await peer.reader.read() == b""
