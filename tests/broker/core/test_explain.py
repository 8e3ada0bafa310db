"""Why a shard has a master or none, in sentences; and what a restart would cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imago_broker.core import restart
from imago_broker.core.explain import explain
from imago_broker.model.registry.cluster import BrokerRecord, ClusterView, Role
from imago_broker.model.registry.shard import Member, ShardState
from imago_broker.model.registry.shard_status import FollowerStatus, LocalShardStatus

A, B, C = Member("a", 11), Member("b", 12), Member("c", 13)
KNOWN = {"a": 0, "b": 1, "c": 2}


def record(member: Member, **changes: object) -> BrokerRecord:
    number = KNOWN[member.uuid]
    made = BrokerRecord(
        shard=0,
        uuid=member.uuid,
        host="h",
        metaq=8123 + number,
        rocketmq=10911 + 10 * number,
        fast=10909 + 10 * number,
        replication=10912 + 10 * number,
        admin=8080 + number,
        broker_name="shard-0",
        role=Role.SLAVE,
        replica=number,
        incarnation=member.incarnation,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # names of fields


def view(
    *live: BrokerRecord, leader: Member | None = A, in_sync: tuple[Member, ...] = (A, B, C)
) -> ClusterView:
    state = ShardState(leader=leader, epoch=4, in_sync=in_sync, cause="the leader died")
    return ClusterView(cluster="c", brokers=live, states={0: state}, known={0: KNOWN})


def test_a_member_whose_disk_is_full_needs_room() -> None:
    said = explain(view(record(A), record(B), record(C, full=True), in_sync=(A, B)), 0, least=2)
    assert said.waits_for == "replica 2 (c) to catch up"
    assert said.next == "free room on the disk of replica 2 (c)"
    said = explain(view(record(A), record(B), record(C), in_sync=(A, B)), 0, least=2)
    assert said.next == "nothing to do"


def test_a_healthy_shard_has_nothing_to_wait_for() -> None:
    said = explain(view(record(A), record(B), record(C)), 0, least=2)
    assert said.why == "shard-0 is led by replica 0 at h:10911 in epoch 4: the leader died"
    assert (said.waits_for, said.next) == ("", "")


def test_a_member_that_is_behind_is_waited_for() -> None:
    said = explain(view(record(A), record(B), record(C), in_sync=(A, B)), 0, least=2)
    assert said.waits_for == "replica 2 (c) to catch up"


def test_a_copy_that_stands_still_is_said_with_what_is_in_the_way() -> None:
    led = view(record(A), record(B), in_sync=(A,))
    said = explain(led, 0, least=2, stalled={"b": "log offsets 5 to 9 are damaged here"})
    assert "1 of 2 members are in sync" in said.why
    assert "replication to replica 1 (b) stands still: log offsets 5 to 9 are damaged" in said.why
    assert said.waits_for == "a whole copy of what is damaged at replica 0 at h:10911"
    assert "imago shard elect 0 --allow-data-loss" in said.next


def test_a_copy_without_room_says_nothing_of_damage() -> None:
    led = view(record(A), record(B), record(C), in_sync=(A, B))
    full = "it refuses what follows log offset 7: DiskFullError: disk 100.0% used, puts stop at 90%"
    said = explain(led, 0, least=2, stalled={"c": full})
    assert said.why.endswith("; no copy goes to replica 2 (c), for want of room on the disk")
    assert said.waits_for == "room on the disk of replica 2 (c)"
    assert "make room there" in said.next
    damaged = "log offsets 5 to 9 are damaged here"
    both = explain(led, 0, least=2, stalled={"b": damaged, "c": full})
    assert "for want of room on the disk; replication to replica 1 (b) stands still" in both.why
    assert "imago shard elect 0 --allow-data-loss" in both.next


def test_a_master_without_room_is_said_with_who_leads_next() -> None:
    said = explain(view(record(A, full=True), record(B, full=True), record(C)), 0, least=2)
    assert said.why.endswith("; its disk is full, so it refuses messages")
    assert said.waits_for == "one of replica 2 at h:10931 to lead"
    assert said.next.startswith("within seconds, by itself; make room on the disk of replica 0")
    none = explain(view(record(A, full=True), record(B, full=True), record(C, damaged=True)), 0)
    assert none.waits_for == "room on a disk: no other in-sync member has any"
    assert "A disk runs full" in none.next


def test_damage_of_a_member_is_said() -> None:
    said = explain(view(record(A, damaged=True), record(B), record(C)), 0, least=2)
    assert said.why.endswith("; the log of replica 0 (a) is damaged: it leads only where no whole "
                             "one can")  # fmt: skip


def test_members_that_came_back_compare_their_logs_first() -> None:
    back = (record(Member("a", 21)), record(Member("b", 22)))
    said = explain(view(*back), 0, least=2)
    assert "members that came back compare their logs first" in said.why
    assert said.waits_for == "replica 2 (c), for some seconds only"
    assert "the one with the longest log leads" in said.next


def test_too_few_in_sync_is_said_with_what_it_costs() -> None:
    said = explain(view(record(A), record(B), in_sync=(A,)), 0, least=2)
    assert "1 of 2 members are in sync, so replicated puts are refused" in said.why
    assert said.waits_for == "replica 1 (b) to catch up"
    alone = explain(view(record(A), in_sync=(A,)), 0, least=2)
    assert alone.waits_for == "replica 1 (b), replica 2 (c) to catch up"


def test_an_election_under_way_names_its_candidates() -> None:
    said = explain(view(record(B), record(C)), 0)
    assert said.why == "shard-0 has no master: replica 0 (a), leader of epoch 4, is gone"
    assert said.waits_for == "an election"
    assert said.next.startswith("one of replica 1 at h:10921, replica 2 at h:10931 leads")


def test_a_shard_whose_in_sync_members_are_gone_waits_for_one_of_them() -> None:
    said = explain(view(record(C), in_sync=(A, B)), 0)
    assert "no live member is known to have all acknowledged messages" in said.why
    assert said.waits_for == "replica 0 (a), replica 1 (b)"
    assert "`imago shard elect 0 --allow-data-loss` makes replica 2 at h:10931 lead" in said.next


def test_after_a_power_cut_all_of_the_set_must_be_back() -> None:
    back = record(Member("b", 99), unclean=True)
    said = explain(view(back, in_sync=(A, B)), 0)
    assert said.waits_for == "all of the in-sync set: replica 0 (a) is missing"
    both = explain(view(record(Member("a", 98), unclean=True), back, in_sync=(A, B)), 0)
    assert both.waits_for == "an election"


def test_a_killed_leader_that_is_back_may_lead_again() -> None:
    said = explain(view(record(Member("a", 50)), in_sync=(A,)), 0)
    assert "lost its session and is back as a member" in said.why
    assert said.waits_for == "an election"


def test_a_shard_without_anybody_names_whom_it_needs() -> None:
    said = explain(view(in_sync=(A, B)), 0)
    assert said.waits_for == "one of its members: replica 0 (a), replica 1 (b)"
    fresh = ClusterView(cluster="c", brokers=(record(A),), known={0: KNOWN})
    assert explain(fresh, 0).why == "shard-0 has never been led"


def stateless(*live: BrokerRecord) -> ClusterView:
    return ClusterView(cluster="c", brokers=live, known={0: {"a": 0, "b": 1}})


def test_a_deleted_state_is_told_from_one_that_never_was() -> None:
    follows, stands = record(A, epoch_seen=6), record(B, epoch_seen=6, role=Role.ELECTING)
    said = explain(stateless(follows, stands), 0)
    assert said.why.startswith("shard-0 has no master, and its state was deleted")
    assert said.waits_for == "replica 0 (a)"
    assert "`imago shard elect 0 --allow-data-loss` makes replica" in said.next
    said = explain(stateless(stands), 0)
    assert said.waits_for == "replica 0 (a)"
    assert "start it; if its data is gone for good, `imago shard elect 0" in said.next
    both = replace(follows, role=Role.ELECTING)
    assert explain(stateless(both, stands), 0).waits_for == "an election"


def test_a_leader_without_its_state_is_told() -> None:
    leads = record(A, epoch_seen=6, role=Role.MASTER)
    said = explain(stateless(leads, record(B, epoch_seen=6)), 0)
    assert said.why == "shard-0 is led by replica 0 at h:10911, and its state was deleted"
    assert said.waits_for == "its master to write it again"


def status(*followers: FollowerStatus, role: Role = Role.MASTER) -> LocalShardStatus:
    return LocalShardStatus(role=role, epoch=4, settled=True, followers=followers)


def follower(member: Member, end: int, *, connected: bool = True) -> FollowerStatus:
    return FollowerStatus(
        uuid=member.uuid,
        incarnation=member.incarnation,
        connected=connected,
        end=end,
        durable=end,
        lag_bytes=100 - end,
        lag_ms=1,
    )


FULL = (follower(B, 100), follower(C, 90))


@pytest.mark.parametrize(
    ("seen", "followers", "least", "expected"),
    [
        (view(record(A), record(B), record(C)), FULL, 2, ((), 0)),
        (
            view(record(A), record(B), record(C)), (follower(B, 60),), 2,
            (("unreplicatedBytes",), 40),
        ),
        (view(record(A), record(B), in_sync=(A, B)), FULL[:1], 2, (("belowMinInSync",), 0)),
        (
            view(record(A), record(B), in_sync=(A,)), (follower(B, 40, connected=False),), 2,
            (("noMasterAfter", "belowMinInSync", "unreplicatedBytes"), 100),
        ),
        (
            view(record(A), in_sync=(A,)), (), 1,
            (("noMasterAfter", "belowMinInSync", "unreplicatedBytes", "singleReplica"), 100),
        ),
    ],
)  # fmt: skip
def test_what_speaks_against_a_restart_of_the_master(
    seen: ClusterView,
    followers: tuple[FollowerStatus, ...],
    least: int,
    expected: tuple[tuple[str, ...], int],
) -> None:
    found = restart.risks(seen, record(A), status(*followers), log_end=100, least=least, replicas=3)
    assert found == expected


def test_a_shard_of_one_member_has_nothing_to_copy() -> None:
    alone = view(record(A), in_sync=(A,))
    found = restart.risks(alone, record(A), status(), log_end=100, least=1, replicas=1)
    assert found == (("noMasterAfter", "belowMinInSync", "singleReplica"), 0)
    # Whatever its file says: where there is another member, that may lack something.
    two = view(record(A), record(B))
    found = restart.risks(two, record(A), status(follower(B, 60)), log_end=100, least=1, replicas=1)
    assert found == (("unreplicatedBytes",), 40)


def test_a_follower_may_go_while_enough_stay_in_sync() -> None:
    seen, as_slave = view(record(A), record(B), record(C)), status(role=Role.SLAVE)
    assert _follower_risks(seen, as_slave) == ()
    fewer = view(record(A), record(B), in_sync=(A, B))
    assert _follower_risks(fewer, as_slave) == ("belowMinInSync",)


def _follower_risks(seen: ClusterView, as_slave: LocalShardStatus) -> tuple[str, ...]:
    return restart.risks(seen, record(B), as_slave, log_end=100, least=2, replicas=3).risks


def test_a_former_life_in_the_set_does_not_count() -> None:
    seen = view(record(A), record(Member("b", 99)), in_sync=(A, B))
    found = restart.risks(seen, record(A), status(*FULL), log_end=100, least=1, replicas=3).risks
    assert found == (
        "noMasterAfter", "belowMinInSync",
    )  # fmt: skip
