"""What is done about an ImagoUser: by brokers, and to its Secret."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PutUser:
    """Make the user or change it: as PUT /admin/v1/users/{user} takes it."""

    body: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class WriteSecret:
    """Make the Secret for clients what it is to be."""

    data: Mapping[str, str] = field(repr=False)
    notes: Mapping[str, str] = field(default_factory=dict)
    issues: bool = False
    """Whether a new certificate and its key come in besides, with notes of their own."""


@dataclass(frozen=True, slots=True)
class IssueToken:
    """Have brokers make a token, and make the Secret for clients what it is to be, with it."""

    body: Mapping[str, Any]
    """As POST /admin/v1/users/{user}/tokens takes it."""
    data: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RevokeToken:
    """Have a token count no more."""

    number: str


@dataclass(frozen=True, slots=True)
class DeleteUser:
    """Delete the user: its next request is refused."""


BrokerAct = PutUser | IssueToken | RevokeToken | DeleteUser
UserAct = BrokerAct | WriteSecret
