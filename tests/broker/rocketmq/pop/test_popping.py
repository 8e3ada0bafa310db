"""What is out by POP, against a model; with crashes that leave what was written."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest

from imago_broker.core.transactions.packed_offsets import pack, unpack
from imago_broker.features.pop import popping
from imago_broker.features.pop.popping import Handout, PopQueue


def hand_out(queue: PopQueue, *offsets: int, now_ms: int = 0, invisible_ms: int = 10) -> int:
    stamp = queue.next_stamp(now_ms)
    messages = dict.fromkeys(offsets, 0)
    due_ms = now_ms + invisible_ms
    queue.hand_out(messages, stamp=stamp, due_ms=due_ms, next_offset=max(offsets) + 1)
    return stamp


def test_acknowledgements_in_any_order_move_what_is_committed() -> None:
    queue = PopQueue(5)
    stamp = hand_out(queue, 5, 6, 7)
    assert (queue.committed, queue.next_offset, len(queue)) == (5, 8, 3)
    assert queue.acknowledge([7], stamp)
    assert queue.acknowledge([5], stamp)
    assert (queue.committed, len(queue)) == (6, 1)
    assert queue.acknowledge([6], stamp)
    assert (queue.committed, len(queue), queue.due_ms) == (8, 0, None)
    assert not queue.acknowledge([6], stamp)


def test_what_the_log_holds_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that becomes the master reads all of it in one turn: or it would not stay that."""
    sizes: list[int] = []
    heapify = heapq.heapify

    def counted(heap: list[int]) -> None:
        sizes.append(len(heap))
        heapify(heap)

    monkeypatch.setattr(heapq, "heapify", counted)
    handouts = {stamp: Handout(1000 - stamp, {999 - stamp: 0}) for stamp in range(1000)}
    queue = PopQueue(0, handouts)
    assert (queue.committed, queue.next_offset, queue.due_ms) == (0, 1000, 1)
    assert sum(sizes) <= 2 * 1000


def test_message_comes_back_when_its_time_is_up_and_counts() -> None:
    queue = PopQueue(0)
    first = hand_out(queue, 0, 1, now_ms=100)
    assert queue.acknowledge([0], first)
    assert queue.expired(109, 9) == {}
    assert queue.expired(110, 9) == {1: 1}
    assert queue.acknowledge([1], first), "its receipt counts until it is handed out again"
    again = hand_out(queue, 2, now_ms=200)
    queue.hand_out(queue.expired(210, 1), stamp=queue.next_stamp(210), due_ms=220, next_offset=3)
    assert not queue.acknowledge([2], again)
    assert queue.expired(220, 1) == {2: 2}


def test_postponed_message_has_a_new_receipt_and_its_old_count() -> None:
    queue = PopQueue(0)
    stamp = hand_out(queue, 0, 1)
    later = queue.postpone(0, stamp, now_ms=5, invisible_ms=50)
    assert later is not None
    assert not queue.acknowledge([0], stamp)
    assert queue.postpone(0, stamp, now_ms=6, invisible_ms=1) is None
    assert queue.expired(10, 9) == {1: 1}
    assert queue.expired(55, 9) == {0: 1, 1: 1}
    assert queue.acknowledge([0], later)


def test_order_waits_for_what_is_out() -> None:
    queue = PopQueue(0)
    stamp = hand_out(queue, 0, 1)
    assert queue.blocked(9)
    assert not queue.blocked(10)
    assert queue.acknowledge([0], stamp)
    assert queue.acknowledge([1], stamp)
    assert not queue.blocked(0)


def test_stamps_differ_in_one_millisecond_and_when_the_clock_goes_back() -> None:
    queue = PopQueue(0)
    stamps = [hand_out(queue, offset, now_ms=1000 - offset) for offset in range(50)]
    assert len(set(stamps)) == 50
    assert stamps == sorted(stamps)


def test_nothing_is_kept_of_what_is_done() -> None:
    queue = PopQueue(0)
    for offset in range(5000):
        assert queue.acknowledge([offset], hand_out(queue, offset, invisible_ms=10**9))
        assert queue.due_ms is None
    assert len(queue._due) < 200
    assert len(queue._lowest) < 200
    queue.changes()
    assert not queue.written()


class Log:
    """What has been written of a queue."""

    def __init__(self) -> None:
        self.place = (0, 0)
        self.handouts: dict[int, str] = {}

    def write(self, queue: PopQueue) -> None:
        changes = queue.changes()
        for stamp, handout in changes.handouts.items():
            if handout is None:
                self.handouts.pop(stamp, None)
            else:
                packed = pack(sorted(handout.times), handout.times)
                self.handouts[stamp] = f"{handout.due_ms} {packed}"
        if changes.moved:
            self.place = (queue.next_offset, queue.committed)

    def read(self) -> PopQueue:
        handouts = {}
        for stamp, text in self.handouts.items():
            due_ms, _, rest = text.partition(" ")
            handouts[stamp] = Handout(int(due_ms), unpack(rest))
        return PopQueue(self.place[0], handouts)


class Life:
    """A queue, its clients and its log, by chance; what must hold is asked after each step."""

    def __init__(self, seed: int) -> None:
        self.rng, self.log = random.Random(seed), Log()
        self.queue, self.now_ms, self.end = PopQueue(0), 1000, 0
        self.receipts: dict[int, int] = {}
        self.due: dict[int, int] = {}
        self.given: Counter[int] = Counter()
        self.done: set[int] = set()
        """Acknowledged, and written."""
        self.unwritten: set[int] = set()

    def step(self) -> None:
        self.now_ms += self.rng.randrange(20)
        self.end += self.rng.randrange(4)
        steps = (self.pop, self.acknowledge, self.postpone, self.write, self.crash)
        self.rng.choices(steps, (30, 40, 10, 10, 10))[0]()
        self.check()

    def pop(self) -> None:
        """Some of what was handed out reaches nobody."""
        queue, rng = self.queue, self.rng
        taken = queue.expired(self.now_ms, rng.randrange(1, 6))
        for offset, times in taken.items():
            assert self.due[offset] <= self.now_ms, "handed out while somebody else has it"
            assert times == self.given[offset]
        first = queue.next_offset
        taken |= dict.fromkeys(range(first, min(self.end, first + rng.randrange(6))), 0)
        assert not (self.done | self.unwritten) & taken.keys()
        behind = max(first, *(offset + 1 for offset in taken)) if taken else first
        stamp, until = queue.next_stamp(self.now_ms), self.now_ms + rng.randrange(5, 60)
        queue.hand_out(taken, stamp=stamp, due_ms=until, next_offset=behind)
        self.write()  # nobody is answered before
        if rng.random() < 0.2:
            until = self.now_ms
            queue.take_back(stamp, self.now_ms)
            self.write()
        else:
            self.given.update(dict.fromkeys(taken, 1))
        self.receipts |= dict.fromkeys(taken, stamp)
        self.due |= dict.fromkeys(taken, until)

    def acknowledge(self) -> None:
        if not self.receipts:
            return
        offset = self.rng.choice(list(self.receipts))
        if self.queue.acknowledge([offset], self.receipts[offset]):
            self.unwritten.add(offset)

    def postpone(self) -> None:
        if not self.receipts:
            return
        offset, wait = self.rng.choice(list(self.receipts)), self.rng.randrange(1, 90)
        later = self.queue.postpone(
            offset, self.receipts[offset], now_ms=self.now_ms, invisible_ms=wait
        )
        assert (later is None) == (offset in self.done | self.unwritten)
        if later is not None:
            self.write()
            self.receipts[offset], self.due[offset] = later, self.now_ms + wait

    def write(self) -> None:
        self.log.write(self.queue)
        self.done |= self.unwritten
        self.unwritten.clear()

    def crash(self) -> None:
        self.queue = self.log.read()
        self.unwritten.clear()

    def check(self) -> None:
        out = {o for handout in self.queue._handouts.values() for o in handout.times}
        assert out == set(range(self.queue.next_offset)) - self.done - self.unwritten
        assert self.queue.committed == min(out, default=self.queue.next_offset)
        assert len(self.queue) == len(out)
        waiting = [
            handout.due_ms
            for stamp, handout in self.queue._handouts.items()
            if stamp not in self.queue._ripe
        ]
        assert self.queue.due_ms == min(waiting, default=None)


@pytest.mark.parametrize("seed", range(60))
def test_crashes_lose_no_message_and_forget_no_written_acknowledgement(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With odd seeds the heaps are made again all the time."""
    if seed % 2:
        assert popping._SLACK > 0
        monkeypatch.setattr(popping, "_SLACK", 0)
    life = Life(seed)
    for _ in range(400):
        life.step()
    assert life.done


def test_change_that_could_not_be_written_is_written_next_time() -> None:
    queue, log = PopQueue(0), Log()
    stamp = hand_out(queue, 0, 1)
    queue.unwritten(queue.changes())
    log.write(queue)
    assert log.place == (2, 0)
    queue.acknowledge([0], stamp)
    queue.unwritten(queue.changes())
    log.write(queue)
    assert log.read().expired(99, 9) == {1: 1}


def test_message_that_stands_in_two_handouts_is_in_the_newer_one() -> None:
    queue = PopQueue(0, {7: Handout(10, {0: 0, 1: 0}), 9: Handout(50, {1: 1})})
    assert queue.next_offset == 2
    assert queue.expired(20, 9) == {0: 1}
    assert queue.acknowledge([1], 9)
