"""The leader's side of one connection: who calls, whether its log continues ours, and the push.

greeting → (HELLO) → comparing → (FETCH) → copying. Whoever stays in the first for
GREETING_MS, is not done with both after HANDSHAKE_MS, or says what may not be said there, is
refused and closed. While its TLS handshake waits for a turn its time does not pass.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

from imago_broker.model.registry.shard import Member
from imago_broker.replication.links.link import UNREAD_BYTES_MAX
from imago_log.errors import StoreError
from imago_wire.errors import ProtocolError
from imago_wire.replication.decoder import FrameDecoder
from imago_wire.replication.encoder import encode, repair_header
from imago_wire.replication.frames import (
    Ack,
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
    from imago_broker.replication.leader.sending import SendCursor
    from imago_broker.replication.links.link import Link
    from imago_wire.replication.frames import Frame

HANDSHAKE_MS = 5000
GREETING_MS = 2000
"""How long a caller may be silent: a member greets as soon as it is connected."""
METADATA_FRAME_BYTES = 1 << 20
FROM_FOLLOWER = frozenset(
    {
        FrameType.HELLO,
        FrameType.FETCH,
        FrameType.ACK,
        FrameType.REPAIR_ASK,
        FrameType.REPAIR,
        FrameType.REFUSE,
    }
)
FROM_STRANGER = FROM_FOLLOWER - {FrameType.REPAIR}
"""What is taken of a caller that is not known and does not copy yet: nothing large."""


class SessionRefusedError(Exception):
    """The other side is not served."""

    def __init__(self, code: RefusalCode, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class SessionStage(Enum):
    """Where the conversation stands."""

    GREETING = "greeting"
    COMPARING = "comparing"
    COPYING = "copying"
    ENDED = "ended"


class LeadingSide(Protocol):
    """What a session asks of the side that leads. RefusedError where the answer is no."""

    epoch: int

    def welcome(self, session: LeaderSession, hello: Hello) -> Welcome:
        """Look the caller up; say who we are and which epochs wrote our log."""
        ...

    def begin(self, session: LeaderSession, fetch: Fetch) -> SendCursor:
        """Check that the caller's log continues ours at this place."""
        ...

    def acked(self, session: LeaderSession) -> None:
        """Count what the follower has now, as its cursor says."""
        ...

    def metadata_snapshot(self) -> bytes:
        """Return topics, groups, offsets … for a log that begins behind them."""
        ...

    def repair_bytes(self, ask: RepairAsk) -> bytes | memoryview:
        """Return the bytes that are damaged at the caller, or none."""
        ...

    def repaired(self, session: LeaderSession, repair: Repair) -> None:
        """Take bytes that we had asked for."""
        ...

    def distrusted(self, session: LeaderSession, cursor: SendCursor, refuse: Refuse) -> None:
        """The follower does not take what it was sent and has not acknowledged, and says why."""
        ...

    def appended(self) -> None:
        """Push soon: a follower can take more."""
        ...

    def ended(self, session: LeaderSession, refusal: SessionRefusedError | None) -> None:
        """Forget the session."""
        ...


class LeaderSession:
    """One follower's connection."""

    def __init__(self, link: Link, leadership: LeadingSide, *, now_ms: int) -> None:
        self.link = link
        self.member = Member("", 0)
        """The follower, once it has said who it is and is known."""
        self.stage = SessionStage.GREETING
        self.cursor: SendCursor | None = None
        """Its copy, from FETCH on."""
        self.heard_ms = now_ms
        """When the follower said anything last, as the clock was read last."""
        self._now_ms = now_ms
        self._leadership = leadership
        self._began_ms = now_ms
        self._decoder = FrameDecoder(FROM_STRANGER)
        link.start(self)

    def check_time(self, now_ms: int) -> None:
        """Refuse a caller that does not come to the point."""
        self._now_ms = now_ms
        if self.link.waits:
            self._began_ms = now_ms
        limits_ms = {SessionStage.GREETING: GREETING_MS, SessionStage.COMPARING: HANDSHAKE_MS}
        limit_ms = limits_ms.get(self.stage)
        if limit_ms is not None and now_ms >= self._began_ms + limit_ms:
            self.refuse(
                SessionRefusedError(RefusalCode.PROTOCOL, f"no answer while {self.stage.value}")
            )

    def refuse(self, refusal: SessionRefusedError) -> None:
        """Say why, and close."""
        if self.stage is SessionStage.ENDED:
            return
        self.stage = SessionStage.ENDED
        self.link.send(encode(Refuse(self._leadership.epoch, refusal.code, refusal.reason[:120])))
        self.link.close()
        self._leadership.ended(self, refusal)

    def close(self) -> None:
        """Close without a word; the leadership is not told."""
        self.stage = SessionStage.ENDED
        self.link.close()

    def ask_repair(self, offset: int, size: int) -> None:
        """Ask the follower for bytes that are damaged here."""
        self.link.send(encode(RepairAsk(self._leadership.epoch, offset, size)))
        self.link.flush()

    def drained(self) -> None:
        """Have more pushed."""
        self._leadership.appended()

    def lost(self, _reason: str) -> None:
        """Be forgotten: the link has ended."""
        self.stage = SessionStage.ENDED
        self._leadership.ended(self, None)

    def received(self, data: bytes) -> None:
        """Take the follower's bytes."""
        self.heard_ms = self._now_ms
        try:
            acked = False
            for frame in self._decoder.feed(data):
                acked |= self._handle(frame)
                if self.stage is SessionStage.ENDED:
                    return
            if acked:
                self._leadership.acked(self)
        except SessionRefusedError as refusal:
            self.refuse(refusal)
        except ProtocolError as error:
            self.refuse(SessionRefusedError(RefusalCode.PROTOCOL, str(error)))
        except (StoreError, LookupError) as error:
            # What it wants of our log is not there any more: it compares again.
            self.refuse(SessionRefusedError(RefusalCode.DIVERGED, str(error)))

    def _handle(self, frame: Frame) -> bool:
        """Serve one frame; return whether it says that the copy has grown."""
        if isinstance(frame, Ack):
            self._ack(frame)
            return True
        if isinstance(frame, Hello):
            self._greet(frame)
        elif isinstance(frame, Fetch):
            self._begin(frame)
        elif isinstance(frame, RepairAsk):
            self._check_copying(frame.epoch)
            if self.link.pending > UNREAD_BYTES_MAX:
                raise SessionRefusedError(RefusalCode.PROTOCOL, "asks for more than it reads")
            data = self._leadership.repair_bytes(frame)
            head = repair_header(epoch=frame.epoch, offset=frame.offset, size=len(data))
            self.link.send(head, data)
            self.link.flush()
        elif isinstance(frame, Repair):
            self._check_copying(frame.epoch)
            self._leadership.repaired(self, frame)
        elif isinstance(frame, Refuse):
            self._distrusted(frame)
        else:
            raise SessionRefusedError(RefusalCode.PROTOCOL, f"unexpected {type(frame).__name__}")
        return False

    def _greet(self, hello: Hello) -> None:
        if self.stage is not SessionStage.GREETING:
            raise SessionRefusedError(RefusalCode.PROTOCOL, "HELLO twice")
        welcome = self._leadership.welcome(self, hello)
        self.member = Member(hello.uuid, hello.incarnation)
        self.stage = SessionStage.COMPARING
        self.link.send(encode(welcome))
        self.link.flush()

    def _begin(self, fetch: Fetch) -> None:
        if self.stage is not SessionStage.COMPARING:
            raise SessionRefusedError(RefusalCode.PROTOCOL, f"FETCH while {self.stage.value}")
        self._check_epoch(fetch.epoch)
        self.cursor = self._leadership.begin(self, fetch)
        self.stage = SessionStage.COPYING
        self._decoder.expected = FROM_FOLLOWER
        if fetch.wants_metadata:
            # DATA waits until the kernel has taken all of it: see Cursor.push.
            self._send_metadata(self._leadership.metadata_snapshot())

    def _send_metadata(self, snapshot: bytes) -> None:
        view = memoryview(snapshot)
        for at in range(0, len(view) or 1, METADATA_FRAME_BYTES):
            flags = Flags.LAST if at + METADATA_FRAME_BYTES >= len(view) else Flags.NONE
            part = view[at : at + METADATA_FRAME_BYTES]
            self.link.send(encode(Metadata(self._leadership.epoch, flags, part)))
        self.link.flush()

    def _ack(self, ack: Ack) -> None:
        self._check_copying(ack.epoch)
        cursor = self.cursor
        assert cursor is not None, "copying"
        if not cursor.acked <= ack.end <= cursor.next:
            raise SessionRefusedError(
                RefusalCode.PROTOCOL,
                f"ACK of {ack.end} behind {cursor.acked} or above {cursor.next}",
            )
        cursor.acked = ack.end
        cursor.durable = min(ack.durable_end, ack.end)

    def _distrusted(self, refuse: Refuse) -> None:
        """The follower takes no more; perhaps since what we sent is damaged here."""
        self._check_copying(refuse.epoch)
        assert self.cursor is not None, "copying"
        self._leadership.distrusted(self, self.cursor, refuse)
        self.stage = SessionStage.ENDED
        self.link.close()
        self._leadership.ended(self, None)

    def _check_copying(self, epoch: int) -> None:
        if self.stage is not SessionStage.COPYING:
            raise SessionRefusedError(RefusalCode.PROTOCOL, f"too early while {self.stage.value}")
        self._check_epoch(epoch)

    def _check_epoch(self, epoch: int) -> None:
        if epoch != self._leadership.epoch:
            raise SessionRefusedError(
                RefusalCode.STALE_EPOCH, f"epoch {epoch}, this is {self._leadership.epoch}"
            )
