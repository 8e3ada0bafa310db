"""What can be done with a bucket: few calls, each with an end."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from imago_objects.errors import (
    BucketRefusedError,
    ObjectMissingError,
    ObjectsError,
    ObjectTooLargeError,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from obstore import ObjectMeta
    from obstore.store import ObjectStore

_Answer = TypeVar("_Answer")
PART_BYTES: Final = 8 << 20
"""What is larger goes in parts of this size, PARTS_AT_ONCE of them under way at a time."""
PARTS_AT_ONCE: Final = 4
GET_BYTES_MAX: Final = 64 << 20
"""What one `get` takes into memory: the rest is for the next."""
LISTED_MAX: Final = 1_000_000
NAME_BYTES_MAX: Final = 900
"""S3 takes 1024, the prefix included."""
_BEHIND_ITS_END: Final = ("InvalidRange", "Requested range was invalid", "Invalid range: Wanted")
"""How S3, folders and memory say that a range begins behind an object's end."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.%=@+-]+(?:/[A-Za-z0-9_.%=@+-]+)*")


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as the bucket lists it; `etag` differs between two contents of one name."""

    name: str
    size: int
    etag: str


class Objects:
    """A bucket, or what is below a prefix of one. Its calls are for one event loop."""

    def __init__(self, url: str, store: ObjectStore, *, folder: Path | None = None) -> None:
        self.url = url
        self._store, self._folder = store, folder

    async def put(self, name: str, data: bytes | Path) -> None:
        """Write an object, whatever is there of its name: readers see the old or the new whole.

        A Path is sent as it is read, so it must not change meanwhile. What is killed half-way
        leaves no object; parts of it stay in S3 until the bucket's lifecycle rule removes them.
        """
        self._check(name)
        if isinstance(data, Path) and not await asyncio.to_thread(data.is_file):
            raise BucketRefusedError(self.url, f"{data} is no file", "nothing was sent")
        sent = self._store.put_async(
            name, data, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )
        await self._done(name, sent)
        await self._synced(name)

    async def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of that name; of several callers one gets True.

        False can also mean this very call: it wrote, and the answer was lost and asked for again.
        Who has to know reads the object and compares.
        """
        self._check(name)
        try:
            await self._store.put_async(name, data, mode="create")
        except Exception as error:
            if type(error).__name__ in ("AlreadyExistsError", "PreconditionError"):
                return False
            raise translated(error, self.url, name) from error
        await self._synced(name)
        return True

    async def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Read a range; it is shorter where the object ends, and empty behind its end.

        ObjectMissingError; ObjectTooLargeError: more than GET_BYTES_MAX, read it in ranges.
        """
        self._check(name)
        if length is None:
            found = await self.head(name)
            if found is None:
                raise ObjectMissingError(
                    self.url, f"there is no {name!r}", "was it deleted by hand?"
                )
            length = max(found.size - start, 0)
        if length > GET_BYTES_MAX:
            raise ObjectTooLargeError(
                self.url,
                f"{name!r}: {length} bytes are more than {GET_BYTES_MAX} at once",
                "read it in ranges",
            )
        if length == 0:
            return b""
        try:
            return bytes(await self._store.get_range_async(name, start=start, length=length))
        except Exception as error:
            if any(mark in str(error) for mark in _BEHIND_ITS_END):
                return b""  # behind its end
            raise translated(error, self.url, name) from error

    async def head(self, name: str) -> Stored | None:
        """Say how large an object is; None: there is none."""
        self._check(name)
        try:
            return _stored(await self._done(name, self._store.head_async(name)))
        except ObjectMissingError:
            return None

    async def list(self, prefix: str = "") -> list[Stored]:
        """Return all objects below a folder (whole names between slashes), sorted by name."""
        if prefix:
            self._check(prefix)
        found: list[Stored] = []
        try:
            async for some in self._store.list(prefix or None):
                found += [_stored(meta) for meta in some]
                if len(found) > LISTED_MAX:
                    break
        except Exception as error:
            raise translated(error, self.url, prefix) from error
        if len(found) > LISTED_MAX:
            raise ObjectTooLargeError(
                self.url, f"{prefix!r} holds more than {LISTED_MAX} objects", "list a part of it"
            )
        return sorted(found, key=lambda one: one.name)

    async def delete(self, names: Sequence[str]) -> None:
        """Delete objects; what is not there is as good as deleted."""
        for name in names:
            self._check(name)
        if not names:
            return
        try:
            await self._done(names[0], self._store.delete_async(list(names)))
        except ObjectMissingError:  # a folder says so, and leaves the rest
            if len(names) > 1:
                for name in names:
                    await self.delete([name])

    async def probe(self) -> None:
        """Raise what is wrong with the bucket: unreachable, not writable, or careless.

        Fences are objects that only one may write: a service that overwrites them all the same
        is refused.
        """
        name = f"imago-probe-{uuid.uuid4().hex}"
        try:
            await self.put_if_absent(name, b"1")
            if await self.put_if_absent(name, b"2"):
                raise BucketRefusedError(
                    self.url,
                    "it overwrites what must not be overwritten (If-None-Match)",
                    "use a service, or a version of it, that has conditional writes",
                )
        finally:
            await self.delete([name])

    async def _done(self, name: str, work: Awaitable[_Answer]) -> _Answer:
        try:
            return await work
        except ObjectsError:
            raise
        except Exception as error:
            raise translated(error, self.url, name) from error

    def _check(self, name: str) -> None:
        plain = _NAME.fullmatch(name) and len(name) <= NAME_BYTES_MAX
        if not plain or any(part in (".", "..") for part in name.split("/")):
            raise BucketRefusedError(
                self.url,
                f"{name[:80]!r} is no name of an object",
                f"letters, digits and _.%=@+- between slashes, at most {NAME_BYTES_MAX}",
            )

    async def _synced(self, name: str) -> None:
        if self._folder is not None:
            await asyncio.to_thread(_sync, self._folder, name)


def _stored(meta: ObjectMeta) -> Stored:
    return Stored(meta["path"], meta["size"], meta.get("e_tag") or "")


def _sync(folder: Path, name: str) -> None:
    """Sync a file and the folders that name it, up to the bucket's own."""
    path = folder / name
    while path.is_relative_to(folder):
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
        path = path.parent
