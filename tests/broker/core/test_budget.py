"""Memory of unread answers, and of commands that are not whole."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from imago_broker.core.budget import (
    SMALL_ANSWER_BYTES,
    SMALL_COMMAND_BYTES,
    InputBudget,
    OutputBudget,
)


def test_answers_shrink_and_then_stop_while_peers_do_not_read() -> None:
    budget = OutputBudget(1 << 20)
    assert budget.allowance(4 << 20) == 4 << 20
    budget.hold(1 << 20)
    assert budget.allowance(4 << 20) == SMALL_ANSWER_BYTES
    assert budget.allowance(100) == 100
    budget.hold(1 << 20)
    assert budget.allowance(100) == 0
    budget.release(1 << 20)
    budget.release(1)
    assert budget.allowance(4 << 20) == 4 << 20


def test_releasing_what_was_not_held_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="releases what it holds"):
        OutputBudget(1).release(1)


@dataclass(eq=False)
class Peer:
    """A connection that sends a command of `wanted` bytes as long as it is read."""

    budget: InputBudget
    wanted: int
    held: int = 0
    dropped: bool = False
    whole: int = 0

    def steer(self) -> None:
        """Nothing: `take` asks each time."""

    def drop(self) -> None:
        self.dropped = True

    def take(self, size: int, *, stops_before: int = 0) -> None:
        """Take one read, unless the connection waits; a command that is whole leaves."""
        if self.dropped or self.budget.waits(self):
            return
        self.held = min(self.held + size, self.wanted - stops_before)
        if self.held >= self.wanted:
            self.held, self.whole = 0, self.whole + 1
        self.budget.count(self, self.held, again=not self.held)


READ = 64 << 10
FRAME = 1 << 20


def test_peers_that_go_on_sending_get_through_although_all_together_ask_for_too_much() -> None:
    budget = InputBudget(4 << 20)
    peers = [Peer(budget, FRAME) for _ in range(40)]
    most = 0
    for _ in range(40 * FRAME // READ):
        for peer in peers:
            if not peer.whole:
                peer.take(READ)
        most = max(most, budget.held)
    assert [peer.whole for peer in peers] == [1] * 40
    assert not any(peer.dropped for peer in peers)
    assert budget.held == budget.dropped == 0
    assert most <= budget.bytes_max + FRAME + 40 * READ


def test_peers_that_never_end_their_command_make_room_for_those_that_do() -> None:
    budget = InputBudget(4 << 20)
    stuck = [Peer(budget, FRAME) for _ in range(40)]
    honest = Peer(budget, FRAME)
    for second in range(5):
        for _ in range(2 * FRAME // READ):
            for peer in stuck:
                peer.take(READ, stops_before=1)
            if second and not honest.whole:
                honest.take(READ)
        assert budget.held <= budget.bytes_max + FRAME + 41 * READ
        budget.relieve()
    assert honest.whole == 1
    assert not honest.dropped
    assert budget.dropped == sum(peer.dropped for peer in stuck) > 30
    assert budget.held == sum(peer.held for peer in stuck if not peer.dropped)


def test_small_commands_are_read_while_large_ones_wait() -> None:
    budget = InputBudget(4 << 20)
    for peer in [Peer(budget, FRAME) for _ in range(40)]:
        for _ in range(FRAME // READ):
            peer.take(READ, stops_before=1)
    assert budget.waiting
    small = Peer(budget, 8192)
    small.take(5000)
    small.take(5000)
    assert small.whole == 1


def test_far_too_much_at_once_is_dropped_without_waiting() -> None:
    budget = InputBudget(4 << 20)
    for peer in [Peer(budget, FRAME) for _ in range(4000)]:
        peer.take(READ)
        assert budget.held <= budget.most_held
    assert budget.dropped


def test_what_is_full_is_not_filled_as_much_again_by_one_more_read_of_each() -> None:
    budget = InputBudget(4 << 20)
    peers = [Peer(budget, FRAME) for _ in range(40)]
    for peer in peers:
        peer.take(SMALL_COMMAND_BYTES + 1)
    for peer in peers:
        peer.take((4 << 20) // 40)
    assert budget.waiting == 39, "all but the oldest, whether or not they were read since"
    assert budget.held <= budget.bytes_max + (4 << 20) // 40


def test_at_once_the_oldest_command_is_the_last_that_is_ended() -> None:
    budget = InputBudget(16 << 20)
    oldest, *others = [Peer(budget, FRAME * 4) for _ in range(60)]
    oldest.take(2 * FRAME)
    for peer in others:
        peer.take(FRAME // 2)
        assert budget.held <= budget.most_held
    assert any(peer.dropped for peer in others)
    assert not oldest.dropped


class Watcher:
    """Notes what a budget tells it."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    def full(self) -> None:
        self._calls.append("full")

    def calm(self) -> None:
        self._calls.append("calm")


def test_a_peer_that_is_gone_lets_the_waiting_ones_go_on() -> None:
    budget = InputBudget(2 * FRAME)
    calls: list[str] = []
    budget.watched_by(Watcher(calls))
    peers = [Peer(budget, FRAME) for _ in range(5)]
    for _ in range(FRAME // READ):
        for peer in peers:
            peer.take(READ, stops_before=1)
    assert calls == ["full"]
    assert not budget.waits(peers[0]), "the oldest has its turn"
    assert budget.waiting == 4
    budget.count(peers[0], 0, again=True)
    assert calls == ["full", "calm"]
    assert budget.waiting == 0
