"""What MetaQ's clients decide, over a tree that is a dictionary."""

from __future__ import annotations

import sqlite3
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_client import NoRouteError, UsageError
from imago_client.core.metaq.membership import TreeMember
from imago_client.core.metaq.nodes import (
    BrokerAddresses,
    ListNode,
    MakeNode,
    PartitionId,
    ReadNode,
    RemoveNode,
    StoredOffset,
    TreePaths,
    WriteNode,
    read_cluster,
    read_offered,
    read_offset,
    write_offset,
)
from imago_client.core.metaq.ordering import OrderedPartitions, OrderedStep, by_key, next_step
from imago_client.core.metaq.routes import PartitionRotation, read_routes
from imago_client.core.metaq.shares import ShareStrategy, share
from imago_client.metaq.groups.group_config import MetaqGroupConsumerConfig, new_consumer_id
from imago_client.metaq.groups.group_offsets import LocalFileOffsets, SqlOffsets
from imago_client.metaq.groups.local_messages import (
    LocalMessage,
    LocalMessages,
    LocalStoreFullError,
)
from imago_client.metaq.reading.delivery import SeenIds, is_wanted
from imago_client.metaq.values import MetaqMessage, Partition
from imago_testing.searching import examples

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from imago_client.core.metaq.nodes import NodeOperation, NodeRequest

PATHS = TreePaths()
ELEVEN = [f"0-{number}" for number in range(11)]


class DictionaryTree:
    """Nodes by path. Ephemeral ones know whose they are."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.owners: dict[str, str] = {}

    def answer(self, request: NodeRequest, client: str = "") -> Any:
        path = request.path
        match request:
            case ReadNode():
                return self.nodes.get(path)
            case ListNode():
                return self.list(path)
            case MakeNode(_, data, ephemeral):
                return self.make(path, data, client if ephemeral else None)
            case WriteNode(_, data):
                if path in self.nodes:
                    self.nodes[path] = data
                return path in self.nodes
            case RemoveNode():
                self.owners.pop(path, None)
                return self.nodes.pop(path, None) is not None

    def list(self, path: str) -> tuple[str, ...] | None:
        names = {key[len(path) + 1 :] for key in self.nodes if key.startswith(f"{path}/")}
        direct = tuple(sorted({name.split("/")[0] for name in names}))
        return direct if direct or path in self.nodes else None

    def make(self, path: str, data: bytes, owner: str | None) -> bool:
        if path in self.nodes:
            return False
        self.nodes[path] = data
        if owner is not None:
            self.owners[path] = owner
        return True

    def run(self, operation: Generator[NodeRequest, Any, Any], client: str = "") -> Any:
        try:
            request = next(operation)
            while True:
                request = operation.send(self.answer(request, client))
        except StopIteration as stop:
            return stop.value

    def expire(self, client: str) -> None:
        for path in [path for path, owner in self.owners.items() if owner == client]:
            del self.nodes[path], self.owners[path]

    def offer(self, topic: str, broker: int, count: int, role: str = "m") -> None:
        data = b'{"numParts":%d,"broker":"%d-%s"}' % (count, broker, role.encode())
        for folder in ("topics-sub", "topics-pub"):
            self.nodes[f"/meta/brokers/{folder}/{topic}/{broker}-{role}"] = data
        name = "master" if role == "m" else f"slave{role[1:]}"
        self.nodes[f"/meta/brokers/ids/{broker}/{name}"] = b"meta://127.0.0.1:%d" % (8123 + broker)


# Shares


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        ("c1", ["0-0", "0-1", "0-10"]),
        ("c2", ["0-2", "0-3", "0-4"]),
        ("c3", ["0-5", "0-6", "0-7"]),
        ("c4", ["0-8", "0-9"]),
        ("c5", []),
    ],
)
def test_default_shares_are_those_of_the_original(member: str, expected: list[str]) -> None:
    members = ["c4", "c2", "c1", "c3"]
    assert share(ShareStrategy.DEFAULT, member, members, ELEVEN) == expected


def test_consistent_shares_are_those_of_the_original() -> None:
    members, partitions = ["g1_b", "g1_a"], ["0-3", "0-2", "0-1", "0-0"]
    assert share(ShareStrategy.CONSIST, "g1_a", members, partitions) == ["0-0", "0-1"]
    assert share(ShareStrategy.CONSIST, "g1_b", members, partitions) == ["0-2", "0-3"]


@given(st.sampled_from(ShareStrategy), st.integers(1, 6), st.sets(st.integers(0, 99), max_size=20))
def test_members_share_all_and_none_twice(
    strategy: ShareStrategy, count: int, numbers: set[int]
) -> None:
    members = [f"g_{index}" for index in range(count)]
    partitions = [f"0-{number}" for number in numbers]
    shares = [share(strategy, member, members, partitions) for member in members]
    assert sorted(each for one in shares for each in one) == sorted(partitions)


# The tree


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ("-5468922380556435456-44", StoredOffset(44, -5468922380556435456)),
        ("17-1024", StoredOffset(1024, 17)),
        ("1024", StoredOffset(1024, -1)),
        ("-1-0", StoredOffset(0, -1)),
        ("nonsense", None),
    ],
)
def test_offset_records_are_read_as_the_original_writes_them(
    record: str, expected: StoredOffset | None
) -> None:
    assert StoredOffset.parse(record) == expected
    if expected is not None and record != "1024":
        assert expected.record == record


def test_offsets_and_cluster_are_found_in_the_tree() -> None:
    tree, partition = DictionaryTree(), PartitionId("t", 3, 1)
    assert tree.run(read_offset(PATHS, "g", partition)) is None
    for position in (5, 9):
        tree.run(write_offset(PATHS, "g", partition, StoredOffset(position, 7)))
        assert tree.run(read_offset(PATHS, "g", partition)) == StoredOffset(position, 7)
    assert tree.nodes["/meta/consumers/g/offsets/t/3-1"] == b"7-9"
    tree.offer("t", 3, 2)
    tree.offer("t", 3, 2, "s1")
    tree.nodes["/meta/brokers/ids/3/master_config_checksum"] = b"17"
    tree.nodes["/meta/brokers/ids/elsewhere"] = b""
    address = "127.0.0.1:8126"
    assert tree.run(read_cluster(PATHS)) == {3: BrokerAddresses(address, (address,))}


def test_routes_have_masters_alone_and_skip_what_is_no_number() -> None:
    tree = DictionaryTree()
    tree.offer("t", 1, 2)
    tree.offer("t", 0, 2)
    tree.offer("t", 2, 2, "s1")
    tree.nodes["/meta/brokers/topics-pub/t/7-m"] = b"no json"
    tree.nodes["/meta/brokers/topics-pub/t/8-m"] = b'{"numParts":"9"}'
    routes = tree.run(read_routes(PATHS, ["t", "other"]))
    names = [each.name for each in routes.of("t")]
    assert names == ["0-0", "0-1", "1-0", "1-1"]
    with pytest.raises(NoRouteError, match="'other'"):
        routes.of("other")
    assert [each.topic for each in routes.of("other", "t")] == ["other"] * 4
    turns = PartitionRotation()
    chosen = [turns("t", routes.of("t"), b"").name for _ in range(5)]
    assert chosen == ["0-1", "1-0", "1-1", "0-0", "0-1"]
    assert routes.broker_with_all(["t"], lambda each: each[-1]) == "127.0.0.1:8124"
    del tree.nodes["/meta/brokers/ids/0/master"]
    routes = tree.run(read_routes(PATHS, ["t"]))
    assert [each.name for each in routes.of("t")] == ["1-0", "1-1"]
    assert routes.address(PartitionId("t", 0, 0)) is None


class Actor:
    """One consumer that follows the tree as ours do, one request at a time."""

    def __init__(self, tree: DictionaryTree, name: str) -> None:
        self.tree, self.name = tree, name
        self.member = TreeMember(PATHS, "g", name, ["t"], ShareStrategy.DEFAULT)
        self.owned: set[PartitionId] = set()
        self.work = self.balance()
        self.request: NodeRequest | None = None
        self.step(None)

    def balance(self) -> NodeOperation[None]:
        while True:
            yield from self.member.join()
            view = yield from self.member.look()
            gone = self.owned - view.wanted
            self.owned -= gone
            yield from self.member.release(gone)
            self.owned |= yield from self.member.claim(view.wanted - self.owned)

    def step(self, answer: object) -> None:
        self.request = self.work.send(answer)

    def act(self) -> None:
        assert self.request is not None
        self.step(self.tree.answer(self.request, self.name))


class Group:
    """Members whose requests mix in any order, and come and go meanwhile."""

    def __init__(self, seed: int) -> None:
        self.rng, self.tree = Random(seed), DictionaryTree()
        for broker in range(2):
            self.tree.offer("t", broker, 3)
        self.actors = {f"c{index}": Actor(self.tree, f"c{index}") for index in range(3)}

    @property
    def owned(self) -> list[PartitionId]:
        return [each for actor in self.actors.values() for each in actor.owned]

    def change(self, turn: int) -> None:
        if self.rng.random() < 0.01 and len(self.actors) > 1:
            gone = self.rng.choice(sorted(self.actors))
            self.tree.expire(gone)
            del self.actors[gone]
        if self.rng.random() < 0.01:
            self.actors[f"d{turn}"] = Actor(self.tree, f"d{turn}")
        if self.rng.random() < 0.01:
            self.tree.offer("t", self.rng.randrange(3), self.rng.randint(1, 5))

    def settle(self) -> None:
        for _ in range(3):
            for actor in self.actors.values():
                for _ in range(400):
                    actor.act()


@pytest.mark.parametrize("seed", range(examples(60)))
def test_no_partition_has_two_readers_however_members_come_and_go(seed: int) -> None:
    """Requests of all members mix in any order; sessions end in between."""
    group = Group(seed)
    for turn in range(1200):
        group.rng.choice(list(group.actors.values())).act()
        assert len(group.owned) == len(set(group.owned))
        group.change(turn)
    group.settle()
    folder = PATHS.subscribable("t")
    offered = group.tree.run(read_offered(folder, "t", masters_only=False))
    assert set(group.owned) >= offered
    assert len(group.owned) == len([path for path in group.tree.nodes if "/owners/t/" in path])
    for actor in group.actors.values():
        group.tree.run(actor.member.leave())
    assert not [path for path in group.tree.nodes if "/owners/t/" in path or "/ids/g_" in path]


# Order


def test_ordered_messages_go_behind_those_that_wait() -> None:
    assert next_step(available=True, stored=0, waits=0) is OrderedStep.SEND
    assert next_step(available=False, stored=0, waits=0) is OrderedStep.STORE
    assert next_step(available=True, stored=20, waits=2) is OrderedStep.WAIT
    assert next_step(available=True, stored=20, waits=3) is OrderedStep.STORE
    assert next_step(available=True, stored=21, waits=0) is OrderedStep.STORE


def test_ordered_partitions_are_those_configured() -> None:
    partitions = OrderedPartitions.parse({"t": "1:1;0:2"})
    assert [each.name for each in partitions.of("t")] == ["0-0", "0-1", "1-0"]
    assert by_key(b"a", partitions.of("t")) == by_key(b"a", partitions.of("t"))
    for wrong in ({"t": "0"}, {"t": "0:x"}, {"t": "0:0"}):
        with pytest.raises(UsageError):
            OrderedPartitions.parse(wrong)
    with pytest.raises(UsageError, match="'u'"):
        partitions.of("u")


# What is kept


def test_kept_messages_come_back_in_order_over_restarts(tmp_path: Path) -> None:
    store = LocalMessages(tmp_path, "a/b.c@0-1", count_max=3)
    for body in (b"one", b"\x00\xff", b"three"):
        store.append(LocalMessage("a/b.c", body, "ü"))
    with pytest.raises(LocalStoreFullError, match="holds 3"):
        store.append(LocalMessage("a", b""))
    with pytest.raises(UsageError, match="another process"):
        LocalMessages(tmp_path, "a/b.c@0-1")
    [(first, message), *_] = list(store)
    assert (message.payload, message.attribute) == (b"one", "ü")
    store.remove(first)
    store.close()
    (store.folder / "00000000000000000009.new").write_bytes(b"torn")
    (store.folder / "00000000000000000001.message").write_bytes(b"{}")
    again = LocalMessages(tmp_path, "a/b.c@0-1")
    assert [kept.payload for _, kept in again] == [b"three"]
    assert len(again) == 1
    again.append(LocalMessage("a", b"four"))
    assert [kept.payload for _, kept in again] == [b"three", b"four"]
    again.close()


def test_offset_file_has_the_form_of_the_original(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "offsets.json"
    store, partition = LocalFileOffsets(path), PartitionId("t", 1, 2)
    assert store.load("g", partition) is None
    store.save("g", {partition: StoredOffset(44, -5)})
    assert LocalFileOffsets(path).load("g", partition) == StoredOffset(44, -5)
    path.write_text(
        '{"h":[{"topic":"t","partition":{"brokerId":1,"partition":2,"autoAck":true},"offset":7,'
        '"messageId":0,"modified":1}]}'
    )
    assert LocalFileOffsets(path).load("h", partition) == StoredOffset(7, 0)
    path.write_text("[]")
    with pytest.raises(UsageError, match="move it away"):
        LocalFileOffsets(path)


def test_offsets_in_a_database(tmp_path: Path) -> None:
    file = tmp_path / "offsets.db"
    with sqlite3.connect(file) as connection:
        connection.execute(SqlOffsets.TABLE)
    connection.close()
    store = SqlOffsets(lambda: sqlite3.connect(file), placeholder="?")
    one, two = PartitionId("t", 0, 0), PartitionId("t", 0, 1)
    store.save("g", {one: StoredOffset(5, 50)})
    store.save("g", {one: StoredOffset(6, 60), two: StoredOffset(7, 70)})
    assert store.load("g", one) == StoredOffset(6, 60)
    assert store.load("g", two) == StoredOffset(7, 70)
    assert store.load("h", one) is None


# Delivery


def message(number: int) -> MetaqMessage:
    return MetaqMessage(Partition("t", "a:1", 0), 0, 21, number, None, b"x")


def test_message_seen_lately_or_not_wanted_is_left_out() -> None:
    seen, failed = SeenIds(2), []

    def wanted(group: str, each: MetaqMessage) -> bool:
        return bool(1 // (each.message_id - 9)) if group == "g" else False

    def asked(number: int) -> bool:
        return is_wanted(message(number), "g", seen, wanted, lambda *each: failed.append(each))

    assert asked(10)
    assert not asked(9)
    assert [each.message_id for each, _ in failed] == [9]
    assert not asked(12)
    for number in (10, 11, 13):
        seen.add(number)
    assert 10 not in seen
    assert not asked(13)


@pytest.mark.parametrize("group", ["", "a b", "a.b", "a/b", "a%b", "a:b"])
def test_names_of_groups_are_checked_as_in_the_original(group: str) -> None:
    with pytest.raises(UsageError, match="group"):
        MetaqGroupConsumerConfig(group=group)


def test_consumer_ids_differ() -> None:
    assert new_consumer_id() != new_consumer_id()
