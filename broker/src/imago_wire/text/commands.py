"""MetaQ's eleven commands, Imago's `auth`, and two responses as values; `line.py` parses lines.

Numbers that a peer may leave out are None, so that encoding gives the same bytes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

OPAQUE_DEFAULT: Final = 2147483647
"""The request number in the answer to a ``version`` or ``stats`` that came without one."""

CHECKSUM_NONE: Final = -1
"""A checksum of this value on the wire means that there is none."""

PARTITION_ANY: Final = -1
"""In a put: the broker chooses."""

OFFSET_END: Final = 9223372036854775807
"""In a get or offset: beyond every end, to be told the end."""


class TransactionType(Enum):
    """What a ``transaction`` command asks for."""

    BEGIN = "BEGIN"
    PREPARE = "PREPARE"
    COMMIT_ONE_PHASE = "COMMIT_ONE_PHASE"
    COMMIT_TWO_PHASE = "COMMIT_TWO_PHASE"
    ROLLBACK = "ROLLBACK"
    RECOVER = "RECOVER"
    FORGET = "FORGET"
    END = "END"


@dataclass(frozen=True, slots=True)
class Put:
    """Store a message. Partition -1: the broker chooses."""

    topic: str
    partition: int
    flag: int
    body: bytes
    opaque: int
    checksum: int | None = None
    """None: the form up to 1.4.3, which has no place for it."""
    transaction: str | None = None


@dataclass(frozen=True, slots=True)
class Get:
    """Fetch up to max_size bytes of stored messages from a byte offset on."""

    topic: str
    group: str
    partition: int
    offset: int
    max_size: int
    opaque: int


@dataclass(frozen=True, slots=True)
class Offset:
    """Ask for a safe offset near the given one."""

    topic: str
    group: str
    partition: int
    offset: int
    opaque: int


@dataclass(frozen=True, slots=True)
class Version:
    """Ask for the broker's version: also the heartbeat."""

    opaque: int | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Ask for statistics; the empty item is the broker's own."""

    item: str = ""
    opaque: int | None = None


@dataclass(frozen=True, slots=True)
class Quit:
    """Close the connection once what is queued has been sent. Has no answer."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """Begin, prepare, end … a local or an XA transaction."""

    key: str
    """``null``, ``TX:…`` or ``XID:…``, checked by transaction_key.parse_transaction_key."""
    session_id: str
    type: TransactionType
    opaque: int
    timeout_s: int | None = None
    qualifier: str | None = None


@dataclass(frozen=True, slots=True)
class Sync:
    """A put that a master forwards to its slave, with the id that it chose."""

    topic: str
    partition: int
    flag: int
    message_id: int
    body: bytes
    opaque: int
    checksum: int | None = None


@dataclass(frozen=True, slots=True)
class Auth:
    """Say who the client is, twice: with a nonce, then with a proof. See `handshake.py`."""

    user: str
    token: str
    opaque: int


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to everything but a successful get."""

    code: int
    body: bytes
    opaque: int

    @property
    def text(self) -> str:
        """The body as text; bytes that are no UTF-8 become U+FFFD."""
        return self.body.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Value:
    """The answer to a successful get: stored messages, the last of which may be cut."""

    body: bytes
    opaque: int


Request: TypeAlias = Put | Get | Offset | Version | Stats | Quit | Transaction | Sync | Auth
Response: TypeAlias = Result | Value
Command: TypeAlias = Request | Response
