"""One transaction of MetaQ's clients: its messages, its phases, how it ends. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

STAGED_PREFIX = "XID:1229799247:"
"""How the keys of staged batches begin: of XA, with a format that is ours alone."""
MESSAGE_COST = 256
"""What a message takes in memory beside its body and its topic's name."""


class MetaqOutcome(Enum):
    """How a transaction ended. The values stand in the log."""

    COMMITTED = "c"
    ROLLED_BACK = "r"
    HEURISTICALLY_COMMITTED = "C"
    HEURISTICALLY_ROLLED_BACK = "R"
    HEURISTICALLY_COMPLETED = "X"
    """A person has seen to it; nothing was put."""
    FORGOTTEN = "f"
    """Its producer knows of the decision that a person took."""

    @property
    def has_messages(self) -> bool:
        """Whether its messages are put."""
        return self in (MetaqOutcome.COMMITTED, MetaqOutcome.HEURISTICALLY_COMMITTED)

    @property
    def heuristic(self) -> bool:
        """Whether a person decided, which the producer has to be told."""
        return self in _HEURISTIC


_HEURISTIC = (
    MetaqOutcome.HEURISTICALLY_COMMITTED,
    MetaqOutcome.HEURISTICALLY_ROLLED_BACK,
    MetaqOutcome.HEURISTICALLY_COMPLETED,
)


class TransactionPhase(Enum):
    """What has become of a transaction so far."""

    OPEN = "open"
    PREPARING = "preparing"
    PREPARED = "prepared"
    ENDING = "ending"


class TransactionProblem(Enum):
    """Why a command is refused."""

    UNKNOWN = "unknown"
    LOCAL = "local"
    """It is for XA transactions alone."""
    PREPARED = "prepared"
    NOT_PREPARED = "not prepared"
    HEURISTIC = "heuristic"
    """A person has decided about it."""
    LIMIT = "limit"
    LOST = "lost"
    """The log has its messages no more, or their topic does not take them."""
    FAILED = "failed"
    """Nobody foresaw why."""


class MetaqTransactionError(Exception):
    """A command is refused."""

    def __init__(
        self, problem: TransactionProblem, detail: str = "", outcome: MetaqOutcome | None = None
    ) -> None:
        super().__init__(detail or problem.value)
        self.problem, self.detail, self.outcome = problem, detail, outcome


class TransactionMessage(NamedTuple):
    """A message of a transaction, as its put brought it."""

    topic: str
    partition: int
    flag: int
    body: bytes
    metaq_id: int
    born_ms: int
    born_host: bytes
    rows: int = 0
    """More than 0: the body is a batch of as many messages of RocketMQ's, see `staged_rows`."""
    properties: bytes | None = None
    """Of one of those; None: it is a message of MetaQ's."""

    @property
    def cost(self) -> int:
        """Bytes of memory, about."""
        return len(self.body) + len(self.topic) + MESSAGE_COST


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLimits:
    """How much may be open at once."""

    transactions_max: int
    per_owner_max: int
    """With one session id, or one unique qualifier."""
    per_user_max: int
    """Begun by one user, or from one address where nobody says who he is."""
    messages_max: int
    """In one transaction."""
    bytes_max: int
    """In one transaction."""
    total_bytes_max: int
    user_bytes_max: int
    """In those that one user has begun."""
    timeout_ms_max: int


@dataclass(slots=True, eq=False)
class MetaqTransaction:
    """One transaction that has not ended."""

    key: str
    owner: str
    """Session id of a local one, unique qualifier of an XA one."""
    xa: bool
    begun_ms: int
    """Epoch milliseconds."""
    user: str = ""
    """Who has begun it, and so whose share it is of; empty: it is of a former leader."""
    begun: int = 0
    """Its number among those that this leader began; 0: it is of a former one."""
    expires_ms: int | None = None
    phase: TransactionPhase = TransactionPhase.OPEN
    sessions: set[object] = field(default_factory=set)
    messages: list[TransactionMessage] = field(default_factory=list)
    """While it is open; then they are in the log."""
    topics: set[str] = field(default_factory=set)
    """Of those messages; empty: what a leader noted of it does not say."""
    size: int = 0
    number: int = 0
    """Of a prepared one, in the log: the id of its first message."""
    offset: int = -1
    """Of its first record among the prepared ones."""
    count: int = 0
    """How many messages it has."""
    log_end: int = 0
    """Behind its last record in the log."""
    outcome: MetaqOutcome | None = None
    """What is being written down."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Called when it is prepared, or could not be, and when it has ended, or could not."""
    gone: bool = False

    def resume(self) -> None:
        """Let those go on that waited for what was being written."""
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()
