"""Every frame of the protocol between members, said by who is none: nothing is heard or done."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from imago_broker.replication.links.member_tls import member_uri
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers
from imago_testing.frames.replication import VECTORS
from imago_testing.processes.certificates import LOOPBACK, Authority
from imago_wire.replication.encoder import encode
from imago_wire.replication.frames import FrameType, Hello

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

FRAMES = {name: frame for name, (_, frame) in VECTORS.items()}


def test_every_frame_is_said() -> None:
    assert {encode(frame)[5] for frame in FRAMES.values()} == set(FrameType)


def client_context(authority: Authority, *, shown: bool) -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context(cafile=str(authority.file))
    if shown:
        pair = authority.issue("client")
        context.load_cert_chain(pair.certificate, pair.key)
    return context


async def heard(port: int, said: bytes, context: ssl.SSLContext | None) -> bytes:
    """Return all that comes until the leader closes."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return b""
    found = b""
    with contextlib.suppress(OSError):
        writer.write(said)
        async with asyncio.timeout(50):
            while data := await reader.read(1 << 16):
                found += data
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return found


@pytest.mark.parametrize("who", ["no TLS", "no certificate", "a client's certificate"])
async def test_who_is_no_member_is_not_answered(tmp_path: Path, who: str) -> None:
    """Alone, and behind the greeting of a member: with its own name, which is no secret."""
    authority = Authority(tmp_path / "authority")
    member = authority.issue("member", hosts=f"{LOOPBACK},URI:{member_uri('imago', 0)}")
    shard = ShardBrokers(
        tmp_path,
        f"tls.certificate_file={member.certificate}",
        f"tls.key_file={member.key}",
        f"tls.ca_file={authority.file}",
        "tls.replication=enforcing",
    )
    context = None if who == "no TLS" else client_context(authority, shown="client" in who)
    try:
        await shard.start(0, 1)
        await shard.all_in_sync(0, 1)
        assert await shard.put(0, b"before") == [PutStatus.OK]
        broker = shard.brokers[0]
        registered = shard.brokers[1].coordinator.registered
        assert registered is not None
        hello = Hello(
            epoch=broker.store.epoch_seen,
            cluster_id=broker.coordinator.view().cluster_id,
            shard=0,
            uuid=registered.uuid,
            incarnation=registered.incarnation,
            epochs=(),
            log_start=0,
            log_end=0,
        )
        ends = [shard.store(number).log_end for number in (0, 1)]
        for name, frame in FRAMES.items():
            for said in (encode(frame), encode(hello) + encode(frame)):
                answer = await heard(broker.ports.replication.port, said, context)
                assert answer == b"", name
        assert [shard.store(number).log_end for number in (0, 1)] == ends
        assert await shard.put(0, b"after") == [PutStatus.OK]
        await shard.same_logs()
    finally:
        await shard.close()
