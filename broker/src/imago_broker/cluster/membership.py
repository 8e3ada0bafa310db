"""Our broker's own entries: member of its shard, live broker, queues of its topics."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from imago_broker.cluster import edits, znodes
from imago_broker.cluster.znodes import GarbageError, Paths, ShardRecord
from imago_broker.ports import CoordinatorConflictError, CoordinatorError, RegistryDamagedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from imago_broker.cluster.tree import NodeTree
    from imago_broker.model.cluster import BrokerRecord, TopicPlacement


@dataclass(frozen=True, slots=True)
class Registration:
    """Our record as it stands in the registry, and where members of our shard were seen last."""

    record: BrokerRecord
    shard_urls: frozenset[str]


class Membership:
    """Writes what the registry `/imago/<cluster>` holds of one broker process."""

    def __init__(self, paths: Paths, tree: NodeTree) -> None:
        self._paths = paths
        self._tree = tree
        self._claimed: str | None = None
        """Our live node from the moment on in which it may stand."""

    async def register(self, wish: BrokerRecord) -> Registration:
        """Give the data folder its replica number and make the live node ours."""
        shard = await self._join_shard(wish)
        record = replace(wish, replica=shard.members[wish.uuid].replica)
        path = self._paths.broker(record.shard, record.replica)
        await self._refuse_stranger(path, record)
        self._claimed = path
        node = await edits.claim(self._tree, path, znodes.encode_broker(record))
        urls = frozenset(member.metaq_url for member in shard.members.values())
        return Registration(replace(record, incarnation=node.created), urls)

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
        self, shard: int, wishes: Mapping[str, TopicPlacement], names: Iterable[str]
    ) -> tuple[set[str], dict[str, CoordinatorError]]:
        """Set our shard's entry of these topics: as wished, or none where there is no wish.

        Returns the nodes that were written, and the topics that could not be, with the reason.
        """
        by_bucket: defaultdict[str, list[str]] = defaultdict(list)
        for name in names:
            by_bucket[self._paths.bucket(name)].append(name)
        written: set[str] = set()
        failures: dict[str, CoordinatorError] = {}
        for path, topics in by_bucket.items():
            try:
                if await self._place_in(path, shard, {name: wishes.get(name) for name in topics}):
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
            for name, wish in entries.items():
                _set_entry(after, name, shard, wish)
            return None if after == before else znodes.encode_topics(after)

        return await edits.change(self._tree, path, edit)

    async def _join_shard(self, wish: BrokerRecord) -> ShardRecord:
        path = self._paths.shard(wish.shard)
        joined: list[ShardRecord] = []

        def edit(data: bytes | None) -> bytes:
            before = znodes.decode_shard(path, data) if data is not None else ShardRecord(0, {})
            after = before.with_member(wish.uuid, wish.metaq_url)
            joined.append(after)
            return znodes.encode_shard(after)

        try:
            await edits.change(self._tree, path, edit)
        except GarbageError as error:
            raise RegistryDamagedError(error.path, error.reason) from error
        except ValueError as error:
            raise CoordinatorConflictError(f"{path}: {error}") from error
        return joined[-1]

    async def _refuse_stranger(self, path: str, record: BrokerRecord) -> None:
        """Raise when a live process of another data folder holds our place."""
        node = await self._tree.get(path)
        if node is None or node.owner == self._tree.session_id:
            return
        try:
            holder = znodes.decode_broker(path, node.data, node.created)
        except GarbageError:
            return  # Our own place by number: what nobody can read nobody else relies on.
        if holder.uuid != record.uuid:
            raise CoordinatorConflictError(
                f"{path} is held by {holder.host}:{holder.rocketmq} with another data folder"
            )


def _set_entry(
    topics: dict[str, TopicPlacement], name: str, shard: int, wish: TopicPlacement | None
) -> None:
    before = topics.get(name)
    shards = dict(before.shards) if before else {}
    if wish is None:
        shards.pop(shard, None)
    else:
        shards[shard] = wish.shards[shard]
    if not shards:
        topics.pop(name, None)
    elif wish is not None:
        topics[name] = replace(wish, shards=shards)
    elif before is not None:
        topics[name] = replace(before, shards=shards)
