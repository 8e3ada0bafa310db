"""Our broker's own entries: member of its shard, live broker, queues of its topics."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.cluster import znodes
from imago_broker.cluster.edits import edits
from imago_broker.cluster.edits.shard_record import ShardRecord, decode_shard, encode_shard
from imago_broker.cluster.znodes import GarbageError, Paths
from imago_broker.ports import CoordinatorConflictError, CoordinatorError, RegistryDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from imago_broker.cluster.tree import NodeTree
    from imago_broker.model.registry.cluster import BrokerRecord, TopicPlacement


POLL_SECONDS = 0.2


class Membership:
    """Writes what the registry `/imago/<cluster>` holds of one broker process."""

    def __init__(self, paths: Paths, tree: NodeTree) -> None:
        self._paths = paths
        self._tree = tree
        self._claimed: str | None = None
        """Our live node from the moment on in which it may stand."""
        self._urls_before: set[str] = set()
        """Where our data folder was reachable before: nodes of that life may still stand."""

    async def register(self, wanted: BrokerRecord, *, wait_seconds: float) -> BrokerRecord:
        """Give the data folder its replica number and make the live node ours.

        Returns our record as it stands. CoordinatorConflictError, which names the other one,
        when a live process has our data folder or our address, and still has after waiting.
        """
        shard = await self._join_shard(wanted)
        record = replace(wanted, replica=shard.members[wanted.uuid].replica)
        path = self._paths.broker(record.shard, record.replica)
        await self._make_room(path, record, wait_seconds)
        self._claimed = path
        node = await edits.claim(self._tree, path, znodes.encode_broker(record))
        return replace(record, incarnation=node.created)

    async def shard_urls(self, shard: int) -> AbstractSet[str]:
        """Where MetaQ clients could reach the shard's members when they were seen last."""
        path = self._paths.shard(shard)
        node = await self._tree.get(path)
        try:
            members = decode_shard(path, node.data).members if node else {}
        except GarbageError:
            members = {}
        return self._urls_before.union(member.metaq_url for member in members.values())

    async def unregister(self) -> set[str]:
        """Delete the live node, if there may be one; member number and placement stay on record.

        Returns the nodes that were written.
        """
        path = self._claimed
        if path is None:
            return set()
        await edits.drop(self._tree, path)
        self._claimed = None
        return {self._paths.brokers, path}

    async def place(
        self, shard: int, placements: Mapping[str, TopicPlacement], names: Iterable[str]
    ) -> tuple[set[str], dict[str, CoordinatorError]]:
        """Set our shard's entry of these topics: as wanted, or none.

        Returns the nodes that were written, and the topics that could not be, with the reason.
        """
        by_bucket: defaultdict[str, list[str]] = defaultdict(list)
        for name in names:
            by_bucket[self._paths.bucket(name)].append(name)
        written: set[str] = set()
        failures: dict[str, CoordinatorError] = {}
        for path, topics in by_bucket.items():
            try:
                if await self._place_in(
                    path, shard, {name: placements.get(name) for name in topics}
                ):
                    written.add(path)
            except GarbageError as error:
                damaged = RegistryDamagedError(error.path, error.reason)
                failures.update(dict.fromkeys(topics, damaged))
            except ValueError as error:
                failures.update(dict.fromkeys(topics, CoordinatorError(f"{path}: {error}")))
        return written, failures

    async def _place_in(
        self, path: str, shard: int, entries: Mapping[str, TopicPlacement | None]
    ) -> bool:
        def edit(data: bytes | None) -> bytes | None:
            before = znodes.decode_topics(path, data) if data is not None else {}
            after = dict(before)
            for name, wanted in entries.items():
                _set_entry(after, name, shard, wanted)
            return None if after == before else znodes.encode_topics(after)

        return await edits.change(self._tree, path, edit)

    async def _join_shard(self, wanted: BrokerRecord) -> ShardRecord:
        path = self._paths.shard(wanted.shard)
        joined: list[ShardRecord] = []

        def edit(data: bytes | None) -> bytes:
            before = decode_shard(path, data) if data is not None else ShardRecord(0, {})
            if known := before.members.get(wanted.uuid):
                self._urls_before.add(known.metaq_url)
            after = before.with_member(wanted.uuid, wanted.metaq_url, wanted=wanted.replica)
            joined.append(after)
            return encode_shard(after)

        try:
            await edits.change(self._tree, path, edit)
        except GarbageError as error:
            raise RegistryDamagedError(error.path, error.reason) from error
        except ValueError as error:
            raise CoordinatorConflictError(f"{path}: {error}") from error
        return joined[-1]

    async def _make_room(self, path: str, record: BrokerRecord, wait_seconds: float) -> None:
        """Wait as long as a dead process may be on record; refuse beside one that lives."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while reason := await self._occupied(path, record):
            if loop.time() >= deadline:
                raise CoordinatorConflictError(reason)
            await asyncio.sleep(POLL_SECONDS)

    async def _occupied(self, path: str, record: BrokerRecord) -> str | None:
        """Return who has what we need; None where there is room, or our own former life."""
        node = await self._tree.get(path)
        if node is not None and node.owner == self._tree.session_id:
            return None
        names = await self._tree.children(self._paths.brokers)
        for name in names:
            other = await self._live(f"{self._paths.brokers}/{name}")
            if other is not None and (reason := _clash(record, other)):
                return reason
        return None

    async def _live(self, path: str) -> BrokerRecord | None:
        node = await self._tree.get(path)
        try:
            return znodes.decode_broker(path, node.data, node.created) if node else None
        except GarbageError:
            return None  # what nobody can read nobody relies on


def _clash(record: BrokerRecord, other: BrokerRecord) -> str | None:
    """Return why two brokers cannot both be there, if so."""
    same_place = (other.shard, other.replica) == (record.shard, record.replica)
    same_address = other.host == record.host and bool(_ports(other) & _ports(record))
    same_told = _told(other) == _told(record)
    place = f"shard-{other.shard}, replica {other.replica}"
    who = f"the broker at {other.rocketmq_address} ({place})"
    if other.uuid != record.uuid:
        if same_place:
            return f"replica {record.replica} of shard-{record.shard} is {who}, another data folder"
        if same_address or same_told:
            return f"{who} is registered with an address of ours: give each its own ports and host"
    elif not same_address:
        return (
            f"the data folder {record.uuid} is in use by {who}: end that one first; a copy of a "
            "folder becomes a member of its own when its file `uuid` is deleted"
        )
    return None


def _told(record: BrokerRecord) -> tuple[str, str]:
    """Return the clients' view."""
    return record.rocketmq_address, record.metaq_url


def _ports(record: BrokerRecord) -> set[int]:
    return {record.metaq, record.rocketmq, record.fast, record.replication, record.admin} - {0}


def _set_entry(
    topics: dict[str, TopicPlacement], name: str, shard: int, wanted: TopicPlacement | None
) -> None:
    before = topics.get(name)
    shards = dict(before.shards) if before else {}
    if wanted is None:
        shards.pop(shard, None)
    else:
        shards[shard] = wanted.shards[shard]
    if not shards:
        topics.pop(name, None)
    elif wanted is not None:
        topics[name] = replace(wanted, shards=shards)
    elif before is not None:
        topics[name] = replace(before, shards=shards)
