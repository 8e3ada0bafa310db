"""Parts of objects on the disk: bounded, the ones used longest ago go first.

A read that lacks some has them fetched, a few at a time for all readers together, and is told to
come again; the readers of its queue are woken when they are there. The event loop waits for none
of it: threads write the files, and what is here is read like any file of the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from imago_log.reading.remote import RemoteAwayError, RemoteMissError
from imago_objects import ObjectMissingError, ObjectsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from imago_broker.ports import Clock
    from imago_log.reading.remote import Key
    from imago_objects import Objects

logger = logging.getLogger(__name__)

BLOCK_BYTES: Final = 1 << 20
AHEAD: Final = 2
"""Blocks behind those that a read lacks that are fetched with them."""
WANTED_MAX: Final = 4096
"""Blocks that wait to be fetched: who wants more comes again without."""
AWAY_MS: Final = 2000
"""After a fetch has failed, reads are refused for so long; then one tries again."""

Block = tuple[str, int]
"""An object's name and the number of its block."""


class BlockCache:
    """The blocks of one broker. All methods are of the event loop."""

    def __init__(
        self,
        objects: Objects,
        folder: Path,
        clock: Clock,
        *,
        bytes_max: int,
        fetches_max: int,
        wake: Callable[[Key], None],
    ) -> None:
        """`wake` has the readers of a queue look again."""
        self._objects, self._folder, self._clock = objects, folder, clock
        self._bytes_max, self._fetches_max, self._wake = bytes_max, fetches_max, wake
        self._here: OrderedDict[Block, int] = OrderedDict()
        self._wanted: OrderedDict[Block, int] = OrderedDict()
        """What is to be fetched, with the sizes of the objects."""
        self._waiting: dict[Block, set[Key]] = {}
        self._turned_away: set[Key] = set()
        self._fetches: set[asyncio.Task[None]] = set()
        self._fetching: set[Block] = set()
        self._away_until_ms = -1
        self._gone_until_ms: dict[str, int] = {}
        """Of objects that are not there: until when nobody asks for them again."""
        self.problem = ""
        """Why the last fetch failed; empty: it did not."""
        self.size = self.fetched_bytes = self.misses = 0

    def open(self) -> None:
        """Begin without blocks: what a former process left may be half of one."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)

    def close(self) -> None:
        """Fetch no more."""
        for task in self._fetches:
            task.cancel()
        self._wanted.clear()
        self._waiting.clear()
        self._turned_away.clear()

    # What readers call: `TierBlocks`

    def read(self, name: str, size: int, start: int, length: int) -> bytes:
        """Return a range of an object of `size` bytes.

        RemoteMissError: not here; it is being fetched. RemoteAwayError: it cannot be had now.
        """
        first, last = start // BLOCK_BYTES, max(start + length - 1, start) // BLOCK_BYTES
        blocks = [(name, number) for number in range(first, last + 1)]
        lacking = [block for block in blocks if block not in self._here]
        if lacking:
            raise self._missed(lacking, size)
        parts: list[bytes] = []
        for block in blocks:
            begin = block[1] * BLOCK_BYTES
            at = max(start, begin)
            parts.append(
                self._part(block, at - begin, min(start + length, begin + BLOCK_BYTES) - at)
            )
            self._here.move_to_end(block)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def forget(self, name: str) -> None:
        """Fetch all of an object again."""
        for block in [block for block in self._here if block[0] == name]:
            self._drop(block)

    def _part(self, block: Block, at: int, length: int) -> bytes:
        try:
            opened = os.open(self._path(block), os.O_RDONLY)
        except OSError as error:  # somebody has removed it
            self._drop(block)
            raise RemoteAwayError(f"the cache lost a block: {error}") from error
        try:
            return os.pread(opened, length, at)
        finally:
            os.close(opened)

    def _missed(self, lacking: list[Block], size: int) -> Exception:
        if why := self._refusal(lacking[0][0]):
            return RemoteAwayError(why)
        self.misses += 1
        room = WANTED_MAX - len(self._wanted)
        taken = [block for block in lacking if self._is_asked(block)]
        taken += [block for block in lacking if block not in taken][: max(room, 0)]
        for block in taken:
            self._want(block, size)
        if room > len(taken) + AHEAD:
            name, last = lacking[-1]
            for number in range(last + 1, last + 1 + AHEAD):
                if number * BLOCK_BYTES < size:
                    self._want((name, number), size)
        self._fetch_some()

        def wanted_by(key: Key) -> None:
            if taken:
                # Whoever is woken lacks the others still: the last one wakes.
                self._waiting.setdefault(taken[-1], set()).add(key)
            else:
                self._turned_away.add(key)

        return RemoteMissError(wanted_by)

    def _refusal(self, name: str) -> str:
        """Return why nothing of an object is fetched now; empty: it may be."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._away_until_ms:
            return self.problem
        gone = now_ms < self._gone_until_ms.get(name, -1)
        return f"{name} is not in the bucket" if gone else ""

    def _is_asked(self, block: Block) -> bool:
        return block in self._wanted or block in self._fetching

    def _want(self, block: Block, size: int) -> None:
        if block not in self._here and not self._is_asked(block):
            self._wanted[block] = size

    # Fetching

    def _fetch_some(self) -> None:
        while self._wanted and len(self._fetches) < self._fetches_max:
            block, size = self._wanted.popitem(last=False)
            self._fetching.add(block)
            task = asyncio.ensure_future(self._fetch(block, size))
            self._fetches.add(task)
            task.add_done_callback(partial(self._ended, block))

    def _ended(self, block: Block, task: asyncio.Task[None]) -> None:
        """Note that nobody fetches a block any more, also if `close` came before the task began."""
        self._fetches.discard(task)
        self._fetching.discard(block)
        self._fetch_some()

    async def _fetch(self, block: Block, size: int) -> None:
        name, number = block
        start = number * BLOCK_BYTES
        wanted = min(BLOCK_BYTES, size - start)
        try:
            data = await self._objects.get(name, start, wanted)
            if len(data) != wanted:
                raise OSError(f"{name}: {len(data)} of {wanted} bytes at {start}")  # noqa: TRY301
            await asyncio.to_thread(self._path(block).write_bytes, data)
        except ObjectMissingError as error:
            self._missing(name, str(error))
        except (ObjectsError, OSError) as error:
            self._failed(str(error))
        else:
            self.problem = ""
            self._add(block, len(data))
        finally:
            self._fetching.discard(block)
            for key in self._waiting.pop(block, set()) | self._turned_away:
                self._wake(key)
            self._turned_away.clear()

    def _missing(self, name: str, problem: str) -> None:
        """Refuse for a while what needs this object, and nothing else."""
        self._told(problem)
        now_ms = self._clock.monotonic_ms()
        self._gone_until_ms = {
            each: until_ms for each, until_ms in self._gone_until_ms.items() if until_ms > now_ms
        }
        self._gone_until_ms[name] = now_ms + AWAY_MS
        for block in [block for block in self._wanted if block[0] == name]:
            del self._wanted[block]
            for key in self._waiting.pop(block, ()):
                self._wake(key)

    def _told(self, problem: str) -> None:
        if not self.problem:
            logger.warning("tier.fetch_failed reason=%s", problem)
        self.problem = problem

    def _failed(self, problem: str) -> None:
        """Refuse for a while: nobody waits for what may not come for hours."""
        self._told(problem)
        self._away_until_ms = self._clock.monotonic_ms() + AWAY_MS
        self._wanted.clear()
        waiting, self._waiting = self._waiting, {}
        for key in {key for keys in waiting.values() for key in keys}:
            self._wake(key)

    def _add(self, block: Block, size: int) -> None:
        self._here[block] = size
        self.size += size
        self.fetched_bytes += size
        while self.size > self._bytes_max and len(self._here) > 1:
            self._drop(next(iter(self._here)))

    def _drop(self, block: Block) -> None:
        self.size -= self._here.pop(block, 0)
        path = self._path(block)
        with contextlib.suppress(FileNotFoundError):
            path.unlink()

    def _path(self, block: Block) -> Path:
        return self._folder / f"{block[0].rpartition('/')[2]}.{block[1]}"
