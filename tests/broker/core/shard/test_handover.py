"""Leadership on its way to another member: what is held, who is chosen, when it ends."""

from __future__ import annotations

from dataclasses import replace

from imago_broker.core.shard import effects as fx
from imago_broker.core.shard import events as ev
from imago_broker.core.shard.values import MemberInfo
from imago_broker.model.registry.shard import Member
from imago_testing.clusters.shard_machine import (
    LIVE,
    ME,
    OTHER,
    Told,
    handing_over,
    state,
)


def test_a_handover_holds_puts_and_names_the_target() -> None:
    told = handing_over()
    told.tell(ev.HandoverAsked("r1"))
    assert told.effects[0] == fx.HoldPuts(replicated=True)
    proposed = told.only(fx.Propose)
    assert (proposed.shard.leader, proposed.shard.epoch) == (OTHER, 6)
    assert proposed.shard.in_sync == (ME, OTHER)
    told.tell(ev.ProposalDone(proposed.ticket, replace(proposed.shard, version=8)))
    assert [type(effect) for effect in told.effects] == [
        fx.StepDown,
        fx.Answer,
        fx.Promise,
        fx.Follow,
    ]
    assert told.effects[1] == fx.Answer("r1", True, "handover")


def test_a_handover_waits_for_the_target_and_gives_up_in_time() -> None:
    told = handing_over()
    told.machine.appended(160)
    told.tell(ev.HandoverAsked("r1"))
    assert told.effects == [fx.HoldPuts(replicated=True)]
    told.now_ms = 300
    told.effects = told.machine.tick(300)
    assert told.only(fx.Answer).done is False
    assert told.effects[-1] == fx.AcceptPuts(replicated=True)


def test_puts_that_were_taken_are_not_confirmed_by_a_set_that_shrinks_in_a_handover() -> None:
    told = handing_over()
    told.machine.appended(160)
    told.tell(ev.HandoverAsked("r1"))
    told.sees(state(ME, 5, ME, version=9), LIVE)
    assert told.effects == [fx.HoldPuts(replicated=False)]
    assert told.machine.watermark.value == 160, "nobody else is waited for any more"


def test_a_handover_to_a_stranger_is_refused() -> None:
    told = handing_over()
    told.tell(ev.HandoverAsked("r1", "x"))
    assert told.only(fx.Answer).done is False
    follower = Told()
    follower.registered(state(OTHER, 4, OTHER), LIVE)
    follower.tell(ev.HandoverAsked("r2"))
    assert follower.only(fx.Answer).text == "this member does not lead"


def test_an_orderly_stop_hands_over_and_leaves_the_set_at_once() -> None:
    told = handing_over()
    told.tell(ev.StopAsked())
    told.effects = told.machine.tick(5)
    proposed = told.only(fx.Propose)
    assert (proposed.shard.leader, proposed.shard.in_sync) == (OTHER, (OTHER,))
    assert proposed.shard.former == (ME,)
    told.tell(ev.ProposalDone(proposed.ticket, replace(proposed.shard, version=8)))
    assert isinstance(told.effects[-1], fx.Leave)
    assert told.machine.tick(10) == []


def test_who_gives_up_leadership_acknowledges_nothing_alone_until_that_is_decided() -> None:
    told = handing_over()
    told.machine.left(OTHER, 1)  # nobody could lead in its place
    told.tell(ev.StopAsked())
    proposed = told.only(fx.Propose)
    assert proposed.shard.leader is None
    assert told.effects[-1] == fx.HoldPuts(replicated=True, alone=False)
    told.tell(ev.ProposalUnknown(proposed.ticket))
    assert not [each for each in told.effects if isinstance(each, fx.HoldPuts)]
    told.tell(ev.ProposalRefused(proposed.ticket, "no"))
    assert told.effects[-1] == fx.HoldPuts(replicated=True)


def test_a_handover_prefers_a_whole_log_and_refuses_a_damaged_one() -> None:
    told = handing_over()
    hole = {**LIVE, "b": LIVE["b"]._replace(damaged=True)}
    told.sees(state(ME, 5, ME, OTHER), hole)
    told.tell(ev.HandoverAsked("r1", "b"))
    assert told.only(fx.Answer).done is False
    assert "damage" in told.only(fx.Answer).text
    told.tell(ev.StopAsked())
    told.effects = told.machine.tick(1)
    assert told.only(fx.Propose).shard.leader == OTHER, "nobody else is left"


def test_a_handover_prefers_a_member_with_room() -> None:
    third = Member("c", 30)
    live = {**LIVE, "b": LIVE["b"]._replace(full=True), "c": MemberInfo(30)}
    for fuller, chosen in (("b", third), ("c", OTHER)):
        told = handing_over()
        seen = {uuid: info._replace(full=uuid == fuller) for uuid, info in live.items()}
        told.sees(state(ME, 5, ME, OTHER, third), seen)
        end = told.machine.watermark.progress().end
        for member in (OTHER, third):
            told.machine.watermark.joined(member, end, end, 0)
            told.machine.acked(member, 5, end, end, 0)
        told.tell(ev.HandoverAsked("r1"))
        assert told.only(fx.Propose).shard.leader == chosen
