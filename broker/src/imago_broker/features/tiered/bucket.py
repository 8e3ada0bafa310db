"""What one shard has in the bucket, and who may change it.

    CLUSTER/SHARD/manifest/GENERATION            which objects count: the highest one is the truth
    CLUSTER/SHARD/log/BASE-EPOCH-DRAW.log        a file of the log, as it is
    CLUSTER/SHARD/log/BASE-EPOCH-DRAW.index      its index

A manifest is written where there is none of its generation yet, by whoever has read the one before.
A new master writes one at once: from then on its predecessor, which knows only older ones, cannot
write any, and what it still uploads is named nowhere and goes with the next sweep.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from zlib import crc32

from imago_log.tier.manifest import TierManifest
from imago_objects import ObjectMissingError
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from imago_objects import Objects

GENERATIONS_KEPT: Final = 16
"""Older ones are deleted: more than a master writes while another one reads."""
READ_BYTES: Final = 8 << 20
_NAME: Final = re.compile(r"\d{20}-(\d{10})-[0-9a-f]{16}\.(?:log|index)")


class FencedTierError(Exception):
    """Another master has written since: what is in the bucket is its business."""


class WrongTierError(Exception):
    """What stands in the bucket is not this shard's, or cannot be read: somebody has to look."""


class ShardBucket:
    """The manifests and files of one shard."""

    def __init__(self, objects: Objects, cluster: str, shard: str) -> None:
        self.objects = objects
        self._root = f"{_plain(cluster)}/{shard}"

    def name(self, base: int, epoch: int, draw: int) -> str:
        """Return the name of an upload, which no other has."""
        return f"{self._root}/log/{base:020d}-{epoch:010d}-{draw:016x}"

    async def latest(self) -> TierManifest | None:
        """Return what counts; None: nothing was ever written. WrongTierError: it is unreadable."""
        for _ in range(GENERATIONS_KEPT):
            found = await self.objects.list(f"{self._root}/manifest")
            if not found:
                return None
            name = found[-1].name
            try:
                manifest = TierManifest.decode(await self.objects.get(name))
            except ObjectMissingError:
                continue  # a newer one has taken its place
            except WrongError as error:
                raise WrongTierError(f"{self.objects.url}: {name}: {error}") from error
            if name != self._manifest_name(manifest.generation):
                raise WrongTierError(f"{self.objects.url}: {name} says another generation")
            return manifest
        raise FencedTierError(f"{self.objects.url}: the manifest changes all the time")

    async def write(self, manifest: TierManifest) -> None:
        """Make this the truth. FencedTierError: another one has followed the one before it.

        Written twice, as an answer was lost, it is written once.
        """
        name, data = self._manifest_name(manifest.generation), manifest.encode()
        if not await self.objects.put_if_absent(name, data):
            try:
                written = await self.objects.get(name)
            except ObjectMissingError:
                written = b""
            if written != data:
                raise FencedTierError(f"{self.objects.url}: another master wrote {name}")
        generations = await self.objects.list(f"{self._root}/manifest")
        if generations[-1].name != name:
            # Ours is of so long ago that the one in whose place it stands was deleted since.
            await self.objects.delete([name])
            raise FencedTierError(f"{self.objects.url}: {generations[-1].name} is newer")
        await self.objects.delete([old.name for old in generations[:-GENERATIONS_KEPT]])

    async def verify(self, name: str, size: int, crc: int) -> None:
        """Read an object back. WrongTierError: it is not what was sent."""
        found = await self.objects.head(name)
        if found is None or found.size != size:
            has = "nothing" if found is None else f"{found.size} bytes"
            raise WrongTierError(f"{self.objects.url}: {name}: sent {size} bytes, it has {has}")
        checksum = 0
        for at in range(0, size, READ_BYTES):
            checksum = crc32(await self.objects.get(name, at, READ_BYTES), checksum)
        if checksum != crc:
            raise WrongTierError(f"{self.objects.url}: {name}: it holds other bytes than were sent")

    async def send(self, name: str, data: bytes | Path) -> None:
        """Send an object."""
        await self.objects.put(name, data)

    async def orphans(self, manifest: TierManifest, epoch: int) -> list[str]:
        """Return objects that no manifest names: of uploads that ended half-way, or deletions."""
        kept = {name for each in manifest.segments for name in (each.log, each.index)}
        found = await self.objects.list(f"{self._root}/log")
        return [
            each.name
            for each in found
            if each.name not in kept
            and (named := _NAME.fullmatch(each.name.rpartition("/")[2]))
            and int(named[1]) <= epoch
        ]

    async def delete(self, names: Iterable[str]) -> None:
        """Delete objects; those that are gone are gone."""
        await self.objects.delete(list(names))

    def _manifest_name(self, generation: int) -> str:
        return f"{self._root}/manifest/{generation:020d}"


def _plain(cluster: str) -> str:
    """Return a cluster's name as a part of a name in the bucket."""
    return re.sub(r"[^A-Za-z0-9_.-]", lambda found: f"%{ord(found[0]):04x}", cluster) or "%"
