"""What every coordinator promises about leadership: one state a shard, compare and set, a lease."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from imago_broker.cluster.session.session_lease import monotonic_ms
from imago_broker.model.registry.cluster import BrokerRecord, RegistryConnection, Role
from imago_broker.model.registry.shard import Member, ShardState
from imago_broker.ports import (
    CoordinatorConflictError,
    CoordinatorError,
    CoordinatorUnavailableError,
    RegistryDamagedError,
)
from imago_testing.clusters.registry import CONFIG, Registry, broker, in_state, until

if TYPE_CHECKING:
    from imago_broker.cluster.coordinator import TreeCoordinator

STATE = "/imago/imago/shards/0/state"


def own(coordinator: TreeCoordinator) -> Member:
    record = coordinator.registered
    assert record is not None, "registered before"
    return Member(record.uuid, record.incarnation)


def led_by(leader: Member | None, *others: Member, epoch: int = 1, version: int = -1) -> ShardState:
    members = [*others, *([leader] if leader else [])]
    return ShardState(
        leader=leader,
        epoch=epoch,
        in_sync=tuple(sorted(members)),
        cause="test",
        at_ms=1,
        version=version,
    )


async def pair(registry: Registry) -> tuple[TreeCoordinator, TreeCoordinator]:
    """Two members of shard 0."""
    one, two = await registry.join(), await registry.join()
    await one.register(replace(broker("disk-a"), role=Role.ELECTING))
    await two.register(replace(broker("disk-b", process=1), role=Role.ELECTING))
    return one, two


async def test_a_shard_has_no_state_before_somebody_writes_one(registry: Registry) -> None:
    one, _ = await pair(registry)
    assert await one.shard_states.read_shard(0) is None
    assert one.view().states == {}
    assert one.view().master(0) is None


def leads(coordinator: TreeCoordinator, epoch: int) -> BrokerRecord:
    """Return a member's registration as its becoming the leader has written it."""
    assert coordinator.registered is not None
    return replace(coordinator.registered, role=Role.MASTER, epoch_seen=epoch)


async def test_the_first_state_is_created_and_seen_by_all(registry: Registry) -> None:
    one, two = await pair(registry)
    written = await one.shard_states.change_shard(0, led_by(own(one)))
    assert written == replace(led_by(own(one)), version=0)
    assert one.view().states[0] == written
    assert await two.shard_states.read_shard(0) == written
    view = await until(two, lambda view: 0 in view.states and len(view.brokers) == 2)
    assert view.states[0] == written
    assert view.master(0) == leads(one, written.epoch)
    assert view.members_known(0) == {"disk-a": 0, "disk-b": 1}
    assert view.members_known(7) == {}


async def test_a_view_that_is_read_now_has_what_others_have_just_written(
    registry: Registry,
) -> None:
    one, two = await pair(registry)
    written = await one.shard_states.change_shard(0, led_by(own(one)))
    await one.register(replace(broker("disk-a"), role=Role.MASTER, log_end=77))
    assert await two.shard_states.read_shard(0) == written
    assert [record.log_end for record in two.view().members(0)] == [77, 0]


async def test_only_one_of_two_proposals_is_taken(registry: Registry) -> None:
    one, two = await pair(registry)
    outcomes = await asyncio.gather(
        one.shard_states.change_shard(0, led_by(own(one))),
        two.shard_states.change_shard(0, led_by(own(two))),
        return_exceptions=True,
    )
    conflicts = [o for o in outcomes if isinstance(o, CoordinatorConflictError)]
    written = [o for o in outcomes if isinstance(o, ShardState)]
    assert (len(conflicts), len(written)) == (1, 1)
    assert await one.shard_states.read_shard(0) == written[0]


async def test_a_change_of_what_was_changed_since_is_refused(registry: Registry) -> None:
    one, two = await pair(registry)
    first = await one.shard_states.change_shard(0, led_by(own(one)))
    second = await one.shard_states.change_shard(
        0, led_by(own(one), own(two), version=first.version)
    )
    assert second.version == 1
    with pytest.raises(CoordinatorConflictError, match="changed by another member"):
        await two.shard_states.change_shard(0, led_by(own(two), epoch=2, version=first.version))
    assert await two.shard_states.read_shard(0) == second


async def test_a_life_that_is_not_registered_changes_nothing(registry: Registry) -> None:
    one, two = await pair(registry)
    state = await one.shard_states.change_shard(0, led_by(own(one)))
    await registry.delete("/imago/imago/brokers/0-1")
    with pytest.raises(CoordinatorConflictError, match=r"registration is gone|no registration"):
        await two.shard_states.change_shard(0, led_by(own(one), epoch=2, version=state.version))
    stranger = await registry.join()
    with pytest.raises(CoordinatorConflictError, match="no registration of ours"):
        await stranger.shard_states.change_shard(
            0, led_by(own(one), epoch=2, version=state.version)
        )
    assert await one.shard_states.read_shard(0) == state


async def test_a_change_of_role_does_not_hinder_a_change_of_state(registry: Registry) -> None:
    one, _ = await pair(registry)
    state = led_by(own(one))
    record = replace(broker("disk-a"), role=Role.MASTER, log_end=4711, log_epoch=3, unclean=True)
    written, _ = await asyncio.gather(one.shard_states.change_shard(0, state), one.register(record))
    assert written.version == 0
    assert one.registered
    assert (one.registered.log_end, one.registered.log_epoch, one.registered.unclean) == (
        4711, 3, True,
    )  # fmt: skip
    assert one.view().master(0) == one.registered


async def test_a_leader_without_its_registration_is_no_master(registry: Registry) -> None:
    one, two = await pair(registry)
    await one.shard_states.change_shard(0, led_by(own(one), own(two)))
    await until(two, lambda view: view.master(0) is not None)
    await one.stop()
    view = await until(two, lambda view: view.master(0) is None)
    assert view.states[0].epoch == 1


async def test_a_new_life_of_the_leader_is_not_the_leader(registry: Registry) -> None:
    one, two = await pair(registry)
    await one.shard_states.change_shard(0, led_by(own(one), own(two)))
    before = own(one)
    await registry.expire(one)
    view = await until(
        two, lambda view: any(b.incarnation > before.incarnation for b in view.members(0)[:1])
    )
    assert view.states[0].leader == before
    assert view.master(0) is None


async def test_a_state_that_nobody_can_read_is_named_and_the_last_good_one_stays(
    registry: Registry,
) -> None:
    one, two = await pair(registry)
    state = await one.shard_states.change_shard(0, led_by(own(one)))
    await until(two, lambda view: 0 in view.states)
    await registry.write(STATE, b'{"leader":17}')
    view = await until(two, lambda view: bool(view.refused))
    assert list(view.refused) == [STATE]
    assert view.states[0] == state
    with pytest.raises(RegistryDamagedError, match=STATE):
        await two.shard_states.read_shard(0)
    with pytest.raises(CoordinatorConflictError):
        await one.shard_states.change_shard(0, led_by(own(one), epoch=2, version=state.version))


async def test_while_the_registry_is_silent_no_state_changes(registry: Registry) -> None:
    one, _ = await pair(registry)
    state = await one.shard_states.change_shard(0, led_by(own(one)))
    await registry.cut(one)
    try:
        await in_state(one, RegistryConnection.LOST)
        with pytest.raises(CoordinatorUnavailableError):
            await one.shard_states.change_shard(0, led_by(own(one), epoch=2, version=state.version))
        assert one.lease_end_ms == 0
    finally:
        await registry.heal(one)
    await in_state(one, RegistryConnection.CONNECTED)
    assert one.lease_end_ms > 0


async def test_the_lease_counts_from_when_an_answered_call_was_sent(registry: Registry) -> None:
    before = monotonic_ms()
    one = await registry.join()
    first = one.lease_end_ms
    assert before + CONFIG.lease_ms <= first <= monotonic_ms() + CONFIG.lease_ms
    before = monotonic_ms()
    await one._session._lease.renew()
    assert before + CONFIG.lease_ms <= one.lease_end_ms <= monotonic_ms() + CONFIG.lease_ms
    await one.stop()
    assert one.lease_end_ms == 0


async def test_a_session_that_ended_leaves_no_lease(registry: Registry) -> None:
    one, _ = await pair(registry)
    seen: list[tuple[RegistryConnection, bool]] = []
    back = asyncio.Event()

    def note(state: RegistryConnection) -> None:
        seen.append((state, one.lease_end_ms > 0))
        if state is RegistryConnection.CONNECTED:
            back.set()

    one.on_state(note)
    await registry.expire(one)
    async with asyncio.timeout(50):
        await back.wait()
    assert seen[-2:] == [(RegistryConnection.LOST, False), (RegistryConnection.CONNECTED, True)]


async def test_a_copy_of_a_data_folder_is_refused_and_names_the_first(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join()
    incarnation = await one.register(broker("disk-a"))
    with pytest.raises(CoordinatorConflictError, match=r"disk-a is in use by .*127\.0\.0\.1:10911"):
        await two.register(broker("disk-a", process=1))
    assert one.registered
    assert one.registered.incarnation == incarnation
    assert (await until(two, lambda view: bool(view.brokers))).brokers == (one.registered,)


async def test_two_brokers_of_one_address_are_refused_and_the_first_is_named(
    registry: Registry,
) -> None:
    one, two = await registry.join(), await registry.join()
    await one.register(broker("disk-a"))
    clash = replace(broker("disk-b", process=1), rocketmq=10911)
    with pytest.raises(CoordinatorConflictError, match=r"127\.0\.0\.1:10911 .*replica 0.*address"):
        await two.register(clash)
    assert two.registered is None


async def test_an_address_is_free_once_the_dead_one_is_off_the_record(registry: Registry) -> None:
    one, two = await registry.join(), await registry.join(stranger_wait_ms=20_000)
    await one.register(broker("disk-a"))
    registering = asyncio.create_task(two.register(broker("wiped")))
    await until(two, lambda view: "wiped" in view.members_known(0))
    await one.stop()
    assert await registering > 0
    assert two.registered
    assert two.registered.replica == 1


async def test_who_leads_is_never_read_after_who_is_there(registry: Registry) -> None:
    one, two = await pair(registry)
    state = await one.shard_states.change_shard(0, led_by(own(one)))
    view_after = await two.shard_states.read_shard(0)
    assert view_after == state
    assert two.view().master(0) == leads(one, state.epoch)


async def test_a_shard_is_cordoned_and_drained_for_all_to_see(registry: Registry) -> None:
    one, two = await pair(registry)
    await one.marks.mark_shard(0, cordoned=True)
    view = await until(two, lambda view: bool(view.cordoned))
    assert (view.cordoned, view.drained) == (frozenset({0}), frozenset())
    await two.marks.mark_shard(0, drained=True)
    assert two.view().drained == frozenset({0})
    await one.register(replace(broker("disk-a"), role=Role.SLAVE))
    await one.marks.mark_shard(0, cordoned=False)
    assert (one.view().cordoned, one.view().drained) == (frozenset(), frozenset({0}))
    with pytest.raises(CoordinatorError, match="never been a shard-9, or it is gone"):
        await one.marks.mark_shard(9, cordoned=True)


async def test_the_operators_fence_only_rises(registry: Registry) -> None:
    one, two = await pair(registry)
    assert one.view().operator_epoch == 0
    await one.marks.raise_operator_epoch(3)
    await one.marks.raise_operator_epoch(3)
    assert (await until(two, lambda view: view.operator_epoch == 3)).operator_epoch == 3
    with pytest.raises(CoordinatorConflictError, match="3 is in force"):
        await two.marks.raise_operator_epoch(2)


async def test_of_two_fences_at_once_one_is_refused(registry: Registry) -> None:
    one, two = await pair(registry)
    marks, uuids = (one.marks, two.marks), ("disk-a", "disk-b")
    calls = (
        each.fence_member(0, uuid, others={*uuids, "disk-c"} - {uuid}, least=2)
        for each, uuid in zip(marks, uuids, strict=True)
    )
    done = await asyncio.gather(*calls, return_exceptions=True)
    (refused,) = [each for each in done if each is not None]
    fenced = uuids[done.index(None)]
    assert isinstance(refused, CoordinatorConflictError)
    assert f"{fenced}: fenced as well" in str(refused)
    other, at = ("disk-b", two) if fenced == "disk-a" else ("disk-a", one)
    with pytest.raises(CoordinatorConflictError):
        await at.marks.fence_member(0, other, others={fenced, "disk-c"}, least=2)
    await at.marks.fence_member(0, other, others={fenced, "disk-c"}, least=1)


async def test_a_member_that_comes_back_is_fenced_no_more(registry: Registry) -> None:
    one, two = await pair(registry)
    others = {"disk-b", "disk-c"}
    await two.marks.fence_member(0, "disk-b", others={"disk-a", "disk-c"}, least=2)
    with pytest.raises(CoordinatorConflictError, match="disk-b"):
        await one.marks.fence_member(0, "disk-a", others=others, least=2)
    await two.register(broker("disk-b", process=1))
    await one.marks.fence_member(0, "disk-a", others=others, least=2)
    await one.marks.unfence_member(0, "disk-a")
    await two.marks.fence_member(0, "disk-b", others={"disk-a", "disk-c"}, least=2)
