"""Commands of MetaQ's transactions, local and XA, and what their answers mean: for both faces."""

from __future__ import annotations

import itertools
import re
import socket
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from imago_client.errors import AnswerError, UsageError
from imago_client.metaq.values import MetaqError, put_command, result_text
from imago_wire.text.commands import Put, Transaction, TransactionType
from imago_wire.text.transaction_key import (
    NO_TRANSACTION,
    LocalTransactionKey,
    XaTransactionKey,
    parse_transaction_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from imago_wire.text.commands import Response

XID_PART_BYTES_MAX: Final = 64
"""Of a transaction's global id and of a branch: what XA allows."""
_XA_TEXT: Final = re.compile(r"XAException:code=(-?\d+),msg=(.*)", re.DOTALL)
_WORD: Final = re.compile(r"[^:\s]+")
_PREPARED: Final = {"0": True, "3": False}
_numbers = itertools.count(1)


class XaError(MetaqError):
    """The broker refused a step of an XA transaction; `xa_code` is the XA specification's."""

    def __init__(self, address: str, status: int, text: str, xa_code: int) -> None:
        super().__init__(address, status, text)
        self.xa_code = xa_code


@dataclass(frozen=True, slots=True)
class Xid:
    """The name of an XA transaction's branch, as its transaction manager gives it."""

    global_id: bytes
    branch: bytes = b"\0"
    format_id: int = 1

    def __post_init__(self) -> None:
        for name in ("global_id", "branch"):
            size = len(getattr(self, name))
            if not 0 < size <= XID_PART_BYTES_MAX:
                raise UsageError(f"{name}: {size} bytes, must be 1 to {XID_PART_BYTES_MAX}")


class TransactionSteps:
    """The commands of one transaction, or of one resource that recovers several."""

    def __init__(self, key: str, session_id: str, qualifier: str | None = None) -> None:
        self.key, self._session_id, self._qualifier = key, session_id, qualifier

    @classmethod
    def local(cls) -> TransactionSteps:
        """Name a new local transaction of this process."""
        host = socket.gethostname().replace(":", "-").replace(" ", "-") or "localhost"
        session_id = f"{host}-{time.time_ns() // 1_000_000}-{next(_numbers)}"
        return cls(str(LocalTransactionKey(session_id, 1)), session_id)

    @classmethod
    def xa(cls, xid: Xid | None, qualifier: str) -> TransactionSteps:
        """Name a branch; None: RECOVER's, which is about no single one."""
        if not _WORD.fullmatch(qualifier):
            raise UsageError(f"qualifier {qualifier!r}: must be a word, without colons")
        key = NO_TRANSACTION
        if xid is not None:
            key = str(XaTransactionKey(xid.format_id, xid.global_id, xid.branch, qualifier))
        return cls(key, qualifier, qualifier)

    def step(self, kind: TransactionType, timeout_s: int = 0) -> Callable[[int], Transaction]:
        """Return what makes a command of a request number."""
        if timeout_s < 0:
            raise UsageError(f"timeout_s: {timeout_s}, must be 0 (none) or above")
        return partial(self._command, kind, timeout_s or None)

    def put(
        self, topic: str, payload: bytes, attribute: str | None, partition: int
    ) -> Callable[[int], Put]:
        """Return what makes a put of a request number."""

        def make(opaque: int) -> Put:
            put = put_command(topic, payload, attribute, partition, opaque)
            return Put(put.topic, put.partition, put.flag, put.body, opaque, put.checksum, self.key)

        return make

    def _command(self, kind: TransactionType, timeout_s: int | None, opaque: int) -> Transaction:
        # A qualifier of digits alone would be taken for a timeout where none is given.
        timeout_s = timeout_s if timeout_s or self._qualifier is None else 0
        return Transaction(self.key, self._session_id, kind, opaque, timeout_s, self._qualifier)


def read_step(address: str, answer: Response) -> str:
    """Return a step's text. XaError, MetaqError: it was refused."""
    try:
        return result_text(address, answer)
    except MetaqError as error:
        found = _XA_TEXT.fullmatch(error.text)
        if found is None:
            raise
        raise XaError(address, error.status, found[2], int(found[1])) from error


def read_prepared(address: str, answer: Response) -> bool:
    """Return whether a branch is prepared; False: it had no messages, and is over."""
    text = read_step(address, answer)
    if text not in _PREPARED:
        raise AnswerError(address, f"prepare answered {text[:80]!r}")
    return _PREPARED[text]


def read_recovered(address: str, answer: Response) -> list[Xid]:
    """Return the branches that a broker tells."""
    found = []
    for word in read_step(address, answer).split("\r\n"):
        key = parse_transaction_key(word) if word else None
        if isinstance(key, XaTransactionKey):
            found.append(Xid(key.global_id, key.branch, key.format_id))
    return found
