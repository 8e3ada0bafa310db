"""Records about users, as logs keep them and shards and members send them to each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from imago_broker.model.access.quotas import parse_subject, quotas_from_json
from imago_broker.model.access.users import User, name_problem, rules_from_json
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

USER_KIND: Final = "access-user"
RULES_KIND: Final = "access-rules"
SETTING_KIND: Final = "access-setting"
QUOTA_KIND: Final = "access-quota"
KINDS: Final = (USER_KIND, RULES_KIND, SETTING_KIND, QUOTA_KIND)
WHITE_ADDRESSES: Final = "white-addresses"

Record = list[Any]
"""One of KINDS, key, [milliseconds, shard] of its making, value; None: deleted."""
Change = list[Any]
"""One of KINDS, key, value (None: deleted), when the record was made that it replaces, or None."""


class AccessRecords(Protocol):
    """Where the records are: a store, or a copy of what one has."""

    @property
    def on_metadata(self) -> Signalled: ...

    def meta(self, kind: str) -> Mapping[str, Any]: ...

    def put_meta(self, changes: Sequence[tuple[str, str, Any]]) -> object: ...


class Signalled(Protocol):
    """Listeners to the keys of records that have changed."""

    def add(self, listener: Callable[[Iterable[tuple[str, str]]], None]) -> None: ...


def checked_record(record: Record) -> tuple[str, str, tuple[int, int], Any]:
    """Return the parts of a record from elsewhere. ValueError, KeyError, TypeError: it is none."""
    kind, key, made, value = record
    named = kind in (USER_KIND, RULES_KIND)
    if kind not in KINDS or (named and name_problem(key)):
        raise WrongError(f"no record about users: {kind!r:.40} {key!r:.80}")
    if kind == QUOTA_KIND:
        quotas_from_json(parse_subject(key), {} if value is None else value)
    if value is not None and kind == USER_KIND:
        User.from_json(key, value)
    elif value is not None and kind == RULES_KIND:
        rules_from_json(value)
    at_ms, shard = made
    return kind, key, (int(at_ms), int(shard)), value


def order_of(made: Sequence[int], value: Any) -> tuple[int, int, bytes]:
    """Return what is greater for the newer of two records about the same."""
    return made[0], made[1], orjson.dumps(value)
