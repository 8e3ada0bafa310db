"""The follower's side of one connection: greeting, comparison, and the copy that grows.

Whoever owns it decides: it receives the leader's WELCOME, cuts the log, and calls `fetch`. From
then on bytes are written as they come, with one ACK a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from imago_broker.model import feature_level
from imago_broker.replication.follower.receiving import Copy
from imago_broker.replication.links.link import UNREAD_BYTES_MAX
from imago_broker.service.metaq_transactions.staged_marks import PartlyPublished
from imago_log.errors import CorruptRecordError, LogIOError, StoreError
from imago_wire.errors import LimitExceededError, ProtocolError
from imago_wire.replication.decoder import FrameDecoder
from imago_wire.replication.encoder import encode, repair_header
from imago_wire.replication.frames import (
    EPOCHS_MAX,
    FEATURE_LEVEL,
    U16,
    Ack,
    Data,
    Fetch,
    Flags,
    FrameType,
    Hello,
    Metadata,
    RefusalCode,
    Refuse,
    Repair,
    RepairAsk,
    Welcome,
)

if TYPE_CHECKING:
    from imago_broker.model.registry.shard import Member
    from imago_broker.replication.links.link import Link
    from imago_broker.replication.links.member import ThisMember
    from imago_broker.replication.repair import Asker
    from imago_wire.replication.frames import Frame

SNAPSHOT_BYTES_MAX = 1 << 30
SILENCE_MS = 3000
"""A leader says something every 500 ms at least; after this it is taken for gone."""
FROM_LEADER = frozenset(
    {
        FrameType.WELCOME,
        FrameType.REFUSE,
        FrameType.DATA,
        FrameType.REPAIR_ASK,
        FrameType.REPAIR,
        FrameType.METADATA,
    }
)


class Owner(Protocol):
    """Who owns the session, and hears what comes of it."""

    def welcomed(self, welcome: Welcome) -> None:
        """The leader has answered: compare, cut, then `fetch`, or close."""
        ...

    def takes_data(self, epoch: int) -> bool:
        """Whether log bytes of this leadership may be written: promised and compared."""
        ...

    def grew(self, *, leader_end: int) -> None:
        """The copy or the high watermark has moved."""
        ...

    def refused(self, refusal: Refuse) -> None:
        """The leader does not serve us."""
        ...

    def repair_bytes(self, offset: int, size: int) -> bytes | memoryview:
        """Return bytes of our log that are whole, or none."""
        ...

    def repaired(self, asker: Asker, offset: int, data: memoryview) -> None:
        """Bytes that we had asked for have come, or none."""
        ...

    def ended(self, reason: str) -> None:
        """The connection is gone."""
        ...


class FollowerSession:
    """One connection to the leader of an epoch that we have promised ourselves to."""

    def __init__(
        self,
        link: Link,
        this: ThisMember,
        owner: Owner,
        *,
        leader: Member,
        epoch: int,
        now_ms: int,
    ) -> None:
        self.link = link
        self.heard_ms = now_ms
        """When the leader said anything last."""
        self.copying = False
        """Whether FETCH was sent."""
        self.agreed = False
        """Whether anything that came behind it was taken."""
        self.copy = Copy(this.store, this.counters)
        self._store = this.store
        self._partly_published = PartlyPublished(this.store)
        self._identity = this.identity
        self._owner = owner
        self._leader = leader
        self._epoch = epoch
        self._now_ms = now_ms
        self._snapshot = bytearray()
        self._decoder = FrameDecoder(FROM_LEADER)
        link.start(self)

    def greet(self) -> None:
        """Say who we are and what we hold."""
        store, identity = self._store, self._identity
        hello = Hello(
            epoch=self._epoch,
            cluster_id=identity.cluster_id,
            shard=identity.shard,
            uuid=identity.uuid,
            incarnation=identity.incarnation(),
            epochs=store.epochs[-EPOCHS_MAX:],
            log_start=store.log_start,
            log_end=store.log_end,
            extensions=((FEATURE_LEVEL, U16.pack(feature_level.NEWEST)),),
        )
        self._send(hello)

    def fetch(self, offset: int, last_epoch: int) -> None:
        """Have the leader send its log from here on: ours ends here."""
        self.copying = True
        self._decoder.expected = FROM_LEADER - {FrameType.WELCOME}
        flags = Flags.METADATA if self._store.needs_metadata else Flags.NONE
        self._send(Fetch(self._epoch, offset, last_epoch, flags))

    def durable_moved(self) -> None:
        """Say that more of our log is on disk."""
        if self.copying and not self.link.closed:
            self._ack()

    def ask_repair(self, offset: int, size: int) -> None:
        """Ask the leader for bytes that are damaged here."""
        self._send(RepairAsk(self._epoch, offset, size))

    def tick(self, now_ms: int) -> None:
        """Give up a leader that is silent."""
        self._now_ms = now_ms
        if now_ms - self.heard_ms >= SILENCE_MS:
            self.end(f"silent for {now_ms - self.heard_ms} ms")

    def end(self, reason: str) -> None:
        """Close, and tell the owner why."""
        if not self.link.closed:
            self.link.close()
            self._owner.ended(reason)

    def close(self) -> None:
        """Close; the owner knows."""
        self.link.close()

    def _send(self, frame: Frame) -> None:
        self.link.send(encode(frame))
        self.link.flush()

    def drained(self) -> None:
        """Send nothing more: a follower has only answers to send."""

    def lost(self, reason: str) -> None:
        """Look for a leader again: the link has ended."""
        self._owner.ended(reason)

    def received(self, data: bytes) -> None:
        """Take the leader's bytes."""
        self.heard_ms = self._now_ms
        try:
            frames = self._decoder.feed(data)
            newest = None
            for frame in frames:
                if self.link.closed:
                    return
                if isinstance(frame, Data):
                    self._take(frame)
                    newest = frame
                else:
                    self._handle(frame)
            if newest is not None:
                self._taken(newest)
        except CorruptRecordError as error:
            # Behind the acknowledged end it begins: the leader looks there, and has it healed.
            self._ack()
            self._send(Refuse(self._epoch, RefusalCode.DAMAGED, str(error)[:120]))
            self.end(f"damaged: {error}")
        except LogIOError:
            # The store has told the application, which ends the process.
            self.close()
        except (ProtocolError, StoreError) as error:
            self._refuse(f"{type(error).__name__}: {error}")

    def _refuse(self, reason: str) -> None:
        """Take no more, and have the leader show why: there a copy that stands still is noticed."""
        if self.copying:
            self._send(Refuse(self._epoch, RefusalCode.PROTOCOL, reason[:120]))
        self.end(reason)

    def _take(self, frame: Data) -> None:
        if not self.copying:
            raise ProtocolError("DATA before FETCH")
        self._check_epoch(frame.epoch)
        if not self._owner.takes_data(frame.epoch):
            raise ProtocolError(f"DATA of epoch {frame.epoch}, which was not agreed on")
        self.copy.take(frame)

    def _taken(self, newest: Data) -> None:
        """Answer all DATA frames of this turn."""
        self.agreed = True
        store = self._store
        store.set_high_watermark(self._partly_published.visible(newest.high_watermark))
        if newest.wants_sync and store.durable_end < store.log_end:
            store.request_sync()
        self._ack()
        self._owner.grew(leader_end=newest.leader_end)

    def _ack(self) -> None:
        self._send(Ack(self._epoch, self._store.log_end, self._store.durable_end))

    def _handle(self, frame: Frame) -> None:
        if isinstance(frame, Refuse):
            self.link.close()
            self._owner.refused(frame)
            return
        if isinstance(frame, Welcome):
            self._check_leader(frame)
            self._epoch = frame.epoch
            self._owner.welcomed(frame)
            return
        self._check_epoch(frame.epoch)
        if isinstance(frame, RepairAsk):
            if self.link.pending > UNREAD_BYTES_MAX:
                raise ProtocolError("the leader asks for more than it reads")
            data = self._owner.repair_bytes(frame.offset, frame.size)
            self.link.send(
                repair_header(epoch=self._epoch, offset=frame.offset, size=len(data)), data
            )
            self.link.flush()
        elif isinstance(frame, Repair):
            self._owner.repaired(self, frame.offset, frame.data)
        elif isinstance(frame, Metadata):
            self._take_metadata(frame)

    def _take_metadata(self, frame: Metadata) -> None:
        """Gather the snapshot; it is taken over when it is whole."""
        self._snapshot += frame.data
        if len(self._snapshot) > SNAPSHOT_BYTES_MAX:
            size = len(self._snapshot)
            raise LimitExceededError("METADATA", size=size, size_max=SNAPSHOT_BYTES_MAX)
        if not frame.last:
            return
        try:
            self._store.install_metadata(bytes(self._snapshot))
        except ValueError as error:
            raise ProtocolError(f"METADATA: {error}") from error
        self._snapshot.clear()

    def _check_leader(self, welcome: Welcome) -> None:
        said = (welcome.uuid, welcome.incarnation)
        if said != tuple(self._leader):
            raise ProtocolError(f"WELCOME of {said}, the leader is {tuple(self._leader)}")

    def _check_epoch(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise ProtocolError(f"frame of epoch {epoch}, this is {self._epoch}")
