"""Members over TLS: nobody becomes one, reads the log or writes into it by reaching the port."""

from __future__ import annotations

import asyncio
import ssl
import time
from itertools import count
from typing import TYPE_CHECKING, cast

import pytest

from imago_broker.core.client_hello import FIRST_BYTES_MAX
from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.errors import FatalError
from imago_broker.replication.leader.leader_session import GREETING_MS
from imago_broker.replication.links import secure_link
from imago_broker.replication.links.member_tls import member_uri
from imago_broker.replication.links.secure_link import SecureLink
from imago_broker.replication.links.unauthenticated_peers import Silent
from imago_broker.server.tls.handshake_queue import BUDGET_SECONDS
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_testing.peers.tls_hellos import (
    ASKS_AGAIN,
    client,
    first_and_second,
    in_records,
    of_version,
)
from imago_testing.processes.capture import Capture
from imago_testing.processes.certificates import LOOPBACK, Authority, Pair
from imago_wire.replication.decoder import FrameDecoder
from imago_wire.replication.encoder import encode
from imago_wire.replication.frames import Hello, Refuse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from imago_broker.replication.links.link import Link

URI = member_uri("imago", 0)
BODIES = 1000


def named(*uris: str) -> str:
    return ",".join((LOOPBACK, *(f"URI:{uri}" for uri in uris)))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def member(authority: Authority) -> Pair:
    return authority.issue("member", hosts=named(URI))


def settings(authority: Authority, pair: Pair, mode: str = "enforcing") -> tuple[str, ...]:
    return (
        f"tls.certificate_file={pair.certificate}",
        f"tls.key_file={pair.key}",
        f"tls.ca_file={authority.file}",
        f"tls.replication={mode}",
    )


@pytest.fixture
async def shard(tmp_path: Path, authority: Authority, member: Pair) -> AsyncIterator[ShardBrokers]:
    made = ShardBrokers(tmp_path, *settings(authority, member))
    yield made
    await made.close()


def link_of(shard: ShardBrokers, number: int) -> object:
    """The connection of a follower to its leader."""
    following = shard.shell(number).executor.following
    return following and following.session and following.session.link


@pytest.mark.parametrize("chunk", [secure_link.CHUNK_BYTES, 700])
async def test_members_replicate_over_tls(
    shard: ShardBrokers, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(secure_link, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(secure_link, "READ_BYTES", chunk)
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    sizes = (1, 500, 701, 20_000, 300_000)
    bodies = [b"%d" % size * (size // 4 + 1) for size in sizes]
    assert set(await shard.put(0, *bodies, level=Acknowledgement.REPLICATED_FSYNC)) == {
        PutStatus.OK
    }
    await shard.start(2)  # it copies what is in files
    await shard.all_in_sync(0, 1, 2)
    await shard.same_logs()
    await until(lambda: shard.bodies(2) == bodies)
    assert all(isinstance(link_of(shard, number), SecureLink) for number in (1, 2))
    await shard.kill(0)
    leader = await shard.led()
    assert await shard.put(leader, b"after") == [PutStatus.OK]


async def greeting(shard: ShardBrokers, context: ssl.SSLContext | None) -> bytes:
    """Say to the leader what its own follower would, and return what comes of it."""
    broker = shard.brokers[0]
    own = broker.coordinator.registered
    assert own is not None
    said = Hello(
        epoch=0,
        cluster_id=broker.coordinator.view().cluster_id,
        shard=0,
        uuid=own.uuid,
        incarnation=own.incarnation,
        epochs=(),
        log_start=0,
        log_end=0,
    )
    port = broker.ports.replication.port
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(encode(said))
        heard = await asyncio.wait_for(reader.read(1 << 16), 50)
        writer.close()
    except OSError:
        return b""
    return heard


def calling(authority: Authority, pair: Pair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    context.check_hostname = False
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


async def test_who_has_a_members_certificate_is_answered(
    shard: ShardBrokers, authority: Authority, member: Pair
) -> None:
    await shard.start(0)
    (answer,) = FrameDecoder().feed(await greeting(shard, calling(authority, member)))
    assert isinstance(answer, Refuse), "a member, but none that follows itself"


@pytest.mark.parametrize(
    ("who", "said"),
    [
        ("nobody", "peer did not return a certificate"),
        ("client", "not imago://imago/shard-0"),
        (
            "other shard",
            "names DNS:localhost, IP Address:127.0.0.1, URI:imago://imago/shard-1, not",
        ),
        ("other cluster", "URI:imago://other/shard-0, not imago://imago/shard-0"),
        ("host of that name", "DNS:imago://imago/shard-0, not imago://imago/shard-0"),
        ("mail of that name", "email:imago://imago/shard-0, not imago://imago/shard-0"),
        ("expired", "certificate has expired"),
        ("wrong authority", "unable to get local issuer certificate"),
        ("plain", ""),
    ],
)
async def test_nobody_else_hears_a_word(
    shard: ShardBrokers, authority: Authority, tmp_path: Path, who: str, said: str
) -> None:
    stranger = Authority(tmp_path / "stranger")
    pairs: dict[str, Callable[[], Pair | None]] = {
        "nobody": lambda: None,
        "client": lambda: authority.issue("client"),
        "other shard": lambda: authority.issue("shard", hosts=named(member_uri("imago", 1))),
        "other cluster": lambda: authority.issue("other", hosts=named(member_uri("other", 0))),
        # Only what names a member as a URI is one: hosts' names are issued to who has the host.
        "host of that name": lambda: authority.issue("host", hosts=f"{LOOPBACK},DNS:{URI}"),
        "mail of that name": lambda: authority.issue("mail", hosts=f"{LOOPBACK},email:{URI}"),
        "expired": lambda: authority.issue("expired", hosts=named(URI), days=-1),
        "wrong authority": lambda: stranger.issue("wrong", hosts=named(URI)),
    }
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    assert await shard.put(0, b"secret") == [PutStatus.OK]
    context = calling(authority, pairs[who]()) if who in pairs else None
    assert await greeting(shard, context) == b""
    refused = shard.brokers[0].ports.replication.refused
    await until(lambda: refused.count["tls"] == 1)
    assert await shard.put(0, b"goes on") == [PutStatus.OK]
    assert any(said in each for each in refused.details)


@pytest.mark.parametrize("wrong", ["other shard", "wrong authority", "none"])
async def test_a_member_follows_nobody_who_is_none(
    shard: ShardBrokers, authority: Authority, tmp_path: Path, wrong: str
) -> None:
    """The leader has a certificate of another shard, of another authority, or no TLS at all."""
    other = member_uri("imago", 7)
    if wrong == "wrong authority":
        stranger = Authority(tmp_path / "stranger")
        shard.more[0] = settings(stranger, stranger.issue("wrong", hosts=named(URI)))
    if wrong == "none":
        shard.more[0] = ("tls.replication=disabled",)
    await shard.start(0)
    if wrong == "other shard":  # what no broker starts with, put in force by a mistake of ours
        bad = authority.issue("bad", hosts=named(other))
        contexts = shard.brokers[0].ports.certificates
        assert contexts is not None
        contexts.contexts.members.load_cert_chain(bad.certificate, bad.key)
    await shard.start(1)
    await until(lambda: bool(shard.shell(1).obstacle))
    assert shard.in_sync(0) == {0}
    assert shard.store(1).log_end == 0
    expected = {
        "other shard": "not imago://imago/shard-0",
        "wrong authority": "the other side's certificate: self-signed certificate in",
        "none": "wrong version number",
    }
    await until(lambda: expected[wrong] in shard.shell(1).obstacle)


@pytest.mark.full
async def test_members_connect_while_strangers_wait_for_their_handshakes(
    shard: ShardBrokers,
) -> None:
    """Any number of those who begin one, on the replication port and on clients' ports."""
    shard.more[0] = (*shard.more.get(0, ()), "tls.handshakes_per_second_max=2")
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    ports = shard.brokers[0].ports
    hello = bytes.fromhex("1603010005010000010000")  # of a handshake that never goes on
    storm = [
        await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.1.{n}", 0))
        for n in range(1, 61)
        for port in (ports.replication.port, ports.rocketmq.port)
    ]
    for _, writer in storm:
        writer.write(hello)
    await until(lambda: ports.handshakes.waiting >= 100)
    assert await shard.put(0, b"over connections that are open") == [PutStatus.OK]
    await shard.kill(1)
    await shard.start(1)
    await shard.all_in_sync(0, 1)
    assert ports.handshakes.waiting >= 50, "it had its turn before them"
    assert await shard.put(0, b"after") == [PutStatus.OK]
    for _, writer in storm:
        writer.close()
    await until(lambda: ports.replication.silent == 0)


async def test_handshakes_of_the_replication_port_are_counted(
    shard: ShardBrokers, monkeypatch: pytest.MonkeyPatch, authority: Authority, member: Pair
) -> None:
    """All that they cost, in parts and asked again; who is no member has no cheaper one."""
    await shard.start(0)
    ports, answers = shard.brokers[0].ports, list[int]()
    assert ports.certificates is not None
    context = ports.certificates.contexts.members
    context.set_ecdh_curve(ASKS_AGAIN)  # which nobody offers at first
    context.sni_callback = lambda *_: answers.append(1)
    monkeypatch.setattr(time, "thread_time", lambda: float(len(answers)))
    stands_s = ports.handshakes._counted_s
    ports.handshakes._clock = lambda: stands_s
    called = asyncio.create_task(greeting(shard, calling(authority, member)))
    await until(lambda: ports.handshakes.waiting == 1)
    assert len(answers) == 1, "the second one has no turn yet"
    ports.handshakes._clock = lambda: stands_s + 60
    assert await called
    assert len(answers) == 2
    assert BUDGET_SECONDS - ports.handshakes._budget_s == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("how", ["of TLS 1.1", "as usual", "in two records"])
async def test_no_second_message_of_a_caller_is_answered_without_a_turn(
    shard: ShardBrokers, how: str
) -> None:
    await shard.start(0)
    ports, answers = shard.brokers[0].ports, list[int]()
    assert ports.certificates is not None
    context = ports.certificates.contexts.members
    context.set_ecdh_curve(ASKS_AGAIN)
    first, second = first_and_second(context)
    context.sni_callback = lambda *_: answers.append(1)
    stands_s, ports.handshakes._cost_s = ports.handshakes._counted_s, 1.0
    ports.handshakes._clock = lambda: stands_s
    _, writer = await asyncio.open_connection("127.0.0.1", ports.replication.port)
    changed = {"of TLS 1.1": of_version(second, 0x0302), "in two records": in_records(second, 1)}
    writer.write(first + changed.get(how, second))  # at once: nobody has to wait for the answer
    await until(lambda: ports.handshakes.waiting == 1)
    assert len(answers) == 1
    leading = shard.shell(0).executor.leading
    assert leading is not None
    (session,) = leading.sessions
    session.check_time(session._began_ms + 10 * GREETING_MS)
    assert leading.sessions == {session}, "its time begins with its turn"
    clock = count(stands_s, 60.0)
    ports.handshakes._clock = lambda: next(clock)
    await until(lambda: len(answers) == 2)
    session.check_time(session._began_ms + GREETING_MS)
    assert not leading.sessions
    writer.close()


@pytest.mark.shipped_limits
async def test_a_caller_who_says_too_much_before_its_turn_is_refused(shard: ShardBrokers) -> None:
    """What is read at once is kept while it waits, of some hundred callers."""
    await shard.start(0)
    ports = shard.brokers[0].ports
    _, _, said = client()
    _, writer = await asyncio.open_connection("127.0.0.1", ports.replication.port)
    writer.write(said.read() + b"\x17\x03\x03\x40\x00" + bytes(FIRST_BYTES_MAX))
    await until(lambda: ports.replication.refused.count["tls"] == 1)
    assert "too long" in ports.replication.refused.details[-1]
    writer.close()


class Called:
    """A connection, as far as its place is concerned."""

    peer = "10.0.0.9"


def test_who_waits_for_its_handshake_keeps_its_place() -> None:
    links = [cast("Link", Called()) for _ in range(3)]
    places = Silent(2, 2)
    for at, link in enumerate(links[:2]):
        places.add(link, float(at))
    places.waits(links[0])
    assert places.full_for(0.5, 1.0) == 0.5
    assert places.in_the_way("10.0.0.1") == [links[1]]
    places.waits(links[1])
    assert places.full_for(0.5, 100.0) == 0.5, "nobody has to go yet"
    places.goes_on(links[0], 100.0)
    assert places.full_for(0.5, 100.25) == 0.25
    assert places.in_the_way("10.0.0.1") == [links[0]]
    places.goes_on(links[2], 1.0)
    assert len(places) == 2, "one that has gone has no place"


async def test_a_shard_changes_over_member_by_member(
    shard: ShardBrokers, authority: Authority, member: Pair
) -> None:
    """No member left behind: from disabled over permissive to enforcing, each restarted alone."""
    for number in (0, 1, 2):
        shard.more[number] = ("tls.replication=disabled",)
    await shard.start(0, 1, 2)
    for mode in ("permissive", "enforcing"):
        for number in (2, 1, 0):
            await shard.all_in_sync(0, 1, 2)
            await shard.stop(number)
            shard.more[number] = settings(authority, member, mode)
            await shard.start(number)
    await shard.all_in_sync(0, 1, 2)
    leader = await shard.led()
    assert await shard.put(leader, b"one") == [PutStatus.OK]
    assert [type(link_of(shard, n)) for n in {0, 1, 2} - {leader}] == [SecureLink] * 2


async def test_a_new_certificate_serves_without_a_dropped_connection(
    tmp_path: Path, authority: Authority
) -> None:
    own = Pair(tmp_path / "tls.pem", tmp_path / "tls.key")
    authority.issue("first", hosts=named(URI)).copy_to(own)
    shard = ShardBrokers(tmp_path, *settings(authority, own))
    try:
        await shard.start(0, 1)
        await shard.all_in_sync(0, 1)
        before = link_of(shard, 1)
        certificates = shard.brokers[0].ports.certificates
        assert certificates is not None
        authority.issue("client-only").copy_to(own)
        await asyncio.to_thread(certificates.refresh)
        assert f"does not name URI:{URI}" in certificates.problem
        authority.issue("second", hosts=named(URI)).copy_to(own)
        await asyncio.to_thread(certificates.refresh)
        assert not certificates.problem
        assert await shard.put(0, b"one") == [PutStatus.OK]
        assert link_of(shard, 1) is before
        await shard.start(2)
        await shard.all_in_sync(0, 1, 2)
    finally:
        await shard.close()


async def test_a_broker_does_not_start_with_a_certificate_that_names_no_member(
    tmp_path: Path, authority: Authority
) -> None:
    shard = ShardBrokers(tmp_path, *settings(authority, authority.issue("unnamed")))
    with pytest.raises(FatalError, match=f"does not name URI:{URI}"):
        await shard.start(0)


@pytest.mark.shipped_limits  # pieces of a few hundred bytes cut bodies in two
@pytest.mark.parametrize("mode", ["disabled", "enforcing"])
async def test_bodies_are_not_seen_on_the_wire(shard: ShardBrokers, mode: str) -> None:
    """A capture of all that passes on loopback; without TLS it finds every one."""
    for number in (0, 1):
        shard.more[number] = (f"tls.replication={mode}",)
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    bodies = [b"marked-%04d-%s" % (n, mode.encode()) for n in range(BODIES)]
    with Capture(shard.brokers[0].ports.replication.port) as capture:
        for at in range(0, BODIES, 10):
            assert set(await shard.put(0, *bodies[at : at + 10])) == {PutStatus.OK}
    assert capture.lost == 0
    seen = [body for body in bodies if body in capture.data]
    assert len(capture.data) > BODIES * len(bodies[0])
    assert len(seen) == (0 if mode == "enforcing" else BODIES)
