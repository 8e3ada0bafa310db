"""The replication port and strangers: refused with a reason, logged once a peer, never a crash."""

from __future__ import annotations

import asyncio
import contextlib
from struct import pack
from typing import TYPE_CHECKING

import pytest

from imago_broker.model.feature_level import NEWEST
from imago_broker.replication.leader import leader_session as leader_module
from imago_broker.replication.leader import leading as leading_module
from imago_broker.replication.leader.leader_session import GREETING_MS
from imago_broker.replication.links import port as port_module
from imago_broker.replication.links.unauthenticated_peers import Silent
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers, until
from imago_testing.frames.replication import VECTORS
from imago_wire.replication.decoder import FrameDecoder
from imago_wire.replication.encoder import encode, repair_header
from imago_wire.replication.frames import (
    FEATURE_LEVEL,
    Ack,
    Fetch,
    Frame,
    Hello,
    RefusalCode,
    Refuse,
    RepairAsk,
    Welcome,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    made = ShardBrokers(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def leader(shard: ShardBrokers) -> ShardBrokers:
    await shard.start(0)
    return shard


class Caller:
    """A connection to a member's replication port that says what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = FrameDecoder()

    @classmethod
    async def to(cls, shard: ShardBrokers, number: int = 0, *, source: str = "127.0.0.1") -> Caller:
        port = shard.brokers[number].ports.replication.port
        return cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))

    def say(self, *frames: Frame | bytes) -> None:
        for frame in frames:
            self._writer.write(frame if isinstance(frame, bytes) else encode(frame))

    async def hear(self) -> Frame:
        """The next frame."""
        while True:
            data = await asyncio.wait_for(self._reader.read(1 << 16), 50)
            assert data, "closed without a word"
            if frames := self._decoder.feed(data):
                return frames[0]

    async def refusal(self) -> Refuse:
        """The refusal with which the connection ends."""
        frame = await self.hear()
        assert isinstance(frame, Refuse)
        await self.closed()
        return frame

    async def closed(self) -> None:
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(self._reader.read(), 50) == b""
        await self.close()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def hello(shard: ShardBrokers, /, **changes: object) -> Hello:
    """What a follower would say that is registered as member 0 itself, with changes."""
    broker = shard.brokers[0]
    registered = broker.coordinator.registered
    assert registered is not None
    fields: dict[str, object] = {
        "epoch": 0,
        "cluster_id": broker.coordinator.view().cluster_id,
        "shard": 0,
        "uuid": registered.uuid,
        "incarnation": registered.incarnation,
        "epochs": (),
        "log_start": 0,
        "log_end": 0,
        "extensions": ((FEATURE_LEVEL, pack(">H", NEWEST)),),
        **changes,
    }
    return Hello(**fields)  # type: ignore[arg-type]  # the fields above, some replaced


async def serves_on(shard: ShardBrokers) -> None:
    """Make sure that whatever was said has done no harm."""
    await shard.start(1)
    await shard.all_in_sync(0, 1)
    assert await shard.put(0, b"one") == [PutStatus.OK]


@pytest.mark.parametrize(
    "greeting",
    [
        b"get orders readers 0 0 1048576 1\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\1\x05\0\0\1\x01{}",
        b"\xff" * 5000,
        bytes.fromhex(VECTORS["hello"][0].replace(" ", ""))[:20] + b"\0\0\0\0",
        # What only a follower that copies may say is refused by its header: nothing is kept of it.
        repair_header(epoch=0, offset=0, size=4_000_000),
    ],
)
async def test_other_protocols_are_refused_and_named_once(
    leader: ShardBrokers, greeting: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        caller = await Caller.to(leader)
        caller.say(greeting)
        assert (await caller.refusal()).code == RefusalCode.PROTOCOL
    refused = leader.brokers[0].ports.replication.refused
    assert refused.count == {"protocol": 3}
    assert caplog.text.count("replication_refused") == 1
    await serves_on(leader)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, RefusalCode.CLUSTER),
        ({"shard": 1}, RefusalCode.SHARD),
        ({"uuid": "stranger"}, RefusalCode.MEMBER),
        ({"incarnation": 0}, RefusalCode.MEMBER),
        ({}, RefusalCode.MEMBER),  # ourselves
    ],
)
async def test_stranger_is_refused(
    leader: ShardBrokers, changes: dict[str, object], code: RefusalCode
) -> None:
    caller = await Caller.to(leader)
    caller.say(hello(leader, **changes))
    refusal = await caller.refusal()
    assert (refusal.code, refusal.epoch) == (code, 1)


async def greeted(shard: ShardBrokers, **changes: object) -> Caller:
    """A caller that poses as member 1, which is registered and does not call by itself."""
    await shard.start(1)
    await shard.all_in_sync(0, 1)
    following = shard.shell(1).executor.following
    assert following is not None
    following.close()
    leading = shard.shell(0).executor.leading
    assert leading is not None
    await until(lambda: not leading.sessions)
    return await posing(shard, "127.0.0.1", **changes)


async def posing(shard: ShardBrokers, source: str = "127.0.0.1", **changes: object) -> Caller:
    """A caller that knows what the registry says of member 1."""
    registered = shard.brokers[1].coordinator.registered
    assert registered is not None
    caller = await Caller.to(shard, source=source)
    life = {"uuid": registered.uuid, "incarnation": registered.incarnation}
    caller.say(hello(shard, **{**life, **changes}))
    return caller


async def test_an_epoch_that_the_registry_does_not_know_deposes_nobody(
    leader: ShardBrokers,
) -> None:
    caller = await greeted(leader, epoch=99)
    assert (await caller.refusal()).code == RefusalCode.STALE_EPOCH
    await leader.start(2)
    await until(lambda: 2 in leader.in_sync(0))
    assert leader.brokers[0].role.current.epoch == 1, "it leads on, in its epoch"


async def test_member_that_is_registered_with_a_higher_epoch_makes_the_leader_go_above_it(
    leader: ShardBrokers,
) -> None:
    caller = await greeted(leader, epoch=99)
    await caller.refusal()
    leader.store(1).follow(99)  # as after the loss of a registry that had given it
    leader.shell(1).executor.announce()
    await until(lambda: leader.brokers[0].role.current.epoch == 100)


async def test_stranger_that_knows_the_ids_and_calls_from_elsewhere_is_refused(
    leader: ShardBrokers,
) -> None:
    await leader.start(1)
    await leader.all_in_sync(0, 1)
    caller = await posing(leader, "127.0.0.2")
    refusal = await caller.refusal()
    assert refusal.code == RefusalCode.MEMBER
    assert "calls from 127.0.0.2, and is registered at 127.0.0.1" in refusal.text
    assert await leader.put(0, b"one") == [PutStatus.OK]


async def test_stranger_does_not_displace_a_member_that_is_connected(
    leader: ShardBrokers,
) -> None:
    await leader.start(1)
    await leader.all_in_sync(0, 1)
    session = leader.shell(1).executor.following
    assert session is not None
    before = session.session
    caller = await posing(leader)
    refusal = await caller.refusal()
    assert (refusal.code, refusal.text) == (
        RefusalCode.MEMBER,
        "this life of the member is connected already",
    )
    assert session.session is before
    assert await leader.put(0, b"one") == [PutStatus.OK]


async def test_connection_that_is_silent_gives_way(
    leader: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading_module, "HELD_MS", 0)
    caller = await greeted(leader)
    assert isinstance(await caller.hear(), Welcome)
    again = await posing(leader)
    assert isinstance(await again.hear(), Welcome)
    await caller.closed()
    await again.close()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (Fetch(7, 0, 0), RefusalCode.STALE_EPOCH),
        (Fetch(1, 1 << 40, 1), RefusalCode.DIVERGED),
        (Fetch(1, 5, 9), RefusalCode.DIVERGED),
        (Ack(1, 0, 0), RefusalCode.PROTOCOL),
    ],
)
async def test_fetch_that_does_not_continue_the_log_is_refused(
    leader: ShardBrokers, said: Frame, code: RefusalCode
) -> None:
    caller = await greeted(leader)
    assert isinstance(await caller.hear(), Welcome)
    caller.say(said)
    assert (await caller.refusal()).code == code


async def test_acknowledgement_of_what_was_not_sent_counts_for_nothing(
    leader: ShardBrokers,
) -> None:
    caller = await greeted(leader)
    assert isinstance(await caller.hear(), Welcome)
    caller.say(Fetch(1, 0, 0), Ack(1, 1 << 40, 1 << 40))
    while not isinstance(frame := await caller.hear(), Refuse):
        pass
    assert frame.code == RefusalCode.PROTOCOL
    await caller.closed()
    assert leader.store(0).high_watermark <= leader.store(0).log_end


async def test_asking_without_reading_has_an_end(
    leader: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await greeted(leader)
    assert isinstance(await caller.hear(), Welcome)
    caller.say(Fetch(1, 0, 0))
    monkeypatch.setattr(leader_module, "UNREAD_BYTES_MAX", -1)
    caller.say(RepairAsk(1, 0, 100))
    while not isinstance(frame := await caller.hear(), Refuse):
        pass
    assert "asks for more than it reads" in frame.text
    await caller.closed()


async def test_fault_of_ours_ends_that_connection_only(
    leader: ShardBrokers, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(leader_module.LeaderSession, "_greet", fail)
        caller = await Caller.to(leader)
        caller.say(hello(leader))
        await caller.closed()
    assert "replication_link_failed" in caplog.text
    await serves_on(leader)


async def test_fetch_without_greeting_is_refused(leader: ShardBrokers) -> None:
    caller = await Caller.to(leader)
    caller.say(Fetch(1, 0, 0))
    assert (await caller.refusal()).code == RefusalCode.PROTOCOL


async def test_caller_that_says_nothing_is_closed(leader: ShardBrokers) -> None:
    caller = await Caller.to(leader)
    leading = leader.shell(0).executor.leading
    assert leading is not None
    await until(lambda: len(leading.sessions) == 1)
    (session,) = leading.sessions
    now_ms = leader.brokers[0].clock.monotonic_ms()
    session.check_time(now_ms)
    assert not session.link.closed
    session.check_time(now_ms + GREETING_MS)
    assert (await caller.refusal()).code == RefusalCode.PROTOCOL


async def test_member_that_does_not_lead_says_so(leader: ShardBrokers) -> None:
    await leader.start(1)
    caller = await Caller.to(leader, 1)
    assert (await caller.refusal()).code == RefusalCode.NOT_LEADER


async def test_the_longest_silent_caller_loses_its_place(
    leader: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All call from the address of members, as they do on one machine."""
    port = leader.brokers[0].ports.replication
    monkeypatch.setattr(port, "_members", Silent(3, 3))
    callers = [await Caller.to(leader) for _ in range(4)]
    assert (await callers[0].refusal()).code == RefusalCode.BUSY
    assert port.refused.count["busy"] == 1
    assert port.silent == 3
    await serves_on(leader)
    for caller in callers[1:]:
        await caller.close()


async def test_silent_callers_who_come_back_keep_no_member_out(leader: ShardBrokers) -> None:
    port = leader.brokers[0].ports.replication
    address = ("127.0.0.1", port.port)

    async def stay() -> None:
        while True:
            reader, writer = await asyncio.open_connection(*address)
            try:
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            finally:
                writer.close()

    hogs = [asyncio.create_task(stay()) for _ in range(port_module.SILENT_MEMBERS_MAX + 60)]
    await until(lambda: port.silent == port_module.SILENT_MEMBERS_MAX)
    await serves_on(leader)
    for hog in hogs:
        hog.cancel()
    await asyncio.gather(*hogs, return_exceptions=True)


async def test_strangers_have_places_apart_from_those_of_members(
    leader: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = leader.brokers[0].ports.replication
    monkeypatch.setattr(leader.shell(0), "is_member", lambda peer: peer == "127.0.0.1")
    strangers = [
        await Caller.to(leader, source=f"127.0.1.{each % 200}")
        for each in range(port_module.SILENT_MAX + 1)
    ]
    assert (await strangers[0].refusal()).code == RefusalCode.BUSY
    member = await Caller.to(leader)
    await until(lambda: port.silent == port_module.SILENT_MAX + 1)
    member.say(hello(leader, epoch=leader.brokers[0].store.epoch_seen))
    assert (await member.refusal()).code == RefusalCode.MEMBER  # nobody is the leader itself
    for stranger in strangers[1:]:
        await stranger.close()
    await serves_on(leader)


async def test_one_stranger_has_its_part_of_the_places(
    leader: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = leader.brokers[0].ports.replication
    monkeypatch.setattr(leader.shell(0), "is_member", lambda _: False)
    other = await Caller.to(leader, source="127.0.1.2")
    count = port_module.SILENT_PER_ADDRESS_MAX
    callers = [await Caller.to(leader, source="127.0.1.1") for _ in range(count + 1)]
    assert (await callers[0].refusal()).code == RefusalCode.BUSY
    assert port.silent == count + 1
    for caller in (other, *callers[1:]):
        await caller.close()


async def test_who_has_said_who_it_is_is_silent_no_more(leader: ShardBrokers) -> None:
    await serves_on(leader)
    leading = leader.shell(0).executor.leading
    assert leading is not None
    assert len(leading.sessions) == 1
    assert leader.brokers[0].ports.replication.silent == 0
