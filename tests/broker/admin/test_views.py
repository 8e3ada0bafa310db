"""What `/admin/v1/cluster` says of a shard, out of one snapshot of the registry."""

from __future__ import annotations

from imago_broker.admin import views
from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
from imago_broker.model.registry.shard import Member, ShardState


def record(uuid: str, incarnation: int, replica: int) -> BrokerRecord:
    return BrokerRecord(
        shard=0,
        uuid=uuid,
        host="h",
        metaq=1,
        rocketmq=2,
        fast=3,
        replication=4,
        admin=5,
        broker_name="shard-0",
        replica=replica,
        incarnation=incarnation,
    )


def test_a_member_that_came_back_is_in_sync_once_its_new_life_is_named() -> None:
    state = ShardState(
        epoch=3,
        leader=Member("a", 1),
        in_sync=(Member("a", 1), Member("b", 2), Member("gone", 3)),
    )
    view = ClusterView(
        cluster="c", brokers=(record("a", 1, 0), record("b", 7, 1)), states={0: state}
    )
    told = views.shard(view, 0, {}, least=2, said=views.UNKNOWN)
    assert told["inSync"] == ["a", "gone"], "nobody has taken the place of who is gone"
    assert {each["uuid"]: each["inSync"] for each in told["members"]} == {"a": True, "b": False}


def test_a_broker_alone_is_in_sync() -> None:
    told = views.shard(
        ClusterView(cluster="c", brokers=(record("a", 1, 0),)), 0, {}, least=1, said=views.UNKNOWN
    )
    assert told["inSync"] is None
    assert [each["inSync"] for each in told["members"]] == [True]
