"""What the broker needs from outside, as protocols: time, and the one authority on the cluster.

`Coordinator` has two adapters with one contract suite: ZooKeeper, and memory for a broker alone.
Its parts are ports of their own, and each part of the broker receives those that it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from imago_broker.core.metaq.metaq_tree_check import TreeNode
    from imago_broker.model.metaq_slave import SlaveStatus
    from imago_broker.model.metaq_tree import MetaqMaster, OffsetCopy, OffsetRecord
    from imago_broker.model.pipelines import Pipeline, PipelineProgress
    from imago_broker.model.registry.cluster import (
        BrokerRecord,
        ClusterView,
        ForeignBroker,
        RegistryConnection,
        TopicPlacement,
    )
    from imago_broker.model.registry.shard import ShardState
    from imago_broker.model.registry.shard_status import LocalShardStatus

    MetaqProgress = Mapping[str, Mapping[str, Mapping[int, int]]]
    """MetaQ positions that are read out: topic to group to partition to position."""


class Clock(Protocol):
    """Both kinds of time; a test passes one that it turns by hand."""

    def epoch_ms(self) -> int:
        """Wall clock: what is stored and shown. It may step."""
        ...

    def monotonic_ms(self) -> int:
        """Deadlines and durations. It never steps."""
        ...


class CoordinatorError(Exception):
    """The registry did not do what was asked; the cause is chained."""


class CoordinatorUnavailableError(CoordinatorError):
    """No answer for now: try again. What was registered is written once the session is back."""


class CoordinatorConflictError(CoordinatorError):
    """Another process holds what was asked for: a wrong configuration that a human must change."""


class UnknownShardError(CoordinatorError):
    """Of any call about a shard that there has never been, or that was removed."""


class RegistryDamagedError(CoordinatorError):
    """A node that had to be changed holds what nobody can read. Nothing was written over it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"registry node {path}: {reason}")
        self.path, self.reason = path, reason


class ToldEntries(Protocol):
    """Settings that tools have told this broker, by name, over its restarts."""

    def read(self) -> dict[str, str]:
        """Return what was reported."""
        ...

    def write(self, entries: Mapping[str, str]) -> None:
        """Keep this instead, durably; StoreError where it cannot be."""
        ...


class Registry(Protocol):
    """The registry of brokers and topics, seen by one process.

    Methods that wait are coroutines; views are snapshots and never block. All calls and callbacks
    run in the event-loop thread. What a process registers (its broker record, the queues of its
    shard, foreign brokers connected to it) is desired state: it is written again by itself
    whenever a new session had to be opened, with a new incarnation.
    """

    @property
    def state(self) -> RegistryConnection:
        """The session as last reported."""
        ...

    @property
    def registered(self) -> BrokerRecord | None:
        """Our own record as written last, replica number and incarnation filled in."""
        ...

    @property
    def lease_end_ms(self) -> int:
        """Until when nobody can have taken our place, by the clock's `monotonic_ms`.

        Two thirds of the session time-out behind the moment at which the last call that has
        been answered was sent, whatever `state` says; kept fresh while the event loop runs and
        the registry answers. 0: there is no lease. A broker alone has one for ever.
        """
        ...

    async def start(self) -> None:
        """Connect and read the first view.

        CoordinatorUnavailableError when nothing answers within the connect time-out,
        CoordinatorConflictError when the cluster's settings contradict ours.
        """
        ...

    async def stop(self) -> None:
        """Give back everything registered and close the session. May be called twice."""
        ...

    def view(self) -> ClusterView:
        """Return the last snapshot of the cluster.

        Its live brokers were read after its states, never before.
        """
        ...

    def on_change(self, callback: Callable[[ClusterView], None]) -> None:
        """Have the callback told each new snapshot."""
        ...

    def on_state(self, callback: Callable[[RegistryConnection], None]) -> None:
        """Have the callback told each change of the session's state."""
        ...

    async def register(self, record: BrokerRecord) -> int:
        """Announce this broker (and MetaQ's public nodes of it), or change what was announced.

        Returns the incarnation; `registered` then has the replica number, which belongs to the
        record's uuid for ever: the record's own where that was free, else the next. A change of
        the record (role, log end) keeps the incarnation.
        Nodes that our own former life left behind are replaced at once, and MetaQ's nodes of a
        former master of the shard when its state says that we lead.
        CoordinatorConflictError, after as long as a dead process may be on record, when a live
        one has the same data folder, the same place or one of our addresses.
        """
        ...

    async def unregister(self) -> None:
        """Take this broker and its topics out of MetaQ's tree; the placement stays on record."""
        ...

    async def publish_topic(self, placement: TopicPlacement) -> None:
        """Announce or change a topic of this broker's shard, MetaQ's public nodes included."""
        ...

    async def publish_topics(
        self, placements: Sequence[TopicPlacement], *, complete: bool = False
    ) -> None:
        """Announce many topics at once: each placement holds our shard's entry.

        `complete` says that these are all topics of our shard: entries of others are removed.
        A broker that does not lead its shard offers topics to MetaQ's clients as a slave does
        and changes no placement before it leads.
        It is desired at once; returns when it is written. CoordinatorUnavailableError when
        that takes longer than the operation time-out.
        """
        ...

    def tell_checksum(self, checksum: int) -> None:
        """Show MetaQ's slaves and tools that the configuration is another one now."""
        ...

    async def offer_patterns(self, patterns: Sequence[TopicPlacement]) -> None:
        """Show MetaQ's clients these patterns of topics under their own names, and no others.

        They stand in MetaQ's tree only: there is no such topic.
        """
        ...

    async def remove_topic(self, name: str) -> None:
        """Take this shard's entry of a topic out of the registry; without entries it is gone."""

    async def read_topic(self, name: str) -> None:
        """Read a topic into the view as nobody can know it newer, or CoordinatorError."""

    async def put_foreign(self, broker: ForeignBroker) -> None:
        """Register a foreign broker for as long as our session lives, or change it."""

    async def remove_foreign(self, key: tuple[str, str, int]) -> None:
        """Take a foreign broker that registered through us away; unknown ones are no error."""


class ShardStates(Protocol):
    """The leadership of shards: read as new as it is, changed by compare and set."""

    async def change_shard(self, shard: int, state: ShardState) -> ShardState:
        """Write the successor of a shard's state: compare and set against `state.version`.

        One transaction checks that our registration stands, with the incarnation of
        `registered`. Returns the state with its new version; callbacks of `on_change` may have
        told it before. When the leadership of this broker begins or ends by it, MetaQ's tree
        follows by itself, a little later.

        CoordinatorConflictError: not written; the version moved or our registration is gone.
        CoordinatorUnavailableError: whether it was written is unknown; read again.
        """
        ...

    async def read_shard(self, shard: int) -> ShardState | None:
        """Return a shard's state as nobody can know it newer; None where there is none yet.

        `view` is as fresh afterwards: the state, and live brokers that were read after it.
        RegistryDamagedError when the node cannot be understood.
        """
        ...


class SharedMarks(Protocol):
    """What administrators and the operator note for all processes: each call changes one node."""

    async def mark_shard(
        self, shard: int, *, cordoned: bool | None = None, drained: bool | None = None
    ) -> None:
        """Say that a shard takes no new topics, or that nothing of value is left; None: as is."""
        ...

    async def drain_shard(self, shard: int, request_id: str, *, move: bool = True) -> None:
        """Want a shard's topics moved to others; it is cordoned from then on.

        `move=False`: they are only closed. CoordinatorConflictError: this very request was taken
        back since, or the shard is being drained in the other way.
        """
        ...

    async def undrain_shard(self, shard: int) -> None:
        """Take that back, and the cordon."""
        ...

    async def note_drained(self, shard: int, drained: bool) -> None:
        """Note whether nothing is left on a shard that is being drained; of no other shard."""
        ...

    async def fence_member(
        self, shard: int, uuid: str, *, others: Collection[str], least: int
    ) -> None:
        """Note that a member is to serve nobody; it is fenced no more once it registers again.

        CoordinatorConflictError: of the others in sync, less those fenced, fewer than `least` stay.
        """

    async def unfence_member(self, shard: int, uuid: str) -> None:
        """Take that back, of a member that has not been fenced after all."""

    async def forget_shard(self, shard: int) -> None:
        """Take a shard out of the registry: its topics, its members' places, its state.

        CoordinatorConflictError while it has a live broker or is not drained.
        """
        ...

    async def read_operator_epoch(self) -> int:
        """Return the fence of the cluster's operator, as new as anybody can know it."""

    async def raise_operator_epoch(self, epoch: int) -> None:
        """Make this the fence of the cluster's operator; the same again is no change.

        CoordinatorConflictError when a higher one stands.
        """
        ...

    async def raise_feature_level(self, level: int, *, without_absent: bool = False) -> None:
        """Raise the cluster's feature level; CoordinatorConflictError says who is against it."""

    async def put_kv(self, namespace: str, key: str, value: str | None) -> None:
        """Set (or with None remove) a name service setting."""

    async def set_write_wiped(self, broker_name: str, wiped: bool) -> None:
        """Take a shard's write permission out of all routes, or give it back."""


class PipelineRecords(Protocol):
    """The fence between the runs of each pipeline, and how far they are."""

    async def read_pipeline(self, name: str) -> Pipeline:
        """Return what is on record of a pipeline as nobody can know it newer.

        One that nobody has spoken of has epoch 0. Names are those of `model.pipelines`.
        """
        ...

    async def raise_pipeline_epoch(self, name: str, epoch: int) -> None:
        """End all runs of a pipeline with a lower epoch; the same again is no change.

        CoordinatorConflictError when a higher one stands.
        """
        ...

    async def report_pipeline(self, name: str, epoch: int, progress: PipelineProgress) -> None:
        """Note how far the run of this epoch is.

        CoordinatorConflictError, and nothing noted, unless this very epoch stands.
        """
        ...


class MetaqConsumers(Protocol):
    """What others have written into MetaQ's tree themselves: consumers, and original brokers."""

    async def metaq_master(self) -> MetaqMaster | None:
        """Return the master of our shard's broker id; None: none is registered.

        CoordinatorUnavailableError: nobody knows.
        """

    async def metaq_progress(
        self, topics: Collection[str], groups: Collection[str] | None = None
    ) -> MetaqProgress:
        """Return how far MetaQ's groups say they are in our partitions of topics that they read.

        `groups`: those to look at; None means all. They write it into MetaQ's tree themselves.
        CoordinatorUnavailableError: nobody knows.
        """

    async def copy_offsets(self, topic: str, copy: OffsetCopy) -> list[str]:
        """Copy all groups' offsets of a topic where there are none; return the nodes made."""

    async def offset_records(self, topics: Collection[str]) -> list[OffsetRecord]:
        """Return the records of all groups in our shard's partitions that name a message.

        CoordinatorUnavailableError: nobody knows.
        """
        ...

    async def move_offset(self, record: OffsetRecord, position: int) -> bool:
        """Have a group go on at another position; false: its record is another one by now."""
        ...

    async def metaq_tree(self) -> tuple[str, Mapping[str, TreeNode]]:
        """Return the root of MetaQ's tree and all nodes below it by path; empty without one."""

    async def metaq_groups(self) -> tuple[str, ...]:
        """Return the names that MetaQ's consumers have given their groups, in MetaQ's tree.

        CoordinatorUnavailableError: nobody knows.
        """

    async def metaq_members(self, groups: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """Return the ids of MetaQ's consumers that have a session now, by group.

        CoordinatorUnavailableError: nobody knows.
        """

    async def metaq_owners(self, topic: str, group: str) -> Mapping[int, str]:
        """Return which consumers own our shard's partitions of a topic."""

    async def set_metaq_offset(self, topic: str, group: str, partition: int, at: int) -> None:
        """Write how far a group is in one of our shard's partitions."""


class MetaqSlaveControl(Protocol):
    """What administrators may ask of the copying of an original MetaQ master."""

    def status(self) -> SlaveStatus:
        """Return how it stands; cheap."""
        ...

    def restart(self) -> None:
        """Connect again, and look again which topics there are and where they stand."""
        ...


class Coordinator(Registry, Protocol):
    """The registry and everything else that shares its session.

    Each part of the broker receives those of the five ports that it uses.
    """

    @property
    def shard_states(self) -> ShardStates: ...
    @property
    def marks(self) -> SharedMarks: ...
    @property
    def pipelines(self) -> PipelineRecords: ...
    @property
    def metaq_consumers(self) -> MetaqConsumers: ...


class ShardRefusedError(Exception):
    """A handover or an election was not done; the text says why, `cure` what helps but time."""

    def __init__(self, text: str, *, cure: str = "") -> None:
        super().__init__(text)
        self.cure = cure


class ShardControl(Protocol):
    """What administrators may ask of this broker's place in its shard.

    A request id names one request: the same again is carried out once.
    """

    def shard_status(self) -> LocalShardStatus:
        """Return how things stand; cheap."""
        ...

    async def handover(self, target: str | None, request_id: str) -> None:
        """Give leadership to the member of this uuid, or to the best; returns when it leads.

        ShardRefusedError when we do not lead, or it cannot; we lead on then.
        """
        ...

    async def elect(self, request_id: str, *, allow_data_loss: bool) -> None:
        """Become the leader of a shard that has none; returns when we lead.

        ShardRefusedError when there is one, or when data might be lost and that is not allowed.
        """
        ...
