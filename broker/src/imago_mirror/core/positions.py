"""Where the copying of one queue stands, and where it goes on after anything has gone wrong.

Copies are numbered without gaps in their order (`imago_client`'s idempotent producers), and which
message has which number depends on the source's log alone. So whoever goes on behind the last copy
that the target has, under its epoch and the number after its own, stores nothing twice: what a
killed mirror still had on its way arrives before, and then is a repeat, or after, and then it is.

A new epoch begins where that does not hold: where the source has lost messages in between, where
copies go to another queue, and where the target refuses the number that should be next. It shuts
out whatever of the old epoch is still on its way.

A target that acknowledges early may lose copies, and other messages may come where they were: so
the last copy is looked for at its place before anything is believed that was known.

A repeat is answered with the place of what is stored. One below `floor`, where no copy of it was
seen, is of another life of the producer and says nothing: that, too, is a refusal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from imago_mirror.core.copying import Copies, Tail


_NOWHERE: Final = 1 << 62


class CopyPosition(NamedTuple):
    """Of one source queue in the target queue that its copies go to."""

    next: int
    """Offset at the source from which on messages are to be looked at."""
    copied: int
    """Offset at the source below which everything is at the target."""
    epoch: int
    number: int
    """That the next copy gets."""
    floor: int
    """Offset at the target from which on copies are not known yet."""
    store_ms: int = 0
    """When the last message that was looked at had been stored; 0: none was."""
    lost: int = 0
    """Messages that the source deleted before they were copied."""
    last: int = -1
    """Offset at the source of the last message that was copied; -1: not known."""
    at: int = -1
    """Its copy's at the target."""

    def passed(self, end: int, store_ms: int) -> CopyPosition:
        """Return the position behind messages that are not to be copied."""
        return self._replace(next=max(self.next, end), store_ms=store_ms or self.store_ms)

    def acknowledged(self, copies: Copies, target_offset: int) -> CopyPosition:
        """Return the position once the target has them."""
        count = len(copies.entries)
        return self._replace(
            next=copies.end,
            copied=copies.end,
            number=self.number + count,
            floor=target_offset + count,
            store_ms=copies.store_ms,
            last=copies.offsets[-1],
            at=target_offset + count - 1,
        )

    def stands(self, found: Tail | None, target_first: int) -> bool:
        """Whether the target has still what it had acknowledged; `found`: what is at `at`."""
        return self.at < target_first or (found is not None and found.origin.offset == self.last)

    def unfounded(self) -> CopyPosition:
        """Return the same place where nothing is known of the copies."""
        return self._replace(floor=_NOWHERE, last=-1, at=-1)

    def expired(self, first: int) -> CopyPosition:
        """Return the position where the source has nothing before `first` any more."""
        if first <= self.next:
            return self
        lost = max(0, first - max(self.next, self.copied))
        position = self._replace(next=first, copied=max(first, self.copied), lost=self.lost + lost)
        return position.anew() if lost else position

    def anew(self) -> CopyPosition:
        """Return the same place in a new epoch.

        The next one, and none by a clock: two mirrors that come to it begin the same one.
        """
        return self._replace(epoch=self.epoch + 1, number=0)


def begin(first: int, target_end: int) -> CopyPosition:
    """Return the position of a queue of which nothing was copied."""
    return CopyPosition(first, first, 0, 0, target_end)


def resume(
    noted: CopyPosition | None, tail: Tail | None, source_first: int, target_end: int
) -> CopyPosition:
    """Return where to go on.

    `noted` is what was known when the target's queue ended at its `floor`; `tail` the last copy at
    or behind that; with no `noted`, or one that the target has lost what it knew, the last of all.
    """
    if noted is None:
        known = begin(0, target_end)
        if tail is None:
            return begin(source_first, target_end)
    elif noted.floor > target_end:
        # The target lost copies that it had acknowledged: what was seen of it says how far it came.
        known = noted.anew()
        if tail is None:
            return known._replace(floor=target_end).expired(source_first)
        known = known._replace(next=min(known.next, tail.origin.offset + 1))
    else:
        known = noted
    if tail is not None:
        # Messages between `next` and the tail are looked at again: which came from the target is
        # not known of them.
        known = known._replace(
            copied=tail.origin.offset + 1,
            epoch=tail.epoch,
            number=tail.number + 1,
            last=tail.origin.offset,
            at=tail.offset,
        )
    return known._replace(floor=target_end).expired(source_first)
