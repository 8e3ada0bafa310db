"""A user's token: when brokers are to make another, and what a status says of it.

Its number is a part of it, and brokers show which numbers they have and until when. So the Secret
and what brokers show say together what is missing, whatever was cut short before. A token that was
made and never reached the Secret ends when the next is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from imago_operator.contents.certifying import renewed_at
from imago_operator.model import names
from imago_operator.model.state import parsed, written
from imago_operator.spec.user import UserToken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imago_operator.contents.values import IssuedToken, SeenToken, SeenUser
    from imago_operator.spec.user import UserSpec

TOKEN: Final = "token"  # noqa: S105  the name of an entry
NOTE: Final = f"{names.GROUP}/ImagoUser"
"""Beside the tokens that are the operator's; others are left alone."""
SETTLING: Final = timedelta(seconds=60)
"""So long a member may not know a token that was just made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLook:
    """What there is of a user's token."""

    spec: UserSpec
    secret: str
    """What the Secret has of it; empty: nothing."""
    told: UserToken | None
    """What the status says."""
    user: SeenUser | None
    """As brokers have it."""

    @property
    def number(self) -> str:
        """The number of the Secret's token; empty: it has none."""
        parts = self.secret.rsplit(".", 2)
        return parts[1] if len(parts) == 3 else ""

    @property
    def current(self) -> UserToken | None:
        """The Secret's token, if brokers have it, or had it made so recently that they may."""
        said = self.told if self.told is not None and self.told.number == self.number else None
        seen = next((one for one in ours(self.user) if one.number == self.number), None)
        if seen is None:
            return said
        ends = datetime.fromtimestamp(seen.expires_ms / 1000, UTC)
        since = ends - timedelta(seconds=self.spec.authentication.validity.seconds)
        issued = said.issued if said is not None else written(since)
        return UserToken(number=seen.number, issued=issued, not_after=written(ends))

    @property
    def is_known(self) -> bool:
        """Whether the broker that was asked has the Secret's token."""
        return any(one.number == self.number for one in ours(self.user))


def ours(user: SeenUser | None) -> Iterator[SeenToken]:
    """Yield the tokens that the operator had made."""
    return (one for one in (user.tokens if user else ()) if one.note == NOTE)


def is_due(look: TokenLook, *, ordered: bool, now: datetime) -> bool:
    """Whether another token is to be made; `ordered`: somebody wants one."""
    has = look.current
    if ordered or not look.number or has is None or renewed_at(has, look.spec) <= now:
        return True
    return not look.is_known and parsed(has.issued) + SETTLING <= now


def next_look(look: TokenLook) -> datetime | None:
    """Return when something is due about the token there is; None: there is none."""
    has = look.current
    if has is None:
        return None
    due = renewed_at(has, look.spec)
    return due if look.is_known else min(due, parsed(has.issued) + SETTLING)


def request_of(look: TokenLook, *, ordered: bool) -> dict[str, Any]:
    """Return what brokers are asked for: the token before goes on to count until it ends; after an
    order, which may be about one that somebody else has read, for `overlap`."""
    said = look.spec.authentication
    told = look.told.number if look.told is not None else ""
    body: dict[str, Any] = {
        "expiresSeconds": round(said.validity.seconds),
        "note": NOTE,
        "former": look.number or told,
    }
    return body | ({"formerSeconds": max(1, round(said.overlap.seconds))} if ordered else {})


def token_of(made: IssuedToken, now: datetime) -> UserToken:
    """Return what a status says of a new token."""
    ends = datetime.fromtimestamp(made.expires_ms / 1000, UTC)
    return UserToken(number=made.number, issued=written(now), not_after=written(ends))
