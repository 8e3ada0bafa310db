"""The high watermark waits for everybody it has to, and never falls."""

from __future__ import annotations

from imago_broker.core.shard.in_sync import gone
from imago_broker.core.shard.values import ShardLimits
from imago_broker.core.shard.watermark import Watermark
from imago_broker.model.registry.shard import Member

B, C = Member("b", 2), Member("c", 3)


def leading(*waits: Member, end: int = 100, high_watermark: int = 60) -> Watermark:
    watermark = Watermark()
    watermark.lead(end=end, durable_end=0, high_watermark=high_watermark)
    watermark.wait_for(frozenset(waits))
    return watermark


def test_alone_it_follows_the_log() -> None:
    watermark = leading()
    assert watermark.value == 100
    assert watermark.appended(140) == 140


def test_it_stands_still_until_all_have_spoken_in_this_epoch() -> None:
    watermark = leading(B, C)
    watermark.joined(B, 100, 0, 0)
    assert watermark.acked(B, 100, 0, 0) == 60
    watermark.joined(C, 80, 0, 0)
    assert watermark.value == 80
    assert watermark.acked(C, 100, 0, 0) == 100


def test_it_starts_anew_with_each_epoch() -> None:
    watermark = leading(B)
    watermark.joined(B, 100, 0, 0)
    watermark.lead(end=200, durable_end=0, high_watermark=100)
    watermark.wait_for(frozenset({B}))
    assert watermark.acked(B, 200, 0, 0) == 100, "B has not joined in this epoch"


def test_it_says_nothing_after_its_leadership() -> None:
    watermark = leading()
    watermark.stop()
    assert watermark.appended(140) == 0


def test_it_never_falls() -> None:
    watermark = leading()
    watermark.wait_for(frozenset({B}))
    watermark.joined(B, 20, 0, 0)
    assert watermark.value == 100


def test_another_life_of_a_member_does_not_count() -> None:
    watermark = leading(B)
    watermark.joined(Member("b", 9), 100, 0, 0)
    assert watermark.value == 60


def test_more_than_the_leader_has_is_not_believed() -> None:
    watermark = leading(B)
    watermark.joined(B, 90, 0, 0)
    assert watermark.acked(B, 101, 0, 0) == 90


def test_known_watermark_above_the_log_is_cut() -> None:
    assert leading(B, end=50, high_watermark=60).value == 50


def test_durable_watermark_is_the_least_synced_end() -> None:
    watermark = leading(B)
    watermark.joined(B, 100, 0, 0)
    watermark.synced(90)
    assert watermark.durable == 0
    watermark.acked(B, 100, 70, 0)
    assert watermark.durable == 70
    assert watermark.synced(100) == 70


def test_a_follower_under_load_keeps_up_though_it_is_always_behind() -> None:
    watermark = leading(B)
    watermark.joined(B, 100, 0, 0)
    for turn in range(1, 50):
        watermark.appended(100 + 10 * turn)
        watermark.acked(B, 100 + 10 * (turn - 1), 0, 100 * turn)
    assert watermark.progress().followers[B].caught_up_ms >= 4700


def test_a_follower_that_gets_ever_further_behind_is_told_from_it() -> None:
    watermark = leading(B)
    watermark.joined(B, 100, 0, 0)
    for turn in range(1, 50):
        watermark.appended(100 + 10 * turn)
        watermark.acked(B, 100 + 5 * turn, 0, 100 * turn)
    assert watermark.progress().followers[B].caught_up_ms < 3000


def test_connecting_again_and_again_is_no_progress() -> None:
    watermark = leading(B)
    watermark.joined(B, 100, 0, 1000)
    watermark.appended(200)
    limits = ShardLimits()
    for turn in range(1, 20):
        now_ms = 1000 + 100 * turn
        watermark.left(B, now_ms - 50)
        watermark.joined(B, 100, 0, now_ms)
        assert gone(B, watermark.progress(), 0, now_ms, limits) is None
    now_ms = 1000 + limits.lag_ms_max
    watermark.left(B, now_ms - 50)
    watermark.joined(B, 100, 0, now_ms)
    assert gone(B, watermark.progress(), 0, now_ms, limits) == "b is 2000 ms behind"
    watermark.acked(B, 200, 0, now_ms + 10)
    assert gone(B, watermark.progress(), 0, now_ms + 20, limits) is None
