"""Errors of the admin interface: what happened, and what to do about it."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from imago_broker.service.log_walk import NotReadableNowError
from imago_broker.shard_work.errors import AdminError
from imago_log.errors import DiskFullError, NotLeadingError, StoreClosedError
from imago_log.reading.remote import RemoteAwayError, RemoteMissError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["CURE_ROOM", "AdminError", "bad_request", "not_found", "of_store", "refuse_unknown"]


def bad_request(message: str, cure: str) -> AdminError:
    return AdminError(400, "bad_request", message, cure)


CURE_ROOM: Final = (
    "Add a shard (`imago up --shards`, or a broker with another broker.shard), or open one again"
    " (`imago shard undrain`)."
)
_LISTS: Final[Mapping[str, str]] = {
    "group": "imago group list",
    "metaq/transaction": "imago metaq transactions list",
    "quota": "imago user limits",
    "topic": "imago topic list",
    "user": "imago user list",
}
"""What shows the names there are of a kind of thing."""


def not_found(
    what: str, name: str, known: Iterable[str], where: str = "on this shard"
) -> AdminError:
    """A thing that is not there, with the nearest that is."""
    near = difflib.get_close_matches(name, list(known), n=1)
    listed = f"`{_LISTS[what]}`, or GET /admin/v1/{what}s"
    cure = f"Did you mean {near[0]!r}?" if near else f"List them: {listed}."
    return AdminError(404, f"{what}_not_found", f"There is no {what} {name!r} {where}.", cure)


def refuse_unknown(body: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raise for a key that nothing would read, with a suggestion."""
    names = list(known)
    for key in body:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(names)}."
            raise bad_request(f"Unknown key {key!r}.", hint)


_OF_STORE: Final[Mapping[type[Exception], tuple[str, str, str]]] = {
    NotLeadingError: (
        "not_master",
        "This broker has ceased to be the master of its shard: the call is carried out in part, or "
        "not at all.",
        "Repeat the call: the next master answers it.",
    ),
    StoreClosedError: (
        "stopping",
        "This broker stops: the call is carried out in part, or not at all.",
        "Repeat the call.",
    ),
    DiskFullError: (
        "disk_full",
        "The disk of this broker is full: the call is carried out in part, or not at all.",
        "Give it room, then repeat the call.",
    ),
    RemoteMissError: (
        "being_fetched",
        "The answer depends on old messages, which are being fetched from the bucket.",
        "Repeat the call in a moment.",
    ),
    RemoteAwayError: (
        "bucket_away",
        "The answer depends on old messages in the bucket, which does not answer now.",
        "Look at the bucket (`imago doctor`), then repeat the call.",
    ),
    NotReadableNowError: (
        "not_readable",
        "A part of this broker's log cannot be read now: what is wrong there is being looked at.",
        "Repeat the call.",
    ),
}
"""What it means to a caller that the log has not taken a change, or cannot be read."""


def of_store(error: Exception) -> AdminError | None:
    """Return the answer where the log does not serve for now; None: a fault."""
    said = _OF_STORE.get(type(error))
    return None if said is None else AdminError(503, *said)
