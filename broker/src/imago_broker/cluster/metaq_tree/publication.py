"""Our broker's nodes in MetaQ's public tree, kept as the plan in `metaq_tree` wants them.

What the session has written is remembered per topic, so that one new topic among ten thousand
costs three nodes. Writes are optimistic transactions; when one is refused, because a client made
a parent first or a former life left nodes behind, the nodes concerned are read and put right.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from imago_broker.cluster.edits import edits
from imago_broker.cluster.metaq_tree import metaq_tree
from imago_broker.cluster.tree import (
    OPERATIONS_MAX,
    Create,
    Delete,
    NodeError,
    NotEmptyError,
    TreeUnavailableError,
)
from imago_broker.model.registry.cluster import Role
from imago_broker.ports import CoordinatorConflictError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from imago_broker.cluster.metaq_tree.metaq_tree import MetaqPaths
    from imago_broker.cluster.tree import NodeTree, Operation
    from imago_broker.model.registry.cluster import BrokerRecord, TopicPlacement

logger = logging.getLogger(__name__)

TOPICS_AT_ONCE = 128
REPAIRS_MAX = 20
POLL_SECONDS = 0.2


class Publication:
    """Writes and remembers the nodes of one broker id in MetaQ's tree."""

    def __init__(self, paths: MetaqPaths, tree: NodeTree, *, session_id: int) -> None:
        self._paths = paths
        self._tree = tree
        self._session_id = session_id
        self._broker_nodes: dict[str, bytes] = {}
        self._announced: tuple[BrokerRecord, int] | None = None
        self._topic_nodes: dict[str, dict[str, bytes]] = {}
        self._unsure: dict[str, set[str]] = {}
        """Topics with nodes of which nobody knows whether they stand: an answer was lost."""
        self._parents: set[str] = set()
        self._guess_stale = False
        self._ready = False
        self._leads = False
        self._number_holder = ""
        """The stranger who has our number as slave: while there is one, clients are not told of us
        (`announce` asks again)."""
        self.held = False
        """Whether nothing may be written for now: the shard's leadership is changing hands, and
        what stands may be the new master's already."""

    def forget(self, session_id: int) -> None:
        """A new session: nothing that the old one wrote stands any more.

        What was under way between the two may: it stays among what nobody is sure of.
        """
        self._session_id = session_id
        self._announced = None
        self._topic_nodes.clear()
        self._parents.clear()
        self._ready = False

    def doubt(self) -> None:
        """The same session, in which others may have meddled: read each node again."""
        self._announced = None
        self._unsure |= {name: set(nodes) for name, nodes in self._topic_nodes.items()}
        self._parents.clear()
        self._ready = False

    async def announce(
        self,
        record: BrokerRecord,
        *,
        checksum: int,
        shard_urls: Callable[[], Awaitable[AbstractSet[str]]],
        wait_seconds: float,
    ) -> None:
        """Write the broker's own nodes: its address first, so that topics can be followed.

        `shard_urls`: where members of the shard were seen last; they give way at once.
        """
        self._check_session()
        self._leads = record.role is Role.MASTER and self._paths.slave < 0
        await self._prepare()
        wanted = metaq_tree.broker_nodes(self._paths, record, checksum)
        if self._announced == (record, checksum):
            return
        self._announced = None
        if self._paths.master in wanted:
            await self._claim_master(shard_urls, wait_seconds)
            await edits.change(self._tree, self._paths.broker, lambda _: record.metaq_url.encode())
        elif self._paths.master in self._broker_nodes:
            self._leave_to_successor()
        for path in self._broker_nodes.keys() - wanted.keys():
            await edits.drop(self._tree, path)
        holder = await self._holder_of_number(wanted, shard_urls)
        if holder and holder != self._number_holder:
            logger.warning("metaq_slave_number_taken node=%s by=%.200s", next(iter(wanted)), holder)
        self._number_holder = holder
        if holder:
            wanted = {}
        # Known before they are written: an answer that is lost must not make them forgotten.
        self._broker_nodes |= wanted
        for path, data in wanted.items():
            self._check_session()
            await edits.claim(self._tree, path, data)
        self._broker_nodes = wanted
        self._announced = None if holder else (record, checksum)

    @property
    def unseen(self) -> bool:
        """Whether clients are not told of us, until somebody else's session has ended."""
        return bool(self._number_holder)

    def _leave_to_successor(self) -> None:
        """Forget what was written as master. The next master replaces all of it, at any moment
        from now on: what we deleted could be his. What he does not replace ends with our session.
        """
        self._broker_nodes.clear()
        self._topic_nodes.clear()
        self._unsure.clear()

    async def offer(
        self,
        record: BrokerRecord,
        topics: Mapping[str, TopicPlacement],
        names: Sequence[str],
        *,
        consumers_wait: bool = False,
    ) -> None:
        """Make the nodes of these topics what the placement says; no placement: none.

        `consumers_wait`: what only they see stays as it is. A master's nodes carry no owner's
        name: for a topic that is no more, those of a former master go too.
        """
        self._leads = record.role is Role.MASTER and self._paths.slave < 0
        for start in range(0, len(names), TOPICS_AT_ONCE):
            part = names[start : start + TOPICS_AT_ONCE]
            wanted = {name: self._offered(record, topics.get(name)) for name in part}
            if self._leads:
                for name in part:
                    if name not in topics:
                        known = {*self._topic_nodes.get(name, ()), *self._paths.master_nodes(name)}
                        self._unsure[name] = self._unsure.get(name, set()) | known
            if consumers_wait:
                wanted = {name: self._for_producers(name, wanted[name]) for name in part}
            await self._write(wanted)

    def _offered(self, record: BrokerRecord, topic: TopicPlacement | None) -> dict[str, bytes]:
        known = [] if topic is None or self.unseen else [topic]
        return metaq_tree.topic_nodes(self._paths, record, known)

    def _for_producers(self, name: str, wanted: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return what is wanted, but consumers see what they have seen."""
        folder = self._paths.branch(metaq_tree.FOR_CONSUMERS)
        before = self._topic_nodes.get(name, {})
        stays = {path: data for path, data in before.items() if path.startswith(folder)}
        return stays | {path: wanted[path] for path in wanted if not path.startswith(folder)}

    async def withdraw(self) -> None:
        """Delete all nodes of the broker, the address first: clients go before topics vanish."""
        await self.retire()
        names = list({**self._topic_nodes, **self._unsure})
        for start in range(0, len(names), TOPICS_AT_ONCE):
            await self._write({name: {} for name in names[start : start + TOPICS_AT_ONCE]})

    async def retire(self) -> None:
        """Delete the broker's address, and what clients before 1.4.0 read instead of it."""
        self._announced = None
        self._number_holder = ""
        for path in list(self._broker_nodes):
            await edits.drop(self._tree, path)
        if url := self._broker_nodes.get(self._paths.master):
            await self._clear_legacy(url)
        self._broker_nodes.clear()

    async def _prepare(self) -> None:
        if self._ready:
            return
        await edits.ensure(self._tree, self._paths.skeleton())
        for branch in metaq_tree.TOPIC_BRANCHES:
            folder = self._paths.branch(branch)
            self._parents |= {f"{folder}/{name}" for name in await self._tree.children(folder)}
        self._ready = True

    async def _claim_master(
        self, shard_urls: Callable[[], Awaitable[AbstractSet[str]]], wait_seconds: float
    ) -> None:
        """Wait while somebody who is none of our shard holds the broker id."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        while True:
            node = await self._tree.get(self._paths.master)
            if node is None or node.owner == self._tree.session_id:
                return
            holder = node.data.decode("utf-8", "replace")
            if holder in await shard_urls():
                return
            if loop.time() >= deadline:
                raise CoordinatorConflictError(
                    f"MetaQ broker id {self._paths.broker_id} is held by {holder:.200}: "
                    "choose another metaq.broker_id_base"
                )
            await asyncio.sleep(POLL_SECONDS)

    async def _holder_of_number(
        self, wanted: Iterable[str], shard_urls: Callable[[], Awaitable[AbstractSet[str]]]
    ) -> str:
        """Return which original slave stands where we should as slave: clients find it alone."""
        for path in wanted:
            node = None if path.startswith(self._paths.master) else await self._tree.get(path)
            if node is None or node.owner == self._tree.session_id:
                continue
            holder = node.data.decode("utf-8", "replace")
            if holder not in await shard_urls():
                return holder or "?"
        return ""

    async def _clear_legacy(self, url: bytes) -> None:
        node = await self._tree.get(self._paths.broker)
        if node is None or node.data != url:
            return
        try:
            await self._tree.commit([Delete(self._paths.broker, node.version)])
        except NotEmptyError:
            # Slaves are left: old clients read an empty address as "no master".
            await edits.change(self._tree, self._paths.broker, lambda _: b"")
        self._ready = False

    async def _write(self, wanted: Mapping[str, dict[str, bytes]]) -> None:
        self._check_session()
        await self._look_and_write({n: wanted[n] for n in wanted if n in self._unsure})
        steps: list[tuple[Operation, ...]] = []
        for name, nodes in wanted.items():
            before = self._topic_nodes.get(name, {})
            changes = [op for step in metaq_tree.changes(before, nodes) for op in step]
            if changes:
                self._unsure[name] = {*before, *nodes}
                steps.append((*self._new_parents(nodes), *changes))
        work = [self._commit(batch) for batch in metaq_tree.batches(steps, OPERATIONS_MAX)]
        # All to their end, whatever one of them says: none may go on beside the next pass.
        for ended in await asyncio.gather(*work, return_exceptions=True):
            if ended is not None:
                raise ended
        self._check_session()
        for name, nodes in wanted.items():
            self._know(name, nodes)

    def _check_session(self) -> None:
        """What a session writes is remembered for that session and for no other."""
        if self.held:
            raise TreeUnavailableError("the shard's leadership is changing hands")
        if self._tree.session_id != self._session_id:
            raise TreeUnavailableError("the session ended while topics were written")

    async def _look_and_write(self, unsure: Mapping[str, dict[str, bytes]]) -> None:
        """Write topics whose nodes may or may not stand."""
        nodes: dict[str, bytes | None] = {}
        for name, wanted in unsure.items():
            self._unsure[name] |= wanted.keys()
            nodes |= {path: wanted.get(path) for path in self._unsure[name]}
        if nodes:
            await self._repair(nodes)
        self._topic_nodes |= unsure

    def _know(self, name: str, nodes: dict[str, bytes]) -> None:
        self._unsure.pop(name, None)
        if nodes:
            self._topic_nodes[name] = nodes
        else:
            self._topic_nodes.pop(name, None)

    def _new_parents(self, nodes: Iterable[str]) -> list[Operation]:
        parents = [metaq_tree.parent_of(path) for path in nodes]
        return [Create(parent) for parent in parents if parent not in self._parents]

    async def _commit(self, batch: list[Operation]) -> None:
        """Do the steps, by the guess that proved right last: nothing stands there, or all does.

        After a crash all nodes of the former life stand for as long as its session; looking at
        each of thirty thousand would cost the broker seconds of computing time.
        """
        guesses = [batch, metaq_tree.replacing(batch)]
        if self._guess_stale:
            guesses.reverse()
        for guess in guesses:
            if await self._try(guess):
                self._guess_stale = guess is not batch
                break
        else:
            await self._repair(metaq_tree.outcome(batch))
        self._parents |= {op.path for op in batch if isinstance(op, Create) and not op.ephemeral}

    async def _try(self, operations: Sequence[Operation]) -> bool:
        steps = metaq_tree.by_node(operations)
        try:
            for part in metaq_tree.batches(steps, OPERATIONS_MAX):
                self._check_session()
                await self._tree.commit(part)
        except NodeError:
            return False
        return True

    async def _repair(self, wanted: Mapping[str, bytes | None]) -> None:
        """Read these nodes, and bring them to the wanted data; None: no node."""
        for _ in range(REPAIRS_MAX):
            self._check_session()
            try:
                await self._put_right(wanted)
            except NodeError:
                continue
            return
        raise TreeUnavailableError(f"MetaQ's tree changed {REPAIRS_MAX} times while we wrote")

    async def _put_right(self, wanted: Mapping[str, bytes | None]) -> None:
        created = [path for path, data in wanted.items() if data is not None]
        parents = list(dict.fromkeys(metaq_tree.parent_of(path) for path in created))
        await edits.ensure(self._tree, [(path, b"") for path in parents])
        nodes = await asyncio.gather(*(self._tree.get(path) for path in wanted))
        steps: list[tuple[Operation, ...]] = []
        for (path, data), node in zip(wanted.items(), nodes, strict=True):
            ours = node is not None and node.owner == self._tree.session_id
            if data is None and (ours or (node is not None and self._leads)):
                steps.append((Delete(path),))
            elif data is not None and not (ours and node and node.data == data):
                steps.append(_replacing(path, data, node is not None))
        for operations in metaq_tree.batches(steps, OPERATIONS_MAX):
            self._check_session()
            await self._tree.commit(operations)


def _replacing(path: str, data: bytes, exists: bool) -> tuple[Operation, ...]:
    """Delete and create, never set: clients see changes of children only."""
    create = Create(path, data, ephemeral=True)
    return (Delete(path), create) if exists else (create,)
