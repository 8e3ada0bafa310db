"""Registry payloads: every value survives the trip, and garbage is only ever a GarbageError."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imago_broker.cluster import znodes
from imago_broker.cluster.edits.shard_record import (
    RecordedMember,
    ShardRecord,
    decode_shard,
    encode_shard,
)
from imago_broker.cluster.edits.state_node import decode_state, encode_state
from imago_broker.cluster.tree import NODE_BYTES_MAX, Node
from imago_broker.cluster.znodes import ClusterIdentity, GarbageError, Paths
from imago_broker.model.feature_level import LEVEL_MAX
from imago_broker.model.registry.cluster import (
    BrokerRecord,
    ForeignBroker,
    Role,
    ShardQueues,
    TopicPlacement,
)
from imago_broker.model.registry.shard import Election, ShardState
from imago_broker.model.registry.shard import Member as LiveMember

if TYPE_CHECKING:
    from collections.abc import Callable

PATHS = Paths("imago")

words = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, categories=["L", "N", "P", "S"]),
    min_size=1,
    max_size=40,
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ports = st.integers(0, 65535)
queues = st.builds(ShardQueues, st.integers(0, 65536), st.integers(0, 65536), st.integers(0, 15))
brokers = st.builds(
    BrokerRecord,
    shard=st.integers(0, 1023),
    uuid=words,
    host=words,
    metaq=ports,
    rocketmq=ports,
    fast=ports,
    replication=ports,
    admin=ports,
    broker_name=words,
    role=st.sampled_from(Role),
    replica=st.integers(0, 255),
    incarnation=st.integers(0, 1 << 62),
    unclean=st.booleans(),
    log_epoch=st.integers(0, 1 << 62),
    log_end=st.integers(0, 1 << 62),
    zone=st.just("") | words,
    addresses=st.lists(words, max_size=3).map(tuple),
    client_host=st.just("") | words,
    client_metaq=ports,
    client_rocketmq=ports,
)
topics = st.builds(
    TopicPlacement,
    name=words,
    shards=st.dictionaries(st.integers(0, 1023), queues, max_size=5),
    sys_flag=st.integers(0, 1 << 30),
    order=st.booleans(),
    dual=st.booleans(),
    attributes=st.dictionaries(texts, texts, max_size=4),
)
plain = st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | texts
foreigners = st.builds(
    ForeignBroker,
    cluster=words,
    broker_name=words,
    broker_id=st.integers(0, 1 << 53),
    address=words,
    ha_address=st.just("") | words,
    zone=st.just("") | words,
    data_version=st.dictionaries(texts, plain, max_size=3),
    topics=st.dictionaries(
        words,
        st.dictionaries(texts, st.none() | st.integers(-9, 9) | words, max_size=3),
        max_size=3,
    ),
    filter_servers=st.lists(words, max_size=3).map(tuple),
    acting_master=st.booleans(),
)


@given(record=brokers)
def test_a_broker_survives_the_trip(record: BrokerRecord) -> None:
    path = PATHS.broker(record.shard, record.replica)
    assert znodes.decode_broker(path, znodes.encode_broker(record), record.incarnation) == record


@given(placements=st.lists(topics, max_size=5, unique_by=lambda topic: topic.name))
def test_topics_survive_the_trip(placements: list[TopicPlacement]) -> None:
    bucket = {topic.name: topic for topic in placements}
    assert znodes.decode_topics("p", znodes.encode_topics(bucket)) == bucket


@given(broker=foreigners)
def test_a_foreign_broker_survives_the_trip(broker: ForeignBroker) -> None:
    assert znodes.decode_foreign("p", znodes.encode_foreign(broker)) == broker


@given(kv=st.dictionaries(texts, st.dictionaries(texts, texts, max_size=4), max_size=4))
def test_kv_survives_the_trip(kv: dict[str, dict[str, str]]) -> None:
    assert znodes.decode_kv("p", znodes.encode_kv(kv)) == kv


@given(names=st.frozensets(texts, max_size=5))
def test_wiped_names_survive_the_trip(names: frozenset[str]) -> None:
    assert znodes.decode_wiped("p", znodes.encode_wiped(names)) == names


@given(cluster_id=texts, root=texts, base=st.integers(0, 1023), level=st.integers(1, LEVEL_MAX))
def test_identity_survives_the_trip(cluster_id: str, root: str, base: int, level: int) -> None:
    identity = ClusterIdentity(cluster_id, root, base, level)
    assert znodes.decode_identity("p", znodes.encode_identity(identity)) == identity


@st.composite
def states(draw: st.DrawFn) -> ShardState:
    numbers = st.integers(0, 1 << 62)
    in_sync = [
        LiveMember(uuid, draw(numbers))
        for uuid in sorted(draw(st.sets(words, min_size=1, max_size=4)))
    ]
    elections = st.builds(
        Election, epoch=numbers, leader=words, at_ms=numbers, cause=words, unclean=st.booleans()
    )
    return ShardState(
        leader=draw(st.none() | st.sampled_from(in_sync)),
        epoch=draw(numbers),
        in_sync=tuple(in_sync),
        former=tuple(
            LiveMember(uuid, draw(numbers)) for uuid in sorted(draw(st.sets(words, max_size=2)))
        ),
        unclean=draw(st.booleans()),
        cause=draw(words),
        at_ms=draw(numbers),
        history=tuple(draw(st.lists(elections, max_size=10))),
        version=draw(st.integers(0, 1 << 30)),
    )


@given(state=states())
def test_states_of_shards_survive_the_trip(state: ShardState) -> None:
    node = Node(encode_state(state), state.version, 1, 0)
    assert decode_state("/shards/3/state", node) == state


def test_a_state_is_written_as_the_documentation_says() -> None:
    assert json.loads(SAMPLES[8]) == {
        "leader": "u",
        "incarnation": 7,
        "epoch": 2,
        "inSync": {"u": 7},
        "former": {},
        "unclean": False,
        "cause": "new",
        "at": 0,
        "history": [{"epoch": 2, "leader": "u", "at": 1, "cause": "new", "unclean": False}],
    }


def test_a_state_whose_leader_is_not_in_sync_is_refused() -> None:
    tree = {**json.loads(SAMPLES[8]), "inSync": {"other": 7}}
    with pytest.raises(GarbageError, match="in-sync"):
        decode_state("/shards/0/state", Node(json.dumps(tree).encode(), 0, 1, 0))


@given(uuids=st.lists(words, max_size=8))
def test_replica_numbers_are_handed_out_once(uuids: list[str]) -> None:
    record = ShardRecord(0, {})
    for uuid in uuids:
        before = record
        record = record.with_member(uuid, f"meta://{uuid}:1")
        assert record.with_member(uuid, f"meta://{uuid}:1") == record
        assert {u: m.replica for u, m in record.members.items()} == {
            **{u: m.replica for u, m in before.members.items()},
            uuid: record.members[uuid].replica,
        }
    assert sorted(m.replica for m in record.members.values()) == list(range(len(set(uuids))))
    assert decode_shard("/shards/0", encode_shard(record)) == record


def test_a_shard_hands_out_no_more_numbers_than_fit() -> None:
    record = ShardRecord(256, {"old": RecordedMember(255, "meta://a:1")})
    assert record.with_member("old", "meta://b:2").members["old"] == RecordedMember(
        255, "meta://b:2"
    )
    with pytest.raises(ValueError, match="the limit"):
        record.with_member("new", "meta://c:3")


DECODERS: list[Callable[[bytes], object]] = [
    lambda data: znodes.decode_identity("/path", data),
    lambda data: decode_shard("/path/0", data),
    lambda data: znodes.decode_broker("/path/0-0", data, 1),
    lambda data: znodes.decode_topics("/path", data),
    lambda data: znodes.decode_kv("/path", data),
    lambda data: znodes.decode_wiped("/path", data),
    lambda data: znodes.decode_foreign("/path", data),
    lambda data: znodes.decode_foreign("/path", zlib.compress(data)),
    lambda data: decode_state("/path/0/state", Node(data, 3, 1, 0)),
    lambda data: znodes.decode_epoch("/path", data),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), 1 << 63) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(data=st.binary(max_size=200), which=st.sampled_from(DECODERS))
def test_random_bytes_are_refused_with_their_path(
    data: bytes, which: Callable[[bytes], object]
) -> None:
    check_refusal(which, data)


@given(value=json_values, which=st.sampled_from(DECODERS))
def test_any_other_json_is_refused_or_read(value: object, which: Callable[[bytes], object]) -> None:
    check_refusal(which, json.dumps(value).encode("utf-8", "surrogatepass"))


SAMPLES: dict[int, bytes] = {
    0: znodes.encode_identity(ClusterIdentity("id", "/meta", 0)),
    1: encode_shard(ShardRecord(0, {}).with_member("u", "meta://h:1")),
    2: znodes.encode_broker(
        BrokerRecord(
            shard=0,
            uuid="u",
            host="h",
            metaq=1,
            rocketmq=2,
            fast=3,
            replication=4,
            admin=5,
            broker_name="shard-0",
        )
    ),
    3: znodes.encode_topics(
        {"t": TopicPlacement(name="t", shards={0: ShardQueues(1, 2)}, attributes={"a": "b"})}
    ),
    4: znodes.encode_kv({"n": {"k": "v"}}),
    5: znodes.encode_wiped(frozenset({"shard-0"})),
    7: zlib.decompress(
        znodes.encode_foreign(
            ForeignBroker(cluster="c", broker_name="b", broker_id=0, address="a:1")
        )
    ),
    8: encode_state(
        ShardState(
            leader=LiveMember("u", 7),
            epoch=2,
            in_sync=(LiveMember("u", 7),),
            history=(Election(epoch=2, leader="u", at_ms=1, cause="new", unclean=False),),
        )
    ),
}


@given(
    which=st.sampled_from(sorted(SAMPLES)),
    place=st.integers(0, 1000),
    value=json_values,
    remove=st.booleans(),
)
def test_one_wrong_member_is_refused_or_read(
    which: int, place: int, value: object, remove: bool
) -> None:
    tree = json.loads(SAMPLES[which])
    parents = list(containers(tree))
    parent, key = parents[place % len(parents)]
    if remove:
        del parent[key]
    else:
        parent[key] = value
    check_refusal(DECODERS[which], json.dumps(tree).encode("utf-8", "surrogatepass"))


def containers(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value: container and key."""
    places: list[tuple[Any, Any]] = []
    entries = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        entries = list(enumerate(value))
    for key, inner in entries:
        places.append((value, key))
        places.extend(containers(inner))
    return places


def check_refusal(decode: Callable[[bytes], object], data: bytes) -> None:
    """Whatever the data: read, or refused with path and reason and nothing else."""
    refusals: list[GarbageError] = []
    try:
        decode(data)
    except GarbageError as error:
        refusals.append(error)
    for refusal in refusals:
        assert refusal.path.startswith("/path")
        assert refusal.reason
        assert len(str(refusal)) < 500


@pytest.mark.parametrize(
    "name", ["0", "0-0-0", "a-b", "01-0", "0-+1", "-1-0", "1024-0", "0-256", "٣-0", ""]
)
def test_a_broker_node_of_a_wrong_name_is_refused(name: str) -> None:
    with pytest.raises(GarbageError):
        znodes.decode_broker(f"/path/{name}", SAMPLES[2], 1)


def test_unknown_members_are_ignored() -> None:
    tree = {**json.loads(SAMPLES[2]), "later": [1]}
    assert znodes.decode_broker("/path/0-0", json.dumps(tree).encode(), 1).uuid == "u"


def test_another_format_is_refused() -> None:
    tree = {**json.loads(SAMPLES[0]), "format": 3}
    with pytest.raises(GarbageError, match="format 3"):
        znodes.decode_identity("/path", json.dumps(tree).encode())


def test_a_deflated_bomb_is_refused() -> None:
    bomb = zlib.compress(bytes(znodes.FOREIGN_BYTES_MAX + 1))
    with pytest.raises(GarbageError, match="more than is allowed"):
        znodes.decode_foreign("/path", bomb)


def test_what_is_too_large_for_a_node_is_refused_before_it_is_sent() -> None:
    attributes = {"a": "x" * NODE_BYTES_MAX}
    topic = TopicPlacement(name="t", shards={0: ShardQueues(1, 1)}, attributes=attributes)
    with pytest.raises(ValueError, match="at most"):
        znodes.encode_topics({"t": topic})
    with pytest.raises(ValueError, match="at most"):
        znodes.encode_kv({"n": {"k": "x" * NODE_BYTES_MAX}})


def test_topics_spread_over_all_nodes() -> None:
    used = {PATHS.bucket(f"topic-{number}") for number in range(2000)}
    assert used == set(PATHS.buckets())


def test_foreign_brokers_that_could_be_confused_have_nodes_of_their_own() -> None:
    keys = [("a", "b\0c", 0), ("a\0b", "c", 0), ("a", "b", 0), ("a", "b/..", 0)]
    paths = [PATHS.foreign(key, holder) for key in keys for holder in ("x", "y")]
    assert len(set(paths)) == len(paths)
    assert all(path.startswith("/imago/imago/namesrv/foreign/") for path in paths)
    assert all(path.count("/") == 5 for path in paths)


def test_the_skeleton_names_parents_before_children() -> None:
    seen = {""}
    for path, _ in PATHS.skeleton():
        assert path.rpartition("/")[0] in seen
        seen.add(path)
