"""The plan of MetaQ's public tree: exact nodes, and steps that clients can follow."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.cluster.metaq_tree import metaq_tree
from imago_broker.cluster.metaq_tree.metaq_tree import MetaqPaths
from imago_broker.cluster.tree import Create, Delete
from imago_broker.model.registry.cluster import BrokerRecord, Role, ShardQueues, TopicPlacement

PATHS = MetaqPaths("/meta", 3)
MASTER = BrokerRecord(
    shard=3,
    uuid="u",
    host="10.0.0.7",
    metaq=8123,
    rocketmq=10911,
    fast=10909,
    replication=10912,
    admin=8080,
    broker_name="shard-3",
    replica=0,
)
SLAVE = replace(MASTER, role=Role.SLAVE, replica=1)


def topic(write: int = 4, read: int = 4, perm: int = 6, **attributes: str) -> TopicPlacement:
    shards = {3: ShardQueues(write, read, perm)}
    named = {name.replace("_", "."): value for name, value in attributes.items()}
    return TopicPlacement(name="orders", shards=shards, attributes=named)


def nodes(placement: TopicPlacement, record: BrokerRecord = MASTER) -> dict[str, str]:
    written = metaq_tree.topic_nodes(PATHS, record, [placement])
    return {path.removeprefix("/meta/brokers/"): data.decode() for path, data in written.items()}


def test_a_master_announces_its_address_and_the_checksum_of_its_settings() -> None:
    written = metaq_tree.broker_nodes(PATHS, MASTER, 3735928559)
    assert written == {
        "/meta/brokers/ids/3/master": b"meta://10.0.0.7:8123",
        "/meta/brokers/ids/3/master_config_checksum": b"3735928559",
    }
    assert next(iter(written)).endswith("/master"), "clients that see topics find the broker"


def test_clients_from_outside_are_told_what_they_can_reach() -> None:
    record = replace(MASTER, client_host="198.51.100.7", client_metaq=30001)
    written = metaq_tree.broker_nodes(PATHS, record, 1)
    assert written["/meta/brokers/ids/3/master"] == b"meta://198.51.100.7:30001"


def test_a_slave_announces_itself_by_its_number_plus_one() -> None:
    written = metaq_tree.broker_nodes(PATHS, SLAVE, 1)
    assert written == {"/meta/brokers/ids/3/slave2": b"meta://10.0.0.7:8123"}


@pytest.mark.parametrize("role", [Role.ELECTING, Role.FENCED])
def test_who_is_neither_announces_nothing(role: Role) -> None:
    record = replace(MASTER, role=role)
    assert metaq_tree.broker_nodes(PATHS, record, 1) == {}
    assert nodes(topic(), record) == {}


def test_a_topic_is_offered_in_three_places() -> None:
    assert nodes(topic(2, 2)) == {
        "topics/orders/3-m": "2",
        "topics-pub/orders/3-m": '{"numParts":2,"broker":"3-m"}',
        "topics-sub/orders/3-m": '{"numParts":2,"broker":"3-m"}',
    }


def test_a_slave_offers_topics_to_consumers_only() -> None:
    assert set(nodes(topic(), SLAVE)) == {"topics/orders/3-s2", "topics-sub/orders/3-s2"}


@pytest.mark.parametrize(
    ("placement", "offered"),
    [
        (topic(write=0), {"topics": 4, "topics-sub": 4}),
        (topic(read=0), {"topics": 4, "topics-pub": 4}),
        (topic(write=2, read=8), {"topics": 8, "topics-pub": 2, "topics-sub": 8}),
        (topic(perm=2), {"topics": 4, "topics-pub": 4}),
        (topic(perm=4), {"topics": 4, "topics-sub": 4}),
        (topic(perm=0), {}),
        (topic(metaq_publish="false"), {"topics": 4, "topics-sub": 4}),
        (topic(metaq_subscribe="false"), {"topics": 4, "topics-pub": 4}),
        (topic(metaq_subscribe="true"), {"topics": 4, "topics-pub": 4, "topics-sub": 4}),
        (replace(topic(), dual=False), {}),
        (replace(topic(), shards={1: ShardQueues(4, 4)}), {}),
    ],
)
def test_only_what_may_be_used_is_offered(
    placement: TopicPlacement, offered: dict[str, int]
) -> None:
    found = {}
    for path, data in nodes(placement).items():
        value = json.loads(data)
        found[path.split("/")[0]] = value["numParts"] if isinstance(value, dict) else value
    assert found == offered


@given(partitions=st.integers(1, 65536))
def test_the_payload_has_exactly_the_two_members_that_clients_accept(partitions: int) -> None:
    data = nodes(topic(partitions, partitions))["topics-pub/orders/3-m"]
    assert list(json.loads(data).items()) == [("numParts", partitions), ("broker", "3-m")]


paths = st.sampled_from([f"/p/{name}" for name in "abcdef"])
states = st.dictionaries(paths, st.sampled_from([b"1", b"2", b"3"]))


@given(written=states, wanted=states)
def test_steps_lead_from_what_is_written_to_what_is_wanted(
    written: dict[str, bytes], wanted: dict[str, bytes]
) -> None:
    tree = dict(written)
    for step in metaq_tree.changes(written, wanted):
        for operation in step:
            if isinstance(operation, Delete):
                del tree[operation.path]
            else:
                assert isinstance(operation, Create), "data changes are not seen by clients"
                assert operation.ephemeral
                assert operation.path not in tree
                tree[operation.path] = operation.data
    assert tree == wanted


@given(
    sizes=st.lists(st.integers(1, 9), max_size=40),
    size_max=st.integers(9, 30),
)
def test_batches_keep_steps_whole_and_in_order(sizes: list[int], size_max: int) -> None:
    steps = [tuple((number, part) for part in range(size)) for number, size in enumerate(sizes)]
    made = list(metaq_tree.batches(steps, size_max))
    assert [item for batch in made for item in batch] == [item for step in steps for item in step]
    assert all(0 < len(batch) <= size_max for batch in made)
    for batch in made:
        for number in {number for number, _ in batch}:
            assert sum(1 for n, _ in batch if n == number) == sizes[number]


def test_a_root_of_several_names_is_made_from_the_top() -> None:
    skeleton = [path for path, _ in MetaqPaths("/a/b", 0).skeleton()]
    assert skeleton[:4] == ["/a", "/a/b", "/a/b/brokers", "/a/b/brokers/ids"]
