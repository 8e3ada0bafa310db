"""Somebody deletes the node of a shard's state: nobody who lacks a message leads by it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from imago_broker.cluster.tree import Delete, SetData
from imago_broker.cluster.znodes import Paths
from imago_broker.core.explain import explain
from imago_broker.model.registry.shard import NOT_CREATED
from imago_broker.service.puts.put_status import PutStatus
from imago_testing.clusters.shard_brokers import ShardBrokers, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from imago_broker.cluster.tree import Operation

STATE = Paths("imago").state(0)


async def delete_state(shard: ShardBrokers, number: int) -> None:
    """Delete the node, as a person would."""
    await shard.trees[number].commit([Delete(STATE)])


async def test_a_leader_writes_it_again(tmp_path: Path) -> None:
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    epoch = shard.store(0).epoch_seen
    for round_ in range(3):
        await delete_state(shard, round_)
        await until(lambda: STATE in shard.ensemble._entries)
        assert await shard.put(0, b"%d" % round_) == [PutStatus.OK]
        await shard.all_in_sync(0, 1, 2)
        assert (shard.leader, shard.store(0).epoch_seen) == (0, epoch), "nobody else was elected"
    await shard.stop(0)
    successor = await shard.led()
    assert shard.bodies(successor) == [b"0", b"1", b"2"]
    await shard.close()


async def test_a_stale_member_that_starts_meanwhile_is_not_elected(tmp_path: Path) -> None:
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    assert await shard.put(0, b"one") == [PutStatus.OK]
    await shard.kill(2)
    await shard.all_in_sync(0, 1)
    assert await shard.put(0, b"two") == [PutStatus.OK]
    epoch = shard.store(0).epoch_seen
    await asyncio.gather(delete_state(shard, 1), shard.start(2))
    await shard.all_in_sync(0, 1, 2)
    assert (shard.leader, shard.store(0).epoch_seen) == (0, epoch)
    assert await shard.put(0, b"three") == [PutStatus.OK]
    await shard.same_logs()
    assert shard.bodies(0) == [b"one", b"two", b"three"]
    await shard.close()


async def test_an_election_sees_that_the_state_is_gone(tmp_path: Path) -> None:
    """It waits for all members that are known, not for those that the state named."""
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    await shard.kill(1)
    await shard.kill(2)
    await shard.all_in_sync(0)
    await shard.kill(0)
    await shard.start(1)
    await until(lambda: shard.shell(1).machine.state.vacancy is not None)
    await delete_state(shard, 1)
    await until(lambda: shard.shell(1).machine.state.shard.version == NOT_CREATED)
    await asyncio.sleep(0.5)
    assert shard.leader is None, "others may have more"
    await shard.start(2, 0)
    await shard.led()
    await shard.all_in_sync(0, 1, 2)
    await shard.same_logs()
    await shard.close()


def delete_next(shard: ShardBrokers, number: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Delete the node as soon as this member has written it, before anybody has read that.

    Return where the deletion is noted.
    """
    done: list[int] = []
    tree = shard.trees[number]
    commit = tree.commit

    async def committed(operations: Sequence[Operation]) -> None:
        await commit(operations)
        if not done and any(isinstance(op, SetData) and op.path == STATE for op in operations):
            done.append(number)
            await commit([Delete(STATE)])

    monkeypatch.setattr(tree, "commit", committed)
    return done


async def test_it_goes_with_a_handover_that_nobody_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = ShardBrokers(tmp_path, replicas=2)
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    for round_ in range(3):
        leader = await shard.led()
        assert await shard.put(leader, b"%d" % round_) == [PutStatus.OK]
        epoch = shard.store(leader).epoch_seen
        with monkeypatch.context() as patch:
            done = delete_next(shard, leader, patch)
            await shard.shell(leader).hand_over(None, f"r{round_}")
            await until(lambda: STATE in shard.ensemble._entries)
            assert done == [leader]
        successor = await shard.led()
        await shard.all_in_sync(0, 1)
        assert shard.store(successor).epoch_seen > epoch + 1, "of two: none has led in one"
    assert shard.bodies(await shard.led()) == [b"0", b"1", b"2"]
    await shard.same_logs()
    await shard.close()


async def test_a_person_decides_where_one_is_gone_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = ShardBrokers(tmp_path)
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    assert await shard.put(0, b"one") == [PutStatus.OK]
    await shard.kill(2)
    await shard.all_in_sync(0, 1)
    done = delete_next(shard, 0, monkeypatch)
    await shard.shell(0).hand_over(None, "r1")
    assert done == [0]
    await until(lambda: all(shard.shell(n).machine.state.vacancy is not None for n in (0, 1)))
    view = shard.brokers[0].coordinator.view
    await until(lambda: explain(view(), 0).waits_for.startswith("replica 2 ("))
    assert "its state was deleted" in explain(view(), 0).why
    assert "imago shard elect 0 --allow-data-loss" in explain(view(), 0).next
    await asyncio.sleep(0.3)
    assert shard.leader is None, "the one that is gone may have more"
    answers = [
        await shard.shell(number).elect(f"e{number}{loss}", allow_data_loss=loss)
        for loss in (False, True)
        for number in (0, 1)
    ]
    assert [led for led, _ in answers[:2]] == [False, False]
    assert any(led for led, _ in answers[2:]), answers
    leader = await shard.led()
    assert shard.bodies(leader) == [b"one"]
    await shard.start(2)
    await shard.all_in_sync(0, 1, 2)
    await shard.same_logs()
    await shard.close()
