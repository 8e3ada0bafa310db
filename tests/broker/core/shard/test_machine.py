"""Events in, effects out: what a member does, told by what it is asked to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imago_broker.core.shard import effects as fx
from imago_broker.core.shard import events as ev
from imago_broker.core.shard.machine import _ACTIONS, _FACTS, Outlook
from imago_broker.core.shard.values import Log, MachineRole, MemberInfo
from imago_broker.model.registry.shard import Member, ShardState
from imago_testing.clusters.shard_machine import (
    ALONE,
    LIVE,
    LOG,
    ME,
    OTHER,
    Told,
    follower_joins,
    state,
)


def test_every_event_and_every_case_has_its_row() -> None:
    assert set(_FACTS) == set(ev.Event.__args__)
    assert set(_ACTIONS) == {(role, outlook) for role in MachineRole for outlook in Outlook}


def test_a_follower_promises_before_it_connects() -> None:
    told = Told(epoch_seen=3)
    told.registered(state(OTHER, 4, OTHER), LIVE)
    assert told.effects == [fx.Promise(4), fx.Follow(OTHER, 4)]


def test_a_follower_truncates_before_it_fetches() -> None:
    told = Told()
    told.registered(state(OTHER, 4, OTHER), LIVE)
    assert not told.machine.takes_data(4)
    told.tell(ev.Welcomed(4, Log(0, 80, ((1, 0), (2, 60), (4, 80))), Log(0, 90, ((1, 0),), 60)))
    assert told.effects == [fx.Truncate(60), fx.FetchFrom(60, 1)]
    assert told.machine.takes_data(4)
    assert not told.machine.takes_data(3)


def test_a_cut_below_the_high_watermark_is_told() -> None:
    told = Told()
    told.registered(state(OTHER, 4, OTHER), LIVE)
    told.tell(ev.Welcomed(4, Log(0, 80, ((1, 0), (2, 60))), Log(0, 90, ((1, 0),), 70)))
    assert "below the high watermark 70" in told.only(fx.Note).text


def test_a_leader_of_a_lower_epoch_is_hung_up_on() -> None:
    told = Told(epoch_seen=9)
    told.registered(state(OTHER, 4, OTHER), LIVE)
    assert told.effects == [fx.Follow(OTHER, 4)]
    told.tell(ev.Welcomed(4, LOG, LOG))
    assert isinstance(told.effects[0], fx.Hangup)
    assert not told.machine.takes_data(4)


def test_a_log_is_marked_before_it_is_thrown_away() -> None:
    told = Told()
    told.registered(state(OTHER, 4, OTHER), LIVE)
    told.tell(ev.Welcomed(4, Log(500, 800, ((4, 400),)), LOG))
    assert told.effects == [fx.Mark(True), fx.Reset(500), fx.FetchFrom(500, 0)]


def test_the_mark_goes_when_this_life_is_in_the_set() -> None:
    told = Told(unclean=True)
    told.registered(state(OTHER, 4, Member("a", 3), OTHER), LIVE)
    assert not [effect for effect in told.effects if isinstance(effect, fx.Mark)]
    told.sees(state(OTHER, 4, ME, OTHER, version=8), LIVE)
    assert told.effects == [fx.Mark(False)]


def test_nobody_is_elected_on_a_view_that_was_not_asked_for() -> None:
    told = Told()
    told.registered(state(OTHER, 4, ME, OTHER), LIVE)
    told.sees(state(OTHER, 4, ME, OTHER), ALONE)
    assert told.effects[:-1] == [fx.Unfollow()]
    told.sees(state(OTHER, 4, ME, OTHER), ALONE)
    assert told.effects == [], "still only a snapshot that came by itself"


def test_an_answer_to_an_older_question_decides_nothing() -> None:
    told = Told()
    told.tell(ev.Registered(ME))
    old = told.only(fx.ReadView).ticket
    told.tell(ev.SessionResumed())
    told.sees(state(OTHER, 4, ME, OTHER), ALONE, old)
    assert told.effects == []


def test_the_winner_leads_only_after_the_coordinator_said_so() -> None:
    told = Told()
    told.leading()
    assert told.machine.may_serve(3999)
    assert not told.machine.may_serve(4000)
    assert told.machine.state.epoch == 5
    assert told.machine.state.shard.in_sync == (ME,)


def test_puts_wait_for_the_epoch_on_disk() -> None:
    told = Told()
    told.registered(state(ME, 5, ME), ALONE)
    assert told.effects == [fx.Lead(5)]
    assert told.tell(ev.Led(5, LOG, 100, 0)) == [fx.AcceptPuts(replicated=False)]


def test_replicated_needs_its_minimum_at_the_answer_too() -> None:
    told = Told()
    told.registered(state(ME, 5, ME, OTHER), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    told.tell(ev.LeaseRenewed(4000))
    assert told.machine.state.leadership.puts == fx.AcceptPuts(replicated=True)
    told.sees(state(ME, 5, ME, version=8), LIVE)
    assert told.effects == [fx.AcceptPuts(replicated=False)]
    assert told.machine.may_serve(100)


def test_a_follower_joins_by_a_proposal_that_is_waited_for_already() -> None:
    told = Told()
    told.registered(state(ME, 5, ME), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    follower_joins(told)
    told.effects = told.machine.tick(100)
    proposed = told.only(fx.Propose)
    assert proposed.shard.in_sync == (ME, OTHER)
    assert told.machine.watermark.waiting == frozenset({OTHER})
    assert told.machine.appended(150) == 100
    told.tell(ev.ProposalRefused(proposed.ticket, "x"))
    assert told.machine.watermark.value == 150


def test_a_follower_that_has_not_synced_does_not_join() -> None:
    """What was promised to be on disk would not be, on a member that may lead next."""
    told = Told()
    told.registered(state(ME, 5, ME), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    assert told.machine.fetch_problem(OTHER, 5, 100, 1, LOG, 0) is None
    told.machine.acked(OTHER, 5, 100, 99, 0)
    assert told.machine.tick(100) == []
    told.machine.acked(OTHER, 5, 100, 100, 0)
    told.effects = told.machine.tick(200)
    assert told.only(fx.Propose).shard.in_sync == (ME, OTHER)


def test_a_follower_under_load_is_waited_for_and_then_joins() -> None:
    """The high watermark of a set of one runs ahead of whatever a follower acknowledges."""
    told = Told()
    told.registered(state(ME, 5, ME), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    follower_joins(told)
    told.machine.appended(150)
    assert told.machine.tick(100) == []
    assert told.machine.watermark.waiting == frozenset({OTHER})
    assert told.machine.appended(200) == 150
    told.machine.acked(OTHER, 5, 150, 150, 150)
    told.effects = told.machine.tick(200)
    assert told.only(fx.Propose).shard.in_sync == (ME, OTHER)


def test_a_lost_answer_keeps_both_sets_waited_for_until_a_fresh_view() -> None:
    told = Told()
    told.registered(state(ME, 5, ME), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    follower_joins(told)
    told.effects = told.machine.tick(100)
    told.tell(ev.ProposalUnknown(told.only(fx.Propose).ticket))
    ticket = told.only(fx.ReadView).ticket
    told.sees(state(ME, 5, ME), LIVE)
    assert told.machine.watermark.waiting == frozenset({OTHER})
    told.sees(state(ME, 5, ME), LIVE, ticket)
    assert told.machine.watermark.waiting == frozenset()


def test_a_silent_follower_leaves_after_its_time_and_not_before() -> None:
    told = Told()
    told.registered(state(ME, 5, ME, OTHER), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    follower_joins(told)
    told.machine.left(OTHER, 1000)
    told.effects = told.machine.tick(1499)
    assert told.effects == []
    told.effects = told.machine.tick(1500)
    assert told.only(fx.Propose).shard.in_sync == (ME,)
    assert told.only(fx.Propose).shard.former == (OTHER,)
    assert told.machine.watermark.waiting == frozenset({OTHER})


def test_nobody_is_judged_by_the_time_that_the_leader_stood_still() -> None:
    told = Told()
    told.registered(state(ME, 5, ME, OTHER), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    follower_joins(told)
    told.effects = told.machine.tick(100)
    told.effects = told.machine.tick(2600)
    assert told.effects == [], "what the follower has said meanwhile is not read yet"
    told.effects = told.machine.tick(5200)
    assert told.only(fx.Propose).shard.in_sync == (ME,), "it does not always stand still"


def test_a_silent_follower_does_not_join_as_soon_as_it_has_left() -> None:
    told = Told()
    told.registered(state(ME, 5, ME, OTHER), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    follower_joins(told)
    told.effects = told.machine.tick(1900)
    told.effects = told.machine.tick(2000)
    proposed = told.only(fx.Propose)
    assert proposed.shard.in_sync == (ME,)
    told.now_ms = 2001
    told.tell(ev.ProposalDone(proposed.ticket, replace(proposed.shard, version=8)))
    told.effects = told.machine.tick(2100)
    assert not [effect for effect in told.effects if isinstance(effect, fx.Propose)]
    told.machine.acked(OTHER, 5, 100, 100, 2200)
    told.effects = told.machine.tick(2200)
    assert told.only(fx.Propose).shard.in_sync == (ME, OTHER)


def test_a_member_that_came_back_leads_when_it_has_waited_for_the_others() -> None:
    told = Told()
    before = {"a": Member("a", 1), "b": Member("b", 2)}
    vacant = state(before["b"], 4, *before.values())
    told.registered(vacant, ALONE)
    told.sees(vacant, ALONE, told.only(fx.ReadView).ticket)
    assert "compared first, with b" in told.only(fx.Note).text
    told.now_ms = 4999
    told.effects = told.machine.tick(4999)
    assert not [effect for effect in told.effects if isinstance(effect, fx.Propose)]
    told.now_ms = 5000
    told.effects = told.machine.tick(5000)
    assert told.only(fx.Propose).shard.leader == ME


def test_nothing_is_proposed_while_the_session_is_suspended() -> None:
    told = Told()
    told.registered(state(ME, 5, ME), LIVE)
    told.tell(ev.Led(5, LOG, 100, 0))
    follower_joins(told)
    told.tell(ev.SessionSuspended())
    assert told.machine.tick(100) == []
    told.tell(ev.SessionResumed())
    told.effects = told.machine.tick(100)
    assert told.only(fx.Propose)


def test_a_lost_session_steps_down() -> None:
    told = Told()
    told.leading()
    assert isinstance(told.tell(ev.SessionLost())[0], fx.StepDown)
    assert not told.machine.may_serve(0)


def test_a_peer_of_a_higher_epoch_makes_the_leader_look() -> None:
    told = Told()
    told.leading()
    assert told.machine.greeting_problem(6) is not None
    told.tell(ev.EpochHeard(6))
    assert told.machine.state.role is MachineRole.LEADING, "nobody has registered with it"
    ticket = told.only(fx.ReadView).ticket
    seen = {**ALONE, "b": MemberInfo(12, 1, epoch_seen=6)}
    told.sees(told.machine.state.shard, seen)
    assert isinstance(told.effects[0], fx.StepDown)
    told.sees(told.machine.state.shard, seen, ticket)
    assert told.only(fx.Propose).shard.epoch == 7


def test_a_follower_leaves_the_set_before_it_stops() -> None:
    told = Told()
    told.registered(state(OTHER, 4, ME, OTHER), LIVE)
    told.tell(ev.StopAsked())
    proposed = told.only(fx.Propose)
    assert proposed.shard.in_sync == (OTHER,)
    told.tell(ev.ProposalDone(proposed.ticket, replace(proposed.shard, version=8)))
    assert told.effects == [fx.Leave()]


def test_a_stop_without_a_coordinator_ends_all_the_same() -> None:
    told = Told()
    told.registered(state(OTHER, 4, ME, OTHER), LIVE)
    told.tell(ev.SessionSuspended())
    told.tell(ev.StopAsked())
    assert told.effects == []
    assert told.machine.tick(2000) == [fx.Leave()]


@pytest.mark.parametrize(
    ("shard", "allow", "text"),
    [
        (state(OTHER, 4, OTHER), False, "nobody can be elected without loss: waiting for b"),
        (state(OTHER, 4, ME, OTHER), True, "a can be elected without loss"),
    ],
)
def test_a_forced_election_is_the_last_resort(shard: ShardState, allow: bool, text: str) -> None:
    told = Told()
    told.registered(shard, ALONE)
    told.tell(ev.ElectAsked("r1", allow))
    answers = [effect for effect in told.effects if isinstance(effect, fx.Answer)]
    assert answers == [fx.Answer("r1", False, text)]


def forced() -> tuple[Told, fx.Propose]:
    """A member whose election was forced by the request r1, and what it proposes."""
    told = Told()
    told.registered(state(OTHER, 4, OTHER), ALONE)
    ticket = told.only(fx.ReadView).ticket
    told.tell(ev.ElectAsked("r1", True))
    told.sees(state(OTHER, 4, OTHER), ALONE, ticket)
    proposed = told.only(fx.Propose)
    return told, proposed


def test_a_forced_election_is_recorded() -> None:
    told, proposed = forced()
    assert proposed.shard.unclean
    assert proposed.shard.history[-1].unclean
    told.tell(ev.ProposalDone(proposed.ticket, replace(proposed.shard, version=8)))
    assert not [effect for effect in told.effects if isinstance(effect, fx.Answer)]
    epoch = proposed.shard.epoch
    told.tell(ev.Led(epoch, LOG, LOG.end, 0))
    assert told.only(fx.Answer) == fx.Answer("r1", True, f"leads in epoch {epoch}")


def test_a_forced_election_without_room_for_its_epoch_is_told_as_it_is() -> None:
    told, proposed = forced()
    told.tell(ev.ProposalDone(proposed.ticket, replace(proposed.shard, version=8)))
    told.tell(ev.NotLed(proposed.shard.epoch, proposed.shard.epoch))
    answer = told.only(fx.Answer)
    assert (answer.request, answer.done) == ("r1", False)
    assert "no room on the disk" in answer.text
    assert told.machine.state.forced is None, "it forces no second one"


def test_a_handover_that_was_asked_for_too_early_is_answered_too() -> None:
    told, proposed = forced()
    told.tell(ev.ProposalDone(proposed.ticket, replace(proposed.shard, version=8)))
    told.tell(ev.HandoverAsked("r2"))
    assert not [effect for effect in told.effects if isinstance(effect, fx.Answer)]
    told.tell(ev.NotLed(proposed.shard.epoch, proposed.shard.epoch))
    answers = [effect for effect in told.effects if isinstance(effect, fx.Answer)]
    assert [(each.request, each.done) for each in answers] == [("r1", False), ("r2", False)]
    assert told.machine.state.leadership.handover is None


def test_an_unbelievable_epoch_is_not_believed() -> None:
    told = Told()
    told.leading()
    assert told.tell(ev.EpochHeard(1 << 62)) == []


# ---- a state that was deleted -------------------------------------------------------------

GONE = ShardState()


def told_live(*, leads: bool, epoch: int = 4) -> dict[str, MemberInfo]:
    """Both are registered; the other as a leader of an epoch, or as a follower of nobody knows."""
    other = MemberInfo(12, 1, epoch_seen=epoch, standing=False, leads=leads)
    return {"a": MemberInfo(11, 0, epoch_seen=4, standing=False), "b": other}


def deleted(live: dict[str, MemberInfo]) -> Told:
    """A follower of `OTHER` in epoch 4 that is told that the state is gone."""
    told = Told(epoch_seen=4)
    told.registered(state(OTHER, 4, ME, OTHER), told_live(leads=True))
    told.sees(GONE, live)
    told.sees(GONE, live, told.only(fx.ReadView).ticket)
    return told


def test_a_leadership_stands_without_its_node_while_its_leader_says_so() -> None:
    told = deleted(told_live(leads=True))
    roles = [told.machine.state.role]
    told.sees(GONE, told_live(leads=False))  # it gave leadership away
    roles.append(told.machine.state.role)
    assert roles == [MachineRole.FOLLOWING, MachineRole.ELECTING]


@pytest.mark.parametrize("live", [told_live(leads=False), told_live(leads=True, epoch=6)])
def test_no_leadership_of_the_past_stands_without_its_node(live: dict[str, MemberInfo]) -> None:
    told = deleted(live)
    assert told.machine.state.role is MachineRole.ELECTING
    told.sees(GONE, live, told.only(fx.ReadView).ticket)
    assert [e for e in told.effects if isinstance(e, fx.Propose)] == [], "the other may yet lead"
    still = {uuid: info._replace(standing=True, leads=False) for uuid, info in live.items()}
    told.sees(GONE, still)
    proposed = told.only(fx.Propose).shard
    assert (proposed.leader, proposed.in_sync, proposed.unclean) == (ME, (ME,), False)
    assert proposed.epoch == 1 + live["b"].epoch_seen


def test_a_person_may_end_a_leadership_that_is_not_written_again() -> None:
    live = told_live(leads=True)
    told = deleted(live)
    told.tell(ev.ElectAsked("r1", False))
    assert "without loss" in told.only(fx.Answer).text
    told.tell(ev.ElectAsked("r2", True))
    assert told.machine.state.role is MachineRole.ELECTING
    told.sees(GONE, live, told.only(fx.ReadView).ticket)
    assert [e for e in told.effects if isinstance(e, fx.Propose)] == [], "its leader has some time"
    told.now_ms = 5000
    told.sees(GONE, live)
    proposed = told.only(fx.Propose).shard
    assert (proposed.leader, proposed.unclean, proposed.epoch) == (ME, True, 5)


def test_a_leader_that_writes_its_state_again_goes_on_whatever_a_person_asked() -> None:
    live = told_live(leads=True)
    told = deleted(live)
    told.tell(ev.ElectAsked("r1", True))
    again = state(OTHER, 4, ME, OTHER, version=0)
    told.sees(again, live, told.only(fx.ReadView).ticket)
    assert told.only(fx.Answer) == fx.Answer("r1", False, "b leads")
    assert told.machine.state.role is MachineRole.FOLLOWING
