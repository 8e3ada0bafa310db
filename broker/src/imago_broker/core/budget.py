"""How much memory all connections together may take: for unread answers, for unfinished input."""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol

SMALL_ANSWER_BYTES = 64 << 10
"""What a socket usually takes at once, so that it costs no memory of ours."""


class OutputBudget:
    """Bytes of answers that peers have not taken yet, over all connections.

    Past `bytes_max` answers become small, so that peers that do read still make progress; past
    twice that there are none.
    """

    __slots__ = ("bytes_max", "held")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0

    def hold(self, size: int) -> None:
        """Count bytes that wait for their peer."""
        self.held += size

    def release(self, size: int) -> None:
        """Count them no more."""
        assert size <= self.held, "a session releases what it holds"
        self.held -= size

    def allowance(self, wanted: int) -> int:
        """Return how large an answer may be for which `wanted` bytes are asked; 0: none."""
        if self.held < self.bytes_max:
            return wanted
        if self.held < 2 * self.bytes_max:
            return min(wanted, SMALL_ANSWER_BYTES)
        return 0


SMALL_COMMAND_BYTES = 64 << 10
"""What a connection is read for, while the budget of input is used up, without its turn."""
TURN_BYTES = 8 << 20
"""What the oldest command may grow by beyond the budget of input, with what is read meanwhile: a
large message. Past it nothing is waited for before connections are ended."""


class InputHolder(Protocol):
    """One connection that holds the beginning of a command."""

    def steer(self) -> None:
        """Check `InputBudget.waits` again: read, or do not."""
        ...

    def drop(self) -> None:
        """End the connection; what it held counts no more."""
        ...


class BudgetWatcher(Protocol):
    """Relieves a budget that stays full."""

    def full(self) -> None:
        """Connections wait unread from now on."""

    def calm(self) -> None:
        """All are read again."""


class InputBudget:
    """Bytes of commands whose end has not come, over all connections of all listeners.

    Past `bytes_max` a connection that holds more than a small command, or more than its share,
    waits unread, all but the one whose command is the oldest: it gets its turn, so that peers that
    go on sending get through one after the other. Who calls `relieve` a second later ends what then
    still fills the budget: those above the share, the oldest commands first, until half of the
    budget is free. Past `most_held` that is done at once, and the oldest is the last that is ended.
    """

    __slots__ = ("_held_by", "_waiting", "_watcher", "bytes_max", "dropped", "held", "most")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held = 0
        self.most = 0
        """The most that was held since somebody looked, who sets it back."""
        self.dropped = 0
        """Connections that were ended to make room."""
        self._watcher: BudgetWatcher | None = None
        self._held_by: OrderedDict[InputHolder, int] = OrderedDict()
        """Those whose command began first stand first, and the first is found at once."""
        self._waiting: dict[InputHolder, None] | None = None
        """Who is not read for now, in the order in which they began to wait; None: all are."""

    def watched_by(self, watcher: BudgetWatcher) -> None:
        """Tell the watcher when the budget is full, and when it is no longer."""
        self._watcher = watcher

    @property
    def waiting(self) -> int:
        """How many connections are not read because of the budget."""
        return len(self._waiting or ())

    def waits(self, holder: InputHolder) -> bool:
        """Whether the connection is not to be read for now."""
        return self._waiting is not None and holder in self._waiting

    def count(self, holder: InputHolder, size: int, *, again: bool) -> None:
        """Say how much a connection holds now; `again`: of another command than before."""
        held_by = self._held_by
        before = held_by.pop(holder, 0) if again or not size else held_by.get(holder, 0)
        if size:
            held_by[holder] = size
        self.held += size - before
        self.most = max(self.most, self.held)
        if self.held <= self.bytes_max:
            if self._waiting is not None:
                self._calm()
            return
        if self._waiting is None:
            self._full()
        if self.held > self.most_held:
            self._end_until_half_is_free(oldest_last=True)
        elif size > min(self._share, SMALL_COMMAND_BYTES):
            self._wait(holder)
        else:
            self._go_on(holder)
        if self._waiting:
            self._go_on(next(iter(held_by)))

    @property
    def most_held(self) -> int:
        """What is held at most, however many connections hold it."""
        return self.bytes_max + TURN_BYTES

    def relieve(self) -> None:
        """End connections until half of the budget is free, if it is still full."""
        if self._waiting is not None:
            self._end_until_half_is_free()

    def _end_until_half_is_free(self, *, oldest_last: bool = False) -> None:
        assert self._waiting is not None, "only while the budget is full"
        share, ended = self._share, []
        large = [each for each, size in self._held_by.items() if size > share]
        if oldest_last:
            large.append(large.pop(0))
        for holder in large:
            if self.held <= self.bytes_max // 2:
                break
            self.held -= self._held_by.pop(holder)
            self._waiting.pop(holder, None)
            ended.append(holder)
        self.dropped += len(ended)
        if self.held <= self.bytes_max:
            self._calm()
        for holder in ended:
            holder.drop()

    @property
    def _share(self) -> int:
        return self.bytes_max // max(1, len(self._held_by))

    def _wait(self, holder: InputHolder) -> None:
        assert self._waiting is not None, "only while the budget is full"
        if holder not in self._waiting and holder is not next(iter(self._held_by)):
            self._waiting[holder] = None
            holder.steer()

    def _go_on(self, holder: InputHolder) -> None:
        if self._waiting is not None and holder in self._waiting:
            del self._waiting[holder]
            holder.steer()

    def _full(self) -> None:
        self._waiting = {}
        if self._watcher is not None:
            self._watcher.full()
        # Now, not when each has been read once more: together that would be as much again.
        small = min(self._share, SMALL_COMMAND_BYTES)
        for holder in [each for each, size in self._held_by.items() if size > small]:
            self._wait(holder)

    def _calm(self) -> None:
        waiting, self._waiting = self._waiting, None
        if self._watcher is not None:
            self._watcher.calm()
        for holder in waiting or ():
            holder.steer()
