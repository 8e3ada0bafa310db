"""Errors of the admin interface: what happened, and what to do about it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class AdminError(Exception):
    """An answer `{"error": code, "message": …, "cure": …}` with an HTTP status."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        cure: str,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.headers = headers
        self.status = status
        self.code = code
        self.message = message
        self.cure = cure

    def body(self) -> dict[str, str]:
        return {"error": self.code, "message": self.message, "cure": self.cure}


def bad_request(message: str, cure: str) -> AdminError:
    return AdminError(400, "bad_request", message, cure)


def not_found(what: str, name: str, known: Iterable[str]) -> AdminError:
    """A thing that is not there, with the nearest that is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    cure = f"Did you mean {near[0]!r}?" if near else f"List them: GET /admin/v1/{what}s."
    return AdminError(404, f"{what}_not_found", f"There is no {what} {name!r} on this shard.", cure)


def refuse_unknown(body: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise for a key that nothing would read, with a suggestion."""
    names = list(known)
    for key in body:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(names)}."
            raise bad_request(f"Unknown key {key!r}.", hint)
