"""What is sent and taken: far behind and close, frames that end anywhere, damage that is healed."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.replication import status
from imago_broker.replication.counters import ReplicationCounters
from imago_broker.replication.leader import sending
from imago_broker.replication.leader.sending import (
    FAR_BYTES,
    WINDOW_BYTES,
    Allowance,
    SendCursor,
    epoch_at,
)
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import TOPIC, ShardBrokers, log_bytes, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from imago_broker.replication.links.link import Link
    from imago_log import FileSlice, MessageStore

LEADER = Acknowledgement.LEADER


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    made = ShardBrokers(tmp_path, replicas=2)
    yield made
    await made.close()


def test_epoch_of_a_byte() -> None:
    epochs = ((1, 0), (3, 100), (4, 250))
    assert epoch_at(epochs, 0) == (1, 0, 100)
    assert epoch_at(epochs, 99) == (1, 0, 100)
    assert epoch_at(epochs, 100) == (3, 100, 250)
    assert epoch_at(epochs, 1000) == (4, 250, None)
    with pytest.raises(LookupError):
        epoch_at(((1, 50),), 49)


def test_allowance_is_a_rate_with_one_second_in_hand() -> None:
    allowance = Allowance(1000)
    assert allowance.take(600, 10_000) == 600
    assert allowance.take(600, 10_000) == 400
    assert allowance.take(600, 10_000) == 0
    assert allowance.take(600, 10_100) == 100
    assert allowance.take(9999, 60_000) == 1000
    assert Allowance(0).take(1 << 30, 1) == 1 << 30


class Wire:
    """A link that takes everything, or nothing."""

    def __init__(self) -> None:
        self.pending = 0
        self.sent: list[int] = []
        """Sizes of what was sent, headers left out."""
        self.files = 0

    def send(self, *buffers: bytes | memoryview) -> None:
        self.sent += [len(buffer) for buffer in buffers[1:]]

    def send_file(self, part: FileSlice) -> None:
        self.sent.append(part.size)
        self.files += 1

    def flush(self) -> None:
        """Everything has gone."""


def cursor_on(store: MessageStore, wire: Wire, *, rate: int = 0) -> SendCursor:
    return SendCursor(
        store,
        cast("Link", wire),
        epoch=1,
        offset=0,
        allowance=Allowance(rate),
        counters=ReplicationCounters(),
    )


async def filled(shard: ShardBrokers, size: int) -> MessageStore:
    """The log of a leader with so many bytes in it."""
    await shard.start(0)
    bodies = [bytes(100_000)] * (size // 100_000)
    assert set(await shard.put(0, *bodies, level=LEADER)) == {PutStatus.OK}
    return shard.store(0)


@pytest.mark.shipped_limits
async def test_no_more_is_on_its_way_than_the_window(shard: ShardBrokers) -> None:
    wire = Wire()
    cursor = cursor_on(await filled(shard, 12_000_000), wire)
    while cursor.push(0, sync=False):
        pass
    assert sum(wire.sent) == cursor.next == WINDOW_BYTES
    cursor.acked = 1_000_000
    cursor.push(0, sync=False)
    assert cursor.next == WINDOW_BYTES + 1_000_000
    assert wire.files
    assert cursor.behind == shard.store(0).log_end - 1_000_000


async def test_nothing_is_sent_while_the_kernel_has_not_taken_all(shard: ShardBrokers) -> None:
    wire = Wire()
    cursor = cursor_on(await filled(shard, 1_000_000), wire)
    wire.pending = 1
    assert not cursor.push(0, sync=False)
    cursor.beat(0, sync=False)
    assert wire.sent == []


@pytest.mark.shipped_limits
async def test_used_up_rate_waits_for_the_next_tick(shard: ShardBrokers) -> None:
    wire = Wire()
    cursor = cursor_on(await filled(shard, 12_000_000), wire, rate=300_000)
    assert not cursor.push(10_000, sync=False)
    assert cursor.next == 300_000
    assert not cursor.push(10_000, sync=False)
    assert not cursor.push(10_500, sync=False)
    assert cursor.next == 450_000


@pytest.mark.shipped_limits
async def test_member_that_is_far_behind_is_filled_from_the_files(shard: ShardBrokers) -> None:
    await shard.start(0)
    bodies = [bytes([number]) * 100_000 for number in range(200)]
    assert set(await shard.put(0, *bodies, level=LEADER)) == {PutStatus.OK}
    await shard.start(1)
    await shard.all_in_sync(0, 1)
    await shard.same_logs()
    member = shard.brokers[0].member
    assert member is not None
    assert member.counters.bytes_caught_up > 20_000_000 - FAR_BYTES - (1 << 20)
    assert member.counters.bytes_sent >= shard.store(0).log_end
    await until(lambda: shard.bodies(1) == bodies)


@pytest.mark.shipped_limits
async def test_records_larger_than_a_frame_arrive_whole(shard: ShardBrokers) -> None:
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    bodies = [bytes([number]) * 3_000_000 for number in range(4)]
    assert set(await shard.put(0, *bodies)) == {PutStatus.OK}
    await shard.same_logs()
    await until(lambda: shard.bodies(1) == bodies)


async def test_records_larger_than_the_window_arrive_whole(
    shard: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "WINDOW_BYTES", 2000)
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    bodies = [bytes([number]) * size for number, size in enumerate((7000, 9, 5000))]
    assert set(await shard.put(0, *bodies)) == {PutStatus.OK}
    await shard.same_logs()
    await until(lambda: shard.bodies(1) == bodies)


async def test_members_with_several_epochs_in_their_logs_agree(shard: ShardBrokers) -> None:
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    for turn in range(4):
        leader = await shard.led()
        assert await shard.put(leader, b"%d" % turn) == [PutStatus.OK]
        done, text = await shard.shell(leader).hand_over(None, f"turn-{turn}")
        assert done, text
        await shard.led(but=leader)
    await shard.stop(1)
    shard.wipe(1)
    await shard.start(1)
    await shard.all_in_sync(0, 1)
    await shard.same_logs()
    assert len(shard.store(1).epochs) >= 4
    await until(lambda: shard.bodies(1) == [b"0", b"1", b"2", b"3"])


@pytest.mark.parametrize("damaged", [0, 1])
async def test_damage_is_healed_by_the_other_member(shard: ShardBrokers, damaged: int) -> None:
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    bodies = [b"%d" % number * 50 for number in range(9)]
    assert set(await shard.put(0, *bodies)) == {PutStatus.OK}
    await shard.same_logs()
    store, other = shard.store(damaged), shard.store(1 - damaged)
    await until(lambda: store.high_watermark == store.log_end)
    place = store.placed(TOPIC, 0, 4, 1)[0]
    file = next((shard.folder / f"member-{damaged}" / "commitlog").iterdir())
    with file.open("r+b") as log:
        log.seek(place[1])
        log.write(b"\xff" * place[2])
    store.components.storage.damage.add(place[1], place[1] + place[2], "a test", 1)
    store.components.storage.recent.clear()
    await until(lambda: not store.damaged_ranges())
    assert log_bytes(store, 0) == log_bytes(other, 0)
    member = shard.brokers[damaged].member
    assert member is not None
    assert member.repairs.healed == 1


async def test_damage_that_a_follower_finds_is_looked_at_and_healed(tmp_path: Path) -> None:
    shard = ShardBrokers(tmp_path, "store.scrub_interval_ms=0")
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    bodies = [b"%d" % number * 50 for number in range(9)]
    assert set(await shard.put(0, *bodies)) == {PutStatus.OK}
    await shard.same_logs()
    await shard.stop(2)
    shard.wipe(2)
    store = shard.store(0)
    place = store.placed(TOPIC, 0, 4, 1)[0]
    file = next((shard.folder / "member-0" / "commitlog").iterdir())
    with file.open("r+b") as log:
        log.seek(place[1])
        log.write(b"\xff" * place[2])
    store.components.storage.recent.clear()
    await shard.start(2)
    await shard.all_in_sync(0, 1, 2)
    await shard.same_logs()
    assert shard.bodies(2) == bodies
    member = shard.brokers[0].member
    assert member is not None
    assert member.repairs.healed == 1
    await shard.close()


async def test_what_no_other_member_has_whole_is_said_to_keep_copies_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "STALLED_MS", 200)
    shard = ShardBrokers(tmp_path, "store.scrub_interval_ms=0")
    await shard.start(0)
    bodies = b"1" * 50, b"2" * 50
    assert set(await shard.put(0, *bodies, level=Acknowledgement.LEADER)) == {PutStatus.OK}
    store = shard.store(0)
    place = store.placed(TOPIC, 0, 1, 1)[0]
    file = next((shard.folder / "member-0" / "commitlog").iterdir())
    with file.open("r+b") as log:
        log.seek(place[1])
        log.write(b"\xff" * place[2])
    store.components.storage.recent.clear()
    await shard.start(1)
    member = shard.brokers[0].member
    assert member is not None

    def stalled() -> list[str]:
        return [each.stalled for each in member.shard_status().followers if each.stalled]

    await until(lambda: any("damaged here" in each for each in stalled()))
    (found,) = store.damaged_ranges()
    assert stalled() == [f"log offsets {found.start} to {found.end} are damaged here"]
    follower = shard.brokers[1].member
    assert follower is not None
    await until(lambda: "is not in sync yet: " in follower.shard_status().reason)
    await shard.close()
