"""Members whose logs have damage: said to the others, and led by only where nobody else can."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from imago_broker.replication import failover_policy
from imago_broker.service.puts.put_status import PutStatus
from imago_log.store import MessageStore
from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from pathlib import Path

OK = PutStatus.OK


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[Path]:
    """Data folders whose logs have damage that nothing heals."""
    folders: set[Path] = set()
    monkeypatch.setattr(
        MessageStore, "damaged", property(lambda store: store.config.data_dir in folders)
    )
    return folders


def told(shard: ShardBrokers) -> dict[str, bool]:
    """What registrations say."""
    members = next(iter(shard.brokers.values())).coordinator.view().members(0)
    return {record.uuid: record.damaged for record in members}


async def test_a_damaged_follower_is_said_and_gets_no_leadership(
    tmp_path: Path, broken: set[Path]
) -> None:
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    uuids = [shard.brokers[number].uuid for number in range(3)]
    broken.add(tmp_path / "member-2")
    await until(lambda: told(shard)[uuids[2]])
    done, text = await shard.shell(0).hand_over(uuids[2], "one")
    assert (done, text) == (False, "its log has damage, and a whole one can lead")
    assert (await shard.shell(0).hand_over(None, "two"))[0]
    assert await shard.led(but=0) == 1
    broken.clear()
    await until(lambda: not told(shard)[uuids[2]])
    assert (await shard.shell(1).hand_over(uuids[2], "three"))[0]
    await shard.close()


async def test_a_leader_whose_damage_stays_hands_over_to_a_whole_log(
    tmp_path: Path, broken: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failover_policy, "DAMAGED_LEADS_MS", 200)
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    broken.update({tmp_path / "member-0", tmp_path / "member-2"})
    assert await shard.led(but=0) == 1
    assert await shard.put(1, b"one") == [OK]
    await shard.close()
