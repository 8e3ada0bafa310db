"""A broker whose old files are in a bucket: whoever reads finds them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from imago_broker.app import ticking
from imago_broker.errors import FatalError
from imago_broker.features.tiered import blocks, tier
from imago_testing.clusters.brokers import running_broker
from imago_testing.peers.admin import Admin
from imago_testing.peers.features import tier_of
from imago_testing.peers.metaq import metaq_peer, value_body
from imago_testing.peers.popping import bodies, pop
from imago_testing.peers.remoting import RemotingPeer, pull_ext
from imago_testing.processes.s3 import S3Server, running_s3
from imago_wire.remoting.codes import RequestCode, ResponseCode
from imago_wire.remoting.messages import decode_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from imago_broker.app import Broker
    from imago_broker.features.tiered.tier import Tier

MESSAGES = 60
BODY = 9000
SUSPEND = 4 | 2


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ticking, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(tier, "LOOK_S", 0.05)
    monkeypatch.setattr(tier, "RETRY_S", 0.05)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 16 << 10)
    monkeypatch.setattr(blocks, "AWAY_MS", 100)


def tiered(url: str, *more: str) -> tuple[str, ...]:
    """Return the settings of a broker that keeps three files of its log."""
    return (
        "store.segment_bytes_max=65536",
        "rocketmq.message_bytes_max=20000",
        "metaq.message_bytes_max=20000",
        f"tier.url={url}",
        "tier.local_retention_bytes_max=196608",
        *more,
    )


def on_s3(s3: S3Server, prefix: str) -> tuple[str, ...]:
    config = s3.objects(prefix)
    return tiered(
        config.url,
        f"tier.endpoint={config.endpoint}",
        f"tier.credentials_folder={config.credentials_folder}",
        "tier.timeout_ms=2000",
    )


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - of parts that tell nobody
            await asyncio.sleep(0.02)


def tier_in(broker: Broker) -> Tier:
    found = tier_of(broker)
    assert found is not None
    return found


async def fill(peer: RemotingPeer, broker: Broker, first: int = 0) -> None:
    for number in range(first, first + MESSAGES):
        answer = await peer.put("T", body_of(number), properties=f"TAGS\x01t{number % 2}\x02")
        assert answer.code == ResponseCode.SUCCESS
    store = broker.store
    await until(
        lambda: not tier_in(broker).waiting_bytes and store.log_end - store.log_start < 4 << 16
    )


def body_of(number: int) -> bytes:
    return b"%06d" % number + b"." * BODY


async def pulled(peer: RemotingPeer, **more: object) -> list[bytes]:
    """Pull all messages from the first one on; what is not here yet is waited for."""
    at, found = 0, list[bytes]()
    while at < MESSAGES:
        answer = await peer.call(11, pull_ext("T", at, **({"sysFlag": SUSPEND} | more)))
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), (
            answer.code,
            answer.remark,
        )
        found += [each.body for each in decode_messages(answer.body)] if answer.body else []
        assert int(answer.ext["nextBeginOffset"]) > at
        at = int(answer.ext["nextBeginOffset"])
    return found


async def got_by_metaq(broker: Broker, count: int) -> list[bytes]:
    """Get so many messages from position 0 on; 404 is answered until they are there."""
    position, found = 0, list[bytes]()
    async with metaq_peer(broker.metaq_port) as metaq:
        while len(found) < count:
            frame = await metaq.get("T", 0, position)
            if frame.startswith(b"result 404"):
                await asyncio.sleep(0.01)
                continue
            data = value_body(frame)
            while len(data) >= 20 and len(data) >= 20 + int.from_bytes(data[:4], "big"):
                size = 20 + int.from_bytes(data[:4], "big")
                found.append(data[20:size][-BODY - 6 :])
                data, position = data[size:], position + size
    return found


async def test_all_ways_of_reading_find_what_the_disk_no_longer_has(
    s3: S3Server, tmp_path: Path
) -> None:
    expected = [body_of(number) for number in range(MESSAGES)]
    async with running_broker(tmp_path, *on_s3(s3, "reads")) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await fill(peer, broker)
        await until(lambda: len(list((tmp_path / "commitlog").iterdir())) <= 5)
        assert (await peer.call(31, {"topic": "T", "queueId": 0})).ext["offset"] == "0"
        assert await pulled(peer) == expected
        assert tier_in(broker).blocks.misses
        for block in list(tier_in(broker).blocks._here):
            tier_in(broker).blocks._drop(block)
        assert await pulled(peer, sysFlag=4) == expected  # who would not wait for new ones
        assert await pulled(peer, subscription="t1") == expected[1::2]
        popped: list[bytes] = []
        while len(popped) < MESSAGES:
            popped += bodies(await pop(peer, pollTime=15_000, bornTime=0))
        assert popped == expected
        assert await got_by_metaq(broker, MESSAGES) == expected
        async with aiohttp.ClientSession() as session:
            path = "/admin/v1/messages?topic=T&queue=0&offset=0&limit=3"
            status, shown = await Admin(session, broker).call("GET", path)
            assert (status, len(shown["items"])) == (200, 3)
        await peer.close()


async def test_a_new_start_goes_on_where_the_bucket_is(s3: S3Server, tmp_path: Path) -> None:
    settings = on_s3(s3, "restart")
    async with running_broker(tmp_path, *settings) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await fill(peer, broker)
        manifest = tier_in(broker).reader.manifest
        await peer.close()
    async with running_broker(tmp_path, *settings) as broker:
        await until(lambda: tier_in(broker).reader.known)
        again = tier_in(broker).reader.manifest
        assert again.segments == manifest.segments
        assert (again.generation, again.epoch) == (manifest.generation + 1, manifest.epoch + 1)
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        assert await pulled(peer) == [body_of(number) for number in range(MESSAGES)]
        await peer.close()


async def test_a_broker_without_its_bucket_serves_what_it_has_and_says_so(
    s3: S3Server, tmp_path: Path
) -> None:
    async with running_broker(tmp_path, *on_s3(s3, "away")) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await fill(peer, broker)
        s3.stop()
        try:
            answer = await peer.call(11, pull_ext("T", 0, sysFlag=SUSPEND))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "bucket" in str(answer.remark)
            assert tier_in(broker).away
            newest = await peer.pull("T", MESSAGES - 1)
            assert newest.code == ResponseCode.SUCCESS
            for number in range(MESSAGES, 2 * MESSAGES):  # nothing goes that is nowhere else
                await peer.put("T", body_of(number))
            await asyncio.sleep(0.5)
            assert broker.store.log_start <= tier_in(broker).reader.manifest.end
        finally:
            s3.start()
        await until(lambda: not tier_in(broker).away and not tier_in(broker).waiting_bytes)
        assert (await pulled(peer))[:MESSAGES] == [body_of(number) for number in range(MESSAGES)]
        await peer.close()


async def test_a_folder_is_a_bucket_too_and_nothing_of_it_is_there_without_a_setting(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "bucket"
    async with running_broker(tmp_path / "a", *tiered(f"file://{folder}")) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await fill(peer, broker)
        assert await pulled(peer) == [body_of(number) for number in range(MESSAGES)]
        await peer.close()
    async with running_broker(tmp_path / "b") as broker:
        assert tier_of(broker) is None
        assert not (tmp_path / "b" / "tier-cache").exists()


async def test_another_clusters_bucket_is_refused_and_keeps_no_reader_waiting(
    tmp_path: Path,
) -> None:
    """As a restored cluster has it that is given the former one's bucket."""
    settings = tiered(f"file://{tmp_path}/bucket")
    async with running_broker(tmp_path / "a", *settings) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await fill(peer, broker)
        await peer.close()
    (tmp_path / "a" / "uuid").unlink()
    async with running_broker(tmp_path / "a", *settings) as broker:
        await until(lambda: tier_in(broker).problem)
        assert "another cluster" in tier_in(broker).problem
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        answer = await peer.call(11, pull_ext("T", 0, sysFlag=SUSPEND))
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        low = int(answer.ext["nextBeginOffset"])
        assert (await peer.call(31, {"topic": "T", "queueId": 0})).ext["offset"] == str(low)
        assert (await peer.pull("T", low)).code == ResponseCode.SUCCESS
        assert broker.store.log_start > 0
        await peer.close()


async def test_a_bucket_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    settings = tiered("s3://b", f"tier.credentials_folder={tmp_path}/none")
    with pytest.raises(FatalError, match="access_key_id: No such file"):
        async with running_broker(tmp_path / "a", *settings):
            pass


async def test_a_time_in_the_bucket_is_found_as_soon_as_it_is_here(
    s3: S3Server, tmp_path: Path
) -> None:
    async with running_broker(tmp_path, *on_s3(s3, "times")) as broker:
        peer = await RemotingPeer.connect(broker.rocketmq_port)
        await fill(peer, broker)
        ext = {"topic": "T", "queueId": 0, "timestamp": 1}
        answer = await peer.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
        assert answer.ext["offset"] == "0"
        s3.stop()
        try:
            for block in list(tier_in(broker).blocks._here):
                tier_in(broker).blocks._drop(block)
            tier_in(broker).reader._directories.clear()
            answer = await peer.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext)
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert "does not answer" in str(answer.remark)
        finally:
            s3.start()
        await peer.close()
