"""Three whole brokers of one shard: what is acknowledged is on the members that were promised."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from imago_broker.core.puts.acknowledgement import Acknowledgement
from imago_broker.core.shard.effects import Mark, Reset
from imago_broker.core.shard.events import StopAsked
from imago_broker.errors import ExitCode
from imago_broker.model.registry.cluster import Role
from imago_broker.replication.follower.following import Following
from imago_broker.service.puts.put_status import PutStatus
from imago_log.commitlog.watermark import ALL_VISIBLE
from imago_testing.clusters.shard_brokers import ShardBrokers, take_nothing, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OK = PutStatus.OK


@pytest.fixture
async def shard(tmp_path: Path) -> AsyncIterator[ShardBrokers]:
    made = ShardBrokers(tmp_path)
    yield made
    await made.close()


@pytest.fixture
async def three(shard: ShardBrokers) -> ShardBrokers:
    """Three members in sync; member 0 leads."""
    await shard.start(0, 1, 2)
    await shard.all_in_sync(0, 1, 2)
    return shard


async def test_first_member_leads_and_the_others_join(three: ShardBrokers) -> None:
    assert three.leader == 0
    assert [three.brokers[n].role.current.role for n in (1, 2)] == [Role.SLAVE, Role.SLAVE]
    await three.same_logs()


async def test_who_waits_for_a_set_waits_until_every_member_sees_it(
    three: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three.stop(2)
    await three.all_in_sync(0, 1)
    behind = three.brokers[1].coordinator
    old = behind.view()
    with monkeypatch.context() as patch:
        patch.setattr(behind, "view", lambda: old)
        await three.start(2)
        await until(lambda: three.in_sync(0) == {0, 1, 2})
        waiting = asyncio.create_task(three.all_in_sync(0, 1, 2))
        await asyncio.sleep(0.1)
        assert not waiting.done()
    await waiting


async def test_puts_at_every_level_reach_every_member(three: ShardBrokers) -> None:
    for level in Acknowledgement:
        assert await three.put(0, level.value.encode(), level=level) == [OK]
    await three.same_logs()
    bodies = [level.value.encode() for level in Acknowledgement]
    await until(lambda: all(three.bodies(number) == bodies for number in range(3)))


async def test_replicated_put_is_in_every_log_when_it_is_answered(three: ShardBrokers) -> None:
    assert await three.put(0, b"one") == [OK]
    ends = {three.store(number).log_end for number in range(3)}
    assert len(ends) == 1


async def test_replicated_fsync_put_is_on_every_disk_when_it_is_answered(
    three: ShardBrokers,
) -> None:
    assert await three.put(0, b"one", level=Acknowledgement.REPLICATED_FSYNC) == [OK]
    end = three.store(0).log_end
    assert all(three.store(number).durable_end >= end for number in range(3))


async def test_topics_groups_and_offsets_are_known_to_followers(three: ShardBrokers) -> None:
    await three.put(0, b"one")
    leader = three.brokers[0]
    assert leader.groups.get_or_create("readers") is not None
    leader.offsets.commit("readers", "orders", 0, 1)
    leader.offsets.flush()
    for number in (1, 2):
        broker = three.brokers[number]
        await until(lambda broker=broker: broker.offsets.query("readers", "orders", 0) == 1)  # type: ignore[misc]  # bound now
        assert broker.topics.get("orders") == leader.topics.get("orders")
        assert broker.groups.get("readers") == leader.groups.get("readers")


async def test_follower_takes_no_puts(three: ShardBrokers) -> None:
    await three.put(0, b"one")
    await until(lambda: three.brokers[1].topics.get("orders") is not None)
    assert await three.put(1, b"two") == [PutStatus.NOT_WRITABLE]


async def test_leader_dies_and_nothing_acknowledged_is_lost(three: ShardBrokers) -> None:
    bodies = [b"%d" % number for number in range(100)]
    assert set(await three.put(0, *bodies)) == {OK}
    await three.kill(0)
    leader = await three.led()
    assert await three.put(leader, b"after") == [OK]
    assert three.bodies(leader) == [*bodies, b"after"]
    assert three.brokers[leader].role.current.epoch == 2


async def test_returning_leader_cuts_what_nobody_else_has(three: ShardBrokers) -> None:
    await three.put(0, b"kept")
    for number in (1, 2):
        following = three.shell(number).executor.following
        assert following is not None
        following.close()
    assert await three.put(0, b"lost", level=Acknowledgement.LEADER) == [OK]
    lost_end = three.store(0).log_end
    await three.kill(0)
    leader = await three.led()
    assert await three.put(leader, b"new") == [OK]
    await three.start(0)
    await three.all_in_sync(0, 1, 2)
    await three.same_logs()
    assert three.bodies(0) == [b"kept", b"new"]
    assert lost_end > three.store(0).log_start


async def test_member_that_lost_its_disk_comes_back_empty_and_is_filled(
    three: ShardBrokers,
) -> None:
    await three.put(0, b"one", b"two")
    await three.stop(2)
    three.wipe(2)
    await three.start(2)
    await three.all_in_sync(0, 1, 2)
    await three.same_logs()
    assert three.leader == 0
    await until(lambda: three.bodies(2) == [b"one", b"two"])


async def test_empty_disk_is_not_elected(three: ShardBrokers) -> None:
    await three.put(0, b"one")
    await three.kill(1)
    await three.kill(2)
    await three.kill(0)
    three.wipe(1)
    await three.start(1)
    assert three.leader is None
    assert three.brokers[1].role.current.role is Role.ELECTING
    await three.start(0)
    assert await three.led() == 0
    assert three.bodies(0) == [b"one"]


async def test_silent_follower_leaves_the_set_and_comes_back(three: ShardBrokers) -> None:
    # A link that takes nothing more: the follower is there, and falls behind.
    following = three.shell(2).executor.following
    assert following is not None
    session = following.session
    assert session is not None
    session.received = take_nothing  # type: ignore[method-assign]  # it falls behind
    session.heard_ms += 60_000  # it does not give the leader up either
    assert await three.put(0, b"one") == [OK]
    assert three.in_sync(0) == {0, 1}
    assert three.bodies(0) == [b"one"]
    session.end("woken")
    await three.all_in_sync(0, 1, 2)
    await three.same_logs()


async def test_too_few_members_refuse_replicated_puts_and_take_others(
    three: ShardBrokers,
) -> None:
    await three.put(0, b"one")
    await three.kill(1)
    await three.kill(2)
    await until(lambda: three.gate(0).short)
    assert await three.put(0, b"no") == [PutStatus.TOO_FEW_IN_SYNC]
    assert await three.put(0, b"leader", level=Acknowledgement.LEADER) == [OK]
    await three.start(1)
    await until(lambda: not three.gate(0).short)
    assert await three.put(0, b"yes") == [OK]
    assert three.bodies(0) == [b"one", b"leader", b"yes"]


async def test_handover_moves_leadership_without_loss(three: ShardBrokers) -> None:
    await three.put(0, b"one")
    done, _ = await three.shell(0).hand_over(three.brokers[2].uuid, "one")
    assert done
    assert await three.led(but=0) == 2
    assert await three.put(2, b"two") == [OK]
    await three.all_in_sync(0, 1, 2)
    await three.same_logs()
    assert three.bodies(2) == [b"one", b"two"]


async def test_leader_that_stops_in_order_hands_over(three: ShardBrokers) -> None:
    await three.put(0, b"one")
    await three.stop(0)
    leader = await three.led()
    assert three.brokers[leader].coordinator.view().states[0].cause == "handover"
    assert await three.put(leader, b"two") == [OK]
    assert three.in_sync(leader) == {1, 2}


async def test_whole_shard_comes_back_after_an_orderly_stop(three: ShardBrokers) -> None:
    await three.put(0, b"one")
    for number in (0, 1, 2):
        await three.stop(number)
    await three.start(0, 1, 2)
    leader = await three.led()
    await three.all_in_sync(0, 1, 2)
    assert three.bodies(leader) == [b"one"]
    assert await three.put(leader, b"two") == [OK]


async def test_lost_session_ends_the_leadership_and_the_member_comes_back(
    three: ShardBrokers,
) -> None:
    await three.put(0, b"one")
    three.trees[0].expire()
    leader = await three.led(but=0)
    assert await three.put(leader, b"two") == [OK]
    await three.all_in_sync(0, 1, 2)
    await three.same_logs()
    assert three.brokers[0].role.current.role is Role.SLAVE


async def test_leader_cut_off_from_the_registry_answers_nobody_after_its_lease(
    tmp_path: Path,
) -> None:
    shard = ShardBrokers(tmp_path, session_ms=2000, replicas=2)
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    gate = shard.gate(0)
    await until(lambda: gate.safe)
    await shard.put(0, b"one", level=Acknowledgement.LEADER)
    shard.trees[0].suspend()
    await until(lambda: not gate.safe)
    for level in Acknowledgement:
        assert await shard.put(0, b"no", level=level) == [PutStatus.NOT_WRITABLE]
    shard.trees[0].resume()
    await shard.all_in_sync(0, 1)
    leader = await shard.led()
    assert b"no" not in shard.bodies(leader)
    await shard.close()


async def test_replicated_put_is_not_confirmed_by_a_set_that_shrinks_in_a_handover(
    tmp_path: Path,
) -> None:
    shard = ShardBrokers(tmp_path, replicas=2)
    await shard.start(0, 1)
    await shard.all_in_sync(0, 1)
    assert await shard.put(0, b"one") == [OK]
    following = shard.shell(1).executor.following
    assert following is not None
    assert following.session is not None
    following.session.received = take_nothing  # type: ignore[method-assign]  # it falls behind
    following.session.heard_ms += 60_000
    machine = shard.shell(0).machine
    machine.limits = replace(machine.limits, handover_ms_max=20_000)
    shard.brokers[0].messages.acknowledgements.timeout_ms = 500
    waiting = asyncio.create_task(shard.put(0, b"two"))
    await until(lambda: shard.store(0).log_end > shard.store(0).high_watermark)
    handover = asyncio.create_task(shard.shell(0).hand_over(None, "one"))
    await until(lambda: shard.brokers[0].messages.held)
    shard.shell(1).dispatch(StopAsked())  # it leaves the set in order
    await until(lambda: shard.in_sync(0) == {0})
    assert await waiting == [PutStatus.SLAVE_UNAVAILABLE], "only one copy was made"
    await shard.close()
    assert (await handover)[0] is False


async def test_nothing_is_done_after_an_effect_that_the_disk_refused(
    three: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    await three.put(0, b"one")
    store, executor = three.store(1), three.shell(1).executor
    end = store.log_end

    def refuse(_: bool) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(store, "mark_unclean", refuse)
    executor.carry_out(Mark(unclean=True))
    executor.carry_out(Reset(end))
    assert (store.log_start, store.log_end) == (0, end), "the log is only thrown away when noted"
    assert three.brokers[1].failed.result().exit_code is ExitCode.IO


async def test_registration_says_when_a_log_was_thrown_away_and_when_it_is_whole_again(
    three: ShardBrokers,
) -> None:
    def registered() -> tuple[bool, int, int]:
        members = three.brokers[0].coordinator.view().members(0)
        record = next(one for one in members if one.uuid == uuid)
        return record.unclean, record.log_epoch, record.log_end

    await three.put(0, b"one")
    uuid, executor, end = three.brokers[1].uuid, three.shell(1).executor, three.store(1).log_end
    assert executor.following is not None
    executor.following.close()
    executor.carry_out(Mark(unclean=True))
    executor.carry_out(Reset(end))
    await until(lambda: registered() == (True, 0, end))
    await three.kill(1)
    await three.start(1)
    await three.all_in_sync(0, 1, 2)
    await until(lambda: registered()[0] is False)
    await three.same_logs()


async def test_fault_in_a_change_of_role_ends_the_process(
    three: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(_: int) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(three.brokers[1].role_services, "lead", fault)
    done, _ = await three.shell(0).hand_over(three.brokers[1].uuid, "one")
    assert done
    failure = await asyncio.wait_for(asyncio.shield(three.brokers[1].failed), 50)
    assert failure.exit_code is ExitCode.UNEXPECTED
    assert not three.gate(1).safe
    assert await three.put(1, b"no") == [PutStatus.STOPPING]
    await three.kill(1)
    leader = await three.led()
    assert await three.put(leader, b"yes") == [OK]


async def test_fault_while_connecting_is_tried_again(
    three: ShardBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    following = three.shell(2).executor.following
    assert following is not None
    await until(lambda: following.session is not None and following.session.copying)
    connect, faults = Following._connect, list[int]()

    async def once(this: Following) -> bool:
        if this is following and not faults:
            faults.append(1)
            raise KeyError("a fault of ours")
        return await connect(this)

    monkeypatch.setattr(Following, "_connect", once)
    assert following.session is not None
    following.session.end("a test")
    await until(lambda: bool(faults and following.session and following.session.copying))


async def test_requests_are_answered_by_a_member_that_stops(three: ShardBrokers) -> None:
    shell = three.shell(2)
    await three.stop(2)
    async with asyncio.timeout(50):
        assert await shell.hand_over(None, "late") == (False, "this broker stops")


async def test_retention_waits_for_connected_followers(three: ShardBrokers) -> None:
    assert await three.put(0, b"one") == [OK]
    store = three.store(0)
    deleter: Any = store.components.deleter
    await until(lambda: deleter._follower_from == store.log_end)
    following = three.shell(2).executor.following
    assert following is not None
    assert following.session is not None
    following.session.received = take_nothing  # type: ignore[method-assign]  # it falls behind
    following.session.heard_ms += 60_000
    end = store.log_end
    assert await three.put(0, b"two", level=Acknowledgement.LEADER) == [OK]
    await until(lambda: three.store(1).log_end == store.log_end > end)
    await until(lambda: deleter._follower_from == end)
    await three.shell(0).hand_over(three.brokers[1].uuid, "one")
    assert deleter._follower_from == ALL_VISIBLE, "a follower keeps nothing for others"


async def test_puts_under_load_survive_one_death_after_the_other(three: ShardBrokers) -> None:
    acknowledged: list[bytes] = []
    stopped = asyncio.Event()

    async def produce() -> None:
        serial = 0
        while not stopped.is_set():
            leader = three.leader
            if leader is None:
                await asyncio.sleep(0.01)
                continue
            bodies = [b"%d" % (serial + step) for step in range(20)]
            serial += 20
            statuses = await three.put(leader, *bodies)
            acknowledged.extend(
                body for body, status in zip(bodies, statuses, strict=True) if status is OK
            )

    producing = asyncio.create_task(produce())
    for _ in range(3):
        count = len(acknowledged)
        await until(lambda count=count: len(acknowledged) > count + 200)  # type: ignore[misc]  # bound now
        dead = await three.led()
        await three.kill(dead)
        await three.led()
        await three.start(dead)
        await three.all_in_sync(0, 1, 2)
    stopped.set()
    await producing
    await three.same_logs()
    leader = await three.led()
    await until(lambda: three.store(leader).high_watermark == three.store(leader).log_end)
    kept = three.bodies(leader)
    promised = set(acknowledged)
    order = [body for body in kept if body in promised]
    assert order == acknowledged
