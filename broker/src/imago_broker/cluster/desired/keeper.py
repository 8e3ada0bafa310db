"""What our process wants to stand in the registry, and the pass that makes it stand there.

Desired state is a level, not an event: a pass compares it with what this session has written
and does what is missing, so it can be broken off anywhere and run again. A new session starts
from nothing written.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.cluster.desired.desired_topics import Bucket, DesiredTopics, topic_key
from imago_broker.cluster.desired.membership import Membership
from imago_broker.cluster.metaq_tree.foreigners import Foreigners
from imago_broker.cluster.metaq_tree.metaq_tree import MetaqPaths
from imago_broker.cluster.metaq_tree.publication import Publication
from imago_broker.cluster.metaq_tree.succession import Succession
from imago_broker.cluster.tree import TreeUnavailableError
from imago_broker.model.registry.cluster import Role
from imago_broker.ports import CoordinatorConflictError, CoordinatorError, RegistryDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from imago_broker.cluster.settings import CoordinatorConfig
    from imago_broker.cluster.tree import NodeTree
    from imago_broker.cluster.znodes import Paths
    from imago_broker.model.registry.cluster import BrokerRecord, ClusterView
    from imago_broker.model.registry.shard import ShardState

logger = logging.getLogger(__name__)

LOOK_AGAIN_MS = 2000
"""After it a member looks whether its number as MetaQ slave, which a stranger had, is free."""

RECORD = "record"
"""Key of the broker's own record among what is wanted and what failed."""

FENCED = "another process of the same data folder has taken this broker's place"


class Keeper:
    """Holds the desired state of one process and writes it. One pass at a time."""

    def __init__(
        self,
        config: CoordinatorConfig,
        paths: Paths,
        tree: NodeTree,
        *,
        holder: str,
        now_ms: Callable[[], int],
    ) -> None:
        """The holder is a name no other process has."""
        self._config = config
        self._paths = paths
        self._tree = tree
        self._membership = Membership(paths, tree)
        self.foreigners = Foreigners(paths, tree, holder=holder)
        """Brokers that are not ours and registered through us."""
        self._wanted: BrokerRecord | None = None
        self.topics = DesiredTopics(paths)
        self._session_id = 0
        self._registration: BrokerRecord | None = None
        self._publication: Publication | None = None
        self._written: BrokerRecord | None = None
        """The record that the registration was made of."""
        self._checksum = config.metaq_config_checksum
        self._checksum_announced = self._checksum
        self._announced: BrokerRecord | None = None
        """The record as MetaQ's clients were told of it."""
        self._state: ShardState | None = None
        self._giving = 0
        self._now_ms = now_ms
        self._succession = Succession(config.relay_ms, now_ms)
        self._look_again_at = 0
        """When to ask again for what a stranger has in MetaQ's tree, while one has."""
        self._held_back = False
        """Whether the last pass kept from consumers what it should tell them later."""
        self.is_fenced = False
        """Whether another process has taken our place: this one writes no more."""

    @property
    def registered(self) -> BrokerRecord | None:
        """Our record as written in this session."""
        return self._registration

    def want_record(self, record: BrokerRecord) -> None:
        """Want this broker registered from now on."""
        if self._wanted and self._wanted.shard != record.shard:
            raise CoordinatorConflictError("a process serves one shard")
        self._wanted = record

    def tell_checksum(self, checksum: int) -> bool:
        """Want this checksum of our settings in MetaQ's tree; returns whether it is a new one."""
        changed, self._checksum = checksum != self._checksum, checksum
        return changed

    def want_no_record(self) -> None:
        """Want neither the broker nor its topics in MetaQ's tree; their placement stays."""
        self._wanted = None
        self.topics.clear()

    def doubts(self, view: ClusterView, buckets: Mapping[str, Bucket]) -> bool:
        """Whether what was read lacks something of ours; that is wanted again.

        `buckets`: the topic nodes by path; unchanged ones are the objects of the last call.
        """
        lost = self.foreigners.lost(view.foreign)
        if self._wanted is not None:
            self._state = view.states.get(self._wanted.shard)
        if self._registration is None:
            return lost
        record = self._registration
        shown = self._shown(record)
        leads = shown.role is Role.MASTER
        if self._changes_role(shown):
            self._pause()  # a pass that is under way goes by what is over
        missing = leads and self.topics.find_missing(buckets, record.shard)
        ours = (record.replica, record.incarnation)
        stands = any((b.replica, b.incarnation) == ours for b in view.members(record.shard))
        behind = shown != self._announced and not self._kept_quiet(shown)
        return lost or missing or not stands or behind

    async def settle(self) -> tuple[set[str], dict[str, CoordinatorError]]:
        """One pass, after `verify`: returns the registry nodes it wrote, and what failed.

        TreeUnavailableError: run another pass when the session is back.
        """
        written: set[str] = set()
        failures: dict[str, CoordinatorError] = {}
        self._held_back = False
        if self.is_fenced:
            return written, dict.fromkeys(self._all_keys(), CoordinatorConflictError(FENCED))
        if self._wanted is None:
            await self._take_back(written)
        else:
            await self._settle_record(self._wanted, written, failures)
        if self._announced is not None:
            await self._settle_topics(self._announced, written, failures)
        await self.foreigners.settle(written, failures)
        return written, failures

    @property
    def due_ms(self) -> int | None:
        """In how many milliseconds a pass is wanted though nothing happens; None: it is not."""
        due_ms = self._succession.due_ms
        if due_ms is None and self._held_back:
            return 0
        if self._wanted is None or self.is_fenced or not self._is_unseen():
            return due_ms
        again_ms = self._look_again_at - self._now_ms()
        again_ms = again_ms if again_ms > 0 else LOOK_AGAIN_MS
        return again_ms if due_ms is None else min(due_ms, again_ms)

    async def leave(self) -> None:
        """Take the broker's addresses away; the end of the session takes all other nodes."""
        if self.is_fenced:
            return
        if self._publication is not None:
            await self._publication.retire()
        await self._membership.unregister()
        self._registration = None

    async def verify(self) -> None:
        """Look whether what this session has written still stands, and is ours."""
        if self.is_fenced:
            return
        if self._tree.session_id != self._session_id:
            self._begin_session()
        elif self._registration is not None:
            record = self._registration
            node = await self._tree.get(self._paths.broker(record.shard, record.replica))
            if node is None:
                self._begin_session()
            elif node.owner != self._session_id:
                logger.error("registry_fenced shard=%d replica=%d", record.shard, record.replica)
                self._registration = None
                self.is_fenced = True

    def _begin_session(self) -> None:
        """Forget what was written: by another session, or under a node that was deleted."""
        logger.info("registry_session session=%x", self._tree.session_id)
        session_id = self._tree.session_id
        if self._publication is not None and self._session_id == session_id:
            self._publication.doubt()
        elif self._publication is not None:
            self._publication.forget(session_id)
        self._session_id = session_id
        self._registration = None
        self._written = None
        self._announced = None
        self.foreigners.begin_session()
        self.topics.begin_session()

    async def _settle_record(
        self, wanted: BrokerRecord, written: set[str], failures: dict[str, CoordinatorError]
    ) -> None:
        try:
            if self._registration is None or self._written != wanted:
                self._registration = await self._membership.register(
                    wanted, wait_seconds=self._config.stranger_wait_seconds
                )
                self._written = wanted
                written |= self._own_nodes(self._registration)
            await self._announce(self._registration)
        except (CoordinatorConflictError, RegistryDamagedError) as error:
            # Somebody else has our place, and trying by ourselves would not make him go.
            failures[RECORD] = error
            self._wanted = None
            await self._take_back(written)

    async def _take_back(self, written: set[str]) -> None:
        if self._publication is not None:
            if self._publication.held and self._registration is not None:
                # What stands for the master may be another's by now: first become a slave.
                await self._announce(self._registration)
            await self._publication.withdraw()
        written |= await self._membership.unregister()
        self._registration = None
        self._written = None
        self._announced = None

    def _shown(self, record: BrokerRecord) -> BrokerRecord:
        """Our record with the role that the shard's state gives us: what clients see."""
        state = self._state
        if state is None or record.role is Role.FENCED:
            return record
        if state.leader == (record.uuid, record.incarnation):
            return replace(record, role=Role.MASTER)
        others = {member.uuid for member in (*state.in_sync, *state.former)} - {record.uuid}
        if others:
            return replace(record, role=Role.SLAVE)
        # Nobody else may lead: it begins, ends or is about to lead again, and is nobody's slave.
        before = Role.ELECTING if self._announced is None else self._announced.role
        return replace(record, role=before)

    async def _announce(self, registration: BrokerRecord) -> None:
        record = self._shown(registration)
        if self._publication is not None:
            self._publication.held = self._giving > 0
        told = self._checksum == self._checksum_announced and self._announced == record
        if self._is_unseen() and self._now_ms() >= self._look_again_at:
            told = False
        if told or self._kept_quiet(record):
            return
        if self._changes_role(record):
            # Only a master says where topics are: what it learned as slave waits until then.
            self.topics.begin_role()
        self._announced = None  # until all of it is written
        checksum = self._checksum
        if not (self._config.alone or self._config.metaq_hidden) and record.metaq:
            await self._publish(record, checksum)
        self._announced, self._checksum_announced = record, checksum

    def _changes_role(self, shown: BrokerRecord) -> bool:
        return self._announced is not None and self._announced.role is not shown.role

    def _kept_quiet(self, shown: BrokerRecord) -> bool:
        """Whether clients are to know us by our former role for a moment."""
        if not self._changes_role(shown) or self._state is None:
            return False
        self._succession.begin(shown.role, self._state)
        return self._succession.quiet

    async def _publish(self, record: BrokerRecord, checksum: int) -> None:
        if self._publication is None:
            broker_id = self._config.metaq_broker_id_base + record.shard
            self._publication = Publication(
                MetaqPaths(self._config.metaq_root, broker_id, self._config.metaq_slave),
                self._tree,
                session_id=self._session_id,
            )
        was_unseen = self._is_unseen()
        await self._publication.announce(
            record,
            checksum=checksum,
            shard_urls=lambda: self._membership.shard_urls(record.shard),
            wait_seconds=self._config.stranger_wait_seconds,
        )
        if self._publication.unseen:
            self._look_again_at = self._now_ms() + LOOK_AGAIN_MS
        elif was_unseen:
            self.topics.put_back(unoffered=self.topics.offers)

    def _is_unseen(self) -> bool:
        return self._publication is not None and self._publication.unseen

    def hold(self) -> None:
        """Write nothing for MetaQ's clients from now on: we are giving the leadership away.

        ZooKeeper does what one session asks in order, so nothing that we asked for before can
        come after the change, and nothing after it can be undone by us.
        """
        self._giving += 1
        self._pause()

    def release(self) -> None:
        """The outcome stands in the next snapshot, and the next pass goes by it."""
        self._giving -= 1

    def _pause(self) -> None:
        if self._publication is not None:
            self._publication.held = True

    async def _settle_topics(
        self, record: BrokerRecord, written: set[str], failures: dict[str, CoordinatorError]
    ) -> None:
        # Taken out first: what changes while we write must be found by the next pass.
        names, offers = self.topics.take()
        topics = self.topics.placements
        try:
            placed = sorted(names) if record.role is Role.MASTER else []
            buckets, failed = await self._membership.place(record.shard, topics, placed)
            if self._publication is not None:
                waiting = self._succession.consumers_wait(record.role)
                await self._publication.offer(
                    record, self.topics.offers, list(offers), consumers_wait=waiting
                )
                if record.role is Role.MASTER:
                    self._succession.producers_told()
                if waiting and offers:
                    self.topics.put_back(unoffered=offers)
                    self._held_back = True
        except TreeUnavailableError:
            self.topics.put_back(unplaced=names, unoffered=offers)
            raise
        self.topics.put_back(unplaced=failed)
        written |= buckets
        failures |= {topic_key(name): error for name, error in failed.items()}

    def _all_keys(self) -> list[str]:
        return [RECORD, *self.topics.keys, *self.foreigners.keys]

    def _own_nodes(self, record: BrokerRecord) -> set[str]:
        return {self._paths.brokers, self._paths.broker(record.shard, record.replica)}
