"""What is sent and taken: far behind and close, frames that end anywhere, damage that is healed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.core.acknowledgement import Acknowledgement
from imago_broker.replication.sending import FAR_BYTES, Allowance, epoch_at
from imago_broker.service.messages import PutStatus
from imago_testing.shard_brokers import TOPIC, ShardBrokers, log_bytes, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

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


async def test_records_larger_than_a_frame_arrive_whole(shard: ShardBrokers) -> None:
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    bodies = [bytes([number]) * 3_000_000 for number in range(4)]
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
    store._parts.damage.add(place[1], place[1] + place[2], "a test", 1)
    store._parts.recent.clear()
    await until(lambda: not store.damaged_ranges())
    assert log_bytes(store, 0) == log_bytes(other, 0)
    member = shard.brokers[damaged].member
    assert member is not None
    assert member.repairs.healed == 1
