"""The keys under which MetaQ transactions are known: ``null``, ``TX:…`` and ``XID:…``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from imago_wire.errors import ProtocolError
from imago_wire.text.numbers import parse_i32

NO_TRANSACTION: Final = "null"
"""The key of RECOVER, which concerns no single transaction."""


@dataclass(frozen=True, slots=True)
class LocalTransactionKey:
    """``TX:<session id>:<number>``: belongs to one connection."""

    session_id: str
    number: int

    def __str__(self) -> str:
        return f"TX:{self.session_id}:{self.number}"


@dataclass(frozen=True, slots=True)
class XaTransactionKey:
    """``XID:<format id>:<gtrid hex>:<bqual hex>:<unique qualifier>``: global to the broker."""

    format_id: int
    global_id: bytes
    branch: bytes
    qualifier: str

    def __str__(self) -> str:
        return f"XID:{self.format_id}:{self.global_id.hex()}:{self.branch.hex()}:{self.qualifier}"


TransactionKey: TypeAlias = LocalTransactionKey | XaTransactionKey


def parse_transaction_key(text: str) -> TransactionKey | None:
    """Return the key; None for ``null``. ProtocolError: it is neither of the forms.

    Java's split drops empty parts at the end, so an empty number or qualifier is one part too few.
    Four-part XA keys (MetaQ before 1.4.5) are refused, as the original does since.
    """
    if text == NO_TRANSACTION:
        return None
    parts = text.rstrip(":").split(":")
    if parts[0] == "TX" and len(parts) == 3:
        return LocalTransactionKey(parts[1], parse_i32(parts[2]))
    if parts[0] == "XID" and len(parts) == 5 and not set(parts[4]) & set("\t\r\n "):
        try:
            global_id, branch = bytes.fromhex(parts[2]), bytes.fromhex(parts[3])
        except ValueError as error:
            what = "its ids are not hexadecimal"
            raise ProtocolError(f"transaction key {text[:64]!r}: {what}") from error
        return XaTransactionKey(parse_i32(parts[1]), global_id, branch, parts[4])
    raise ProtocolError(f"transaction key {text[:64]!r}")
