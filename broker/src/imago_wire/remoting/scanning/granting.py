"""What users may do, as the fast paths look it up: decided already, or when it is first asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

try:
    from _hashlib import hmac_new
except ImportError:  # an interpreter without OpenSSL
    from hmac import new as hmac_new  # type: ignore[assignment]


class Keyed(Protocol):
    """A digest that began with a secret: each request goes into a copy of it."""

    def copy(self) -> Keyed: ...
    def update(self, text: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


def keyed_digest(secret: bytes) -> Keyed:
    """Return the beginning of all signatures with a secret."""
    keyed: Keyed = hmac_new(secret, b"", "sha1")
    return keyed


class UserGrants(NamedTuple):
    """What one user may do from one address."""

    secret: bytes | None
    """With which its requests are signed; None: they need no signature."""
    publish: dict[str, bool]
    """Whether it may send to a topic."""
    consume: dict[tuple[str, str], bool]
    """Whether it may read a topic in a group."""
    keyed: Keyed | None = None
    """The digest that begins with the secret; None where there is none."""
    tag: str = ""
    """What tells its idempotent producers from others' of the same ids."""

    @classmethod
    def signing(
        cls,
        secret: bytes,
        publish: dict[str, bool],
        consume: dict[tuple[str, str], bool],
        tag: str = "",
    ) -> UserGrants:
        """Return those of a user who signs."""
        return cls(secret, publish, consume, keyed_digest(secret), tag)


Grants: TypeAlias = Mapping[str, UserGrants | None]
"""By access key, "" where a request has none; None: it is to be refused, or needs a closer look.

All of these mappings have every key: what is not there yet is decided when it is asked for.
"""
