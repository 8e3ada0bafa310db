"""However leadership changes hands, MetaQ's tree ends up as the shard's state says.

Two members of one shard publish, are cut off, expire, hand over and take over in any order. When
everything has settled, the master's nodes are the leader's, made in its session, and the other
live member stands as slave: nothing is missing and nothing of a former mastership is left.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imago_broker.cluster import coordinator as coordinator_module
from imago_broker.cluster.coordinator import TreeCoordinator
from imago_broker.cluster.memory import MemoryEnsemble, MemoryTree
from imago_broker.cluster.metaq_tree import metaq_tree
from imago_broker.cluster.metaq_tree.metaq_tree import MetaqPaths
from imago_broker.cluster.metaq_tree.succession import PLANNED, PRODUCERS_MS, QUIET_MS
from imago_broker.cluster.session.session_lease import monotonic_ms
from imago_broker.cluster.settings import CoordinatorConfig
from imago_broker.model.registry.cluster import RegistryConnection, Role
from imago_broker.model.registry.shard import Election, Member, ShardState
from imago_broker.ports import CoordinatorError
from imago_testing.clusters.registry import broker, topic
from imago_testing.searching import examples

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from imago_broker.model.registry.cluster import BrokerRecord

NAMES = ("a", "b", "c")
TURNS_MAX = 20_000
CONFIG = CoordinatorConfig(operation_timeout_ms=60_000, session_timeout_ms=120_000)


@dataclass(slots=True)
class Process:
    record: BrokerRecord
    tree: MemoryTree
    coordinator: TreeCoordinator
    asked: set[asyncio.Task[None]] = field(default_factory=set)

    def ask(self, work: Coroutine[Any, Any, object]) -> None:
        self.asked.add(asyncio.create_task(_tolerant(work)))

    def member(self) -> Member | None:
        registered = self.coordinator.registered
        return None if registered is None else Member(registered.uuid, registered.incarnation)


async def _tolerant(work: Coroutine[Any, Any, object]) -> None:
    try:
        await work
    except CoordinatorError:
        return


async def lead(process: Process, leader: Process) -> None:
    """Have a process write that it, or another, leads from now on, as far as that is its right.

    Nobody deposes a leader whose registration stands but that leader itself.
    """
    await process.coordinator.shard_states.read_shard(0)
    view, member = process.coordinator.view(), leader.member()
    if member is None or process.member() is None:
        return
    master = view.master(0)
    if master is not None and master.uuid != process.record.uuid:
        return
    before = view.states.get(0, ShardState())
    planned = process is not leader
    cause = PLANNED if planned else "elected"
    entry = Election(
        epoch=before.epoch + 1, leader=member.uuid, at_ms=1, cause=cause, unclean=False
    )
    state = ShardState(
        leader=member,
        epoch=before.epoch + 1,
        in_sync=(member,),
        history=(entry,),
        version=before.version,
    )
    await process.coordinator.shard_states.change_shard(0, state)


async def give_up(process: Process) -> None:
    """Have a process write that nobody leads."""
    before = process.coordinator.view().states.get(0)
    if before is not None:
        await process.coordinator.shard_states.change_shard(0, replace(before, leader=None))


steps = st.tuples(
    st.sampled_from(
        ["take", "give", "give", "leave", "publish", "remove", "suspend", "resume", "expire", "run"]
    ),
    st.integers(0, 1),
    st.sampled_from(NAMES),
    st.integers(1, 6),
)
Step = tuple[str, int, str, int]


async def act(step: Step, processes: Sequence[Process], desired: dict[str, int]) -> None:
    action, which, name, number = step
    process, other = processes[which], processes[1 - which]
    changes = {
        "take": lambda: process.ask(lead(process, process)),
        "give": lambda: process.ask(lead(process, other)),
        "leave": lambda: process.ask(give_up(process)),
        "publish": lambda: publish(processes, desired, name, number),
        "remove": lambda: remove(processes, desired, name),
        "suspend": process.tree.suspend,
        "resume": process.tree.resume,
        "expire": process.tree.expire,
    }
    if action in changes:
        changes[action]()
        return
    for _turn in range(number * 5):
        await asyncio.sleep(0)


def publish(processes: Sequence[Process], desired: dict[str, int], name: str, number: int) -> None:
    """Make or change a topic; a follower hears of it through the log."""
    desired[name] = number
    for one in processes:
        one.ask(one.coordinator.publish_topic(topic(name, number)))


def remove(processes: Sequence[Process], desired: dict[str, int], name: str) -> None:
    """End a topic."""
    desired.pop(name, None)
    for one in processes:
        one.ask(one.coordinator.remove_topic(name))


async def two_members(
    ensemble: MemoryEnsemble, relay_ms: int, now_ms: Callable[[], int] = monotonic_ms
) -> list[Process]:
    config, processes = replace(CONFIG, relay_ms=relay_ms), []
    for number in range(2):
        tree = MemoryTree(ensemble)
        record = replace(broker(f"disk-{number}", shard=0, process=number), role=Role.ELECTING)
        coordinator = TreeCoordinator(config, tree, process_id=str(number), now_ms=now_ms)
        process = Process(record, tree, coordinator)
        await process.coordinator.start()
        await process.coordinator.register(record)
        processes.append(process)
    return processes


async def play(script: Sequence[Step], relay_ms: int) -> None:
    ensemble = MemoryEnsemble()
    processes = await two_members(ensemble, relay_ms)
    desired: dict[str, int] = {}
    for step in script:
        await act(step, processes, desired)
    for process in processes:
        process.tree.resume()
    await settled(lambda: all(task.done() for process in processes for task in process.asked))
    await settled(lambda: all_there(processes))
    # Whatever happened, somebody leads in the end.
    await final_leader(processes)
    await settled(lambda: as_expected(ensemble, processes, desired))
    for process in processes:
        await process.coordinator.stop()


def all_there(processes: Sequence[Process]) -> bool:
    """Whether every process sees the present life of each."""
    lives = [process.member() for process in processes]
    verified = all(
        process.coordinator.state is RegistryConnection.CONNECTED for process in processes
    )
    seen = [
        [Member(b.uuid, b.incarnation) for b in p.coordinator.view().brokers] for p in processes
    ]
    return verified and all(each == lives for each in seen)


async def final_leader(processes: Sequence[Process]) -> None:
    first = processes[0]
    for _ in range(TURNS_MAX):
        await first.coordinator.shard_states.read_shard(0)
        if first.coordinator.view().master(0) is not None:
            return
        first.ask(lead(first, first))
        await settled(lambda: all(task.done() for task in first.asked))
    raise AssertionError("nobody leads")


async def settled(condition: Any) -> None:
    for _ in range(TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the registry does not settle")


def as_expected(
    ensemble: MemoryEnsemble, processes: Sequence[Process], desired: dict[str, int]
) -> bool:
    view = processes[0].coordinator.view()
    paths = MetaqPaths("/meta", 0)
    expected: dict[str, tuple[bytes, int]] = {}
    for process in processes:
        registered = process.coordinator.registered
        if registered is None:
            return False
        role = Role.MASTER if view.leads(registered) else Role.SLAVE
        record = replace(registered, role=role)
        nodes = metaq_tree.broker_nodes(paths, record, 0)
        nodes |= metaq_tree.topic_nodes(paths, record, [topic(n, q) for n, q in desired.items()])
        session = process.tree.session_id
        expected |= {path: (data, session) for path, data in nodes.items()}
    found = {
        path: (entry.data, entry.owner)
        for path, entry in ensemble._entries.items()
        if path.startswith("/meta/") and entry.owner
    }
    placed = {name: placement.shards[0].write for name, placement in view.topics.items()}
    return found == expected and placed == desired


@pytest.mark.simulation
@settings(max_examples=examples(100), deadline=None)
@given(script=st.lists(steps, max_size=25), relay_ms=st.sampled_from([0, 8]))
def test_the_tree_follows_the_leadership_whatever_happens(
    script: list[Step], relay_ms: int
) -> None:
    with patch.object(coordinator_module, "RETRY_SECONDS", 0.0):
        asyncio.run(play(script, relay_ms))


class Told:
    """Two members of a shard with one topic, and which of them MetaQ's clients are told of."""

    def __init__(self) -> None:
        self.now = 1000
        self.ensemble = MemoryEnsemble()
        self.members: list[Process] = []

    async def start(self) -> None:
        self.members = await two_members(self.ensemble, 20_000, lambda: self.now)
        await lead(self.members[0], self.members[0])
        for member in self.members:
            await member.coordinator.publish_topic(topic("a"))
        assert await self.after(0) == ("0", "0")

    async def after(self, ms: int) -> tuple[str, str]:
        """Whose nodes producers and consumers see so much later: each member's number."""
        self.now += ms
        for member in self.members:
            await member.coordinator.register(member.record)
        return self._owner("topics-pub"), self._owner("topics-sub")

    def _owner(self, branch: str) -> str:
        entry = self.ensemble._entries.get(f"/meta/brokers/{branch}/a/0-m")
        owners = {member.tree.session_id: str(n) for n, member in enumerate(self.members)}
        return "nobody" if entry is None else owners.get(entry.owner, "a dead session")

    async def stop(self) -> None:
        for member in self.members:
            await member.coordinator.stop()


async def test_after_a_handover_producers_are_told_first_and_consumers_when_those_have_moved() -> (
    None
):
    told = Told()
    await told.start()
    await lead(told.members[0], told.members[1])
    assert await told.after(0) == ("0", "0")
    assert await told.after(QUIET_MS - 1) == ("0", "0")
    assert await told.after(1) == ("1", "0")
    assert await told.after(PRODUCERS_MS - 1) == ("1", "0")
    assert await told.after(1) == ("1", "1")
    await told.stop()


async def test_producers_have_their_time_before_consumers_however_late_they_are_told() -> None:
    told = Told()
    await told.start()
    await lead(told.members[0], told.members[1])
    assert await told.after(0) == ("0", "0")
    assert await told.after(QUIET_MS + 2 * PRODUCERS_MS) == ("1", "0")
    assert await told.after(PRODUCERS_MS - 1) == ("1", "0")
    assert await told.after(1) == ("1", "1")
    await told.stop()


async def test_a_former_master_shows_itself_to_consumers_when_they_have_moved() -> None:
    told = Told()
    await told.start()
    path = "/meta/brokers/topics-sub/a/0-s1"
    await lead(told.members[0], told.members[1])
    await told.after(QUIET_MS + PRODUCERS_MS)
    assert path not in told.ensemble._entries
    await told.after(PRODUCERS_MS)
    assert path in told.ensemble._entries
    await told.stop()


async def test_after_the_death_of_a_master_all_are_told_at_once() -> None:
    told = Told()
    await told.start()
    first = told.members.pop(0)
    first.tree.expire()
    first.tree.suspend()
    await settled(lambda: told.members[0].coordinator.view().master(0) is None)
    await lead(told.members[0], told.members[0])
    assert await told.after(0) == ("0", "0")
    await told.stop()
    first.tree.resume()
    await first.coordinator.stop()
