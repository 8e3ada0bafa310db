"""Changes of users that a member which does not lead asks its master for.

The member has decided by its own copy of the log, which may be behind. So a draft says what it was
decided by: the master makes the changes only if it has the very same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from imago_broker.errors import RequestError
from imago_broker.service.access.access_edits import left_of
from imago_broker.service.access.access_records import RULES_KIND, USER_KIND, checked_record
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_broker.service.access.access import AccessService
    from imago_broker.service.access.access_records import Change


class Drafts(NamedTuple):
    """What somebody wants changed."""

    by: str | None
    """The user who asks; None: nobody was asked who that is."""
    version: str
    """`version_of` that user, where it was decided."""
    changes: list[Change]

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Drafts:
        """Return what a member has sent. KeyError, TypeError, ValueError: it is none."""
        by, changes = body["by"], body["changes"]
        if not (by is None or isinstance(by, str)) or not isinstance(changes, list):
            raise WrongError("no drafts")
        if any(not isinstance(each, list) or len(each) != 4 for each in changes):
            raise WrongError("no changes")
        return cls(by, str(body["version"]), changes)


def version_of(access: AccessService, name: str | None) -> str:
    """Return which records decide what a user may: a master that has others decides again."""
    if name is None:
        return ""
    made = (access.made(kind, name) for kind in (USER_KIND, RULES_KIND))
    return ",".join("-" if one is None else ".".join(map(str, one)) for one in made)


def take_drafts(access: AccessService, drafts: Drafts) -> None:
    """Make changes that a member has drafted. RequestError: it did not know what is known here."""
    if drafts.version != version_of(access, drafts.by):
        raise RequestError(f"user {drafts.by} was changed meanwhile")
    changes = []
    for kind, key, value, base in drafts.changes:
        if base != access.made(kind, key):
            raise RequestError(f"{kind} {key} was changed meanwhile")
        checked_record([kind, key, base or [0, access.shard], value])
        changes.append((kind, key, value))
    access.write(changes)


def delete_left(access: AccessService, name: str) -> bool:
    """Delete rules and limits of a user that is gone; False where there are none."""
    left = [] if name in access.users else left_of(access, name)
    if left:
        access.write(left)
    return bool(left)


def came_from_elsewhere(access: AccessService, kind: str, key: str) -> bool:
    """Whether a record, or that it is gone, was made by another shard."""
    made = access.made(kind, key)
    return made is not None and made[1] != access.shard
