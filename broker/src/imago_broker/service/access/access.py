"""Users and their rights: records of the log, the same on every shard.

Each shard's log has all of them, so that every broker decides by itself. A record carries when and
where it was made; of two about the same user the newer one holds, whichever order they arrive in,
and what is deleted leaves a record too. So the shards agree once each has seen what the others have
(`imago_broker.shard_work.access_spreading` sees to it).
"""

from __future__ import annotations

import hashlib
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import orjson

from imago_broker.errors import RequestError
from imago_broker.model.access.access import (
    EVERYTHING,
    NOTHING,
    AccessKind,
    AccessRule,
    Operation,
    Resource,
    Rights,
)
from imago_broker.model.access.quotas import (
    NO_QUOTAS,
    QuotaTable,
    SubjectKind,
    parse_subject,
    quotas_from_json,
    subject_of_user,
)
from imago_broker.model.access.users import (
    ANONYMOUS,
    MEMBER,
    User,
    rules_from_json,
)
from imago_broker.model.access.white_addresses import is_listed, list_problem
from imago_broker.service.access.access_edits import (
    AccountEdit,
    Actor,
    edit_quotas,
    edit_rules,
    edit_user,
    nothing_of,
    tell_audit,
)
from imago_broker.service.access.access_records import (
    KINDS,
    QUOTA_KIND,
    SETTING_KIND,
    USER_KIND,
    WHITE_ADDRESSES,
    checked_record,
    order_of,
)
from imago_broker.service.access.awaited_users import AwaitedUsers
from imago_broker.service.access.denials import DenialLog
from imago_broker.service.access.outdated_users import OutdatedUsers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from imago_broker.model.access.access import Need
    from imago_broker.model.access.quotas import Quotas, QuotaSubject
    from imago_broker.ports import Clock
    from imago_broker.service.access.access_records import AccessRecords, Change, Record

logger = logging.getLogger(__name__)


_RIGHTS_OF_MEMBERS: Final = Rights(
    [
        AccessRule(Resource(AccessKind.CLUSTER), frozenset({Operation.DESCRIBE})),
        *(
            AccessRule(Resource(kind, prefix=True), frozenset({Operation.SUBSCRIBE}))
            for kind in (AccessKind.TOPIC, AccessKind.GROUP)
        ),
    ]
)
"""What brokers ask each other over clients' ports: who leads, and for the messages and offsets of
static topics, which they hand to whoever may have them."""


class AccessService:
    """All users, rules and lists; decisions are those of the user's `Rights`."""

    def __init__(
        self, store: AccessRecords, *, clock: Clock, shard: int, audit: bool = False
    ) -> None:
        """`audit`: what would be refused to clients is served, and noted."""
        self._store, self._clock, self.shard = store, clock, shard
        self.users: dict[str, User] = {}
        """Change it through the methods alone."""
        self.rules: dict[str, tuple[AccessRule, ...]] = {}
        self.white_addresses: tuple[str, ...] = ()
        """Addresses in RocketMQ 4.9's form whose requests are not checked."""
        self.quota_table = NO_QUOTAS
        """What users, topics and groups are limited to."""
        self.version = 0
        """Grows with every change: what somebody has remembered ends there."""
        self.changed_ms = 0
        """When the newest of the records was made."""
        self.awaited = AwaitedUsers(clock)
        """Whether there may be more users than are known here."""
        self.outdated = OutdatedUsers(clock, lambda: self._changed(()))
        """Whether users may be known here as they no longer are."""
        self.awaited.copy_lacks.append(lambda: [why] if (why := self.outdated.why) else [])
        self.denials = DenialLog(clock, audit=audit)
        """Of requests that were refused, on all ports."""
        self.on_change: list[Callable[[], None]] = []
        """Called after each change, on whichever member it was made."""
        self._draft: list[Change] | None = None
        self._digest = (-1, "")
        self._rights: dict[str, Rights] = {}
        self._quotas: dict[str, tuple[QuotaSubject, Quotas]] = {}
        self._read_all()
        store.on_metadata.add(self._refresh)

    def rights_of(self, name: str) -> Rights:
        """Return what a user may do; nothing, where there is none of the name or it is disabled."""
        rights = self._rights.get(name)
        if rights is None:
            rights = self._rights[name] = self._compiled(name)
        return rights

    def may(self, user: str | None, need: Need, address: str) -> bool:
        """Whether whose request came from there may do this; None: it was not checked."""
        if user is None or self.denials.serves_without((need,)) or self.is_white(address):
            return True
        known = self.users.get(user)
        listed = known.white_addresses if known is not None and known.enabled else ""
        return bool(listed and is_listed(address, (listed,))) or self.rights_of(user).meets(
            need, address
        )

    def signing_keys(self, user: User) -> tuple[str, ...]:
        """Return the keys that a user's requests may be signed with now."""
        return user.signing_keys(self._clock.epoch_ms() if user.former_secret else 0)

    def is_white(self, address: str) -> bool:
        """Whether requests from an address are not checked at all."""
        return bool(self.white_addresses) and is_listed(address, self.white_addresses)

    @property
    def open_to_anonymous(self) -> bool:
        """Whether there are rules for those without credentials."""
        return bool(self.rules.get(ANONYMOUS))

    def put_user(self, user: User, by: Actor) -> None:
        """Make or change a user. RequestError: there cannot be such a one."""
        self._make(by, edit_user(self, user))

    def put_account(
        self, user: User, rules: Sequence[AccessRule], by: Actor, quotas: Quotas | None = None
    ) -> None:
        """Make or change a user, its rules and, unless None, its quotas: at once, or nothing."""
        limits = [] if quotas is None else [edit_quotas(self, subject_of_user(user.name), quotas)]
        self._make(by, edit_user(self, user), *limits, edit_rules(self, user.name, rules))

    def delete_user(self, name: str, by: Actor) -> bool:
        """Delete a user and its rules; False where there is none."""
        old = self.users.get(name)
        if old is None:
            return False
        gone = [(USER_KIND, name, None), *nothing_of(name)]
        self._make(by, AccountEdit(f"user {name}", old.shown(), None, gone))
        return True

    def set_rules(
        self, name: str, rules: Sequence[AccessRule], by: Actor, quotas: Quotas | None = None
    ) -> None:
        """Give a user these rules and, unless None, these quotas. RequestError: they cannot be."""
        if name != ANONYMOUS and name not in self.users:
            raise RequestError(f"there is no user {name}")
        limits = [] if quotas is None else [edit_quotas(self, subject_of_user(name), quotas)]
        self._make(by, *limits, edit_rules(self, name, rules))

    def set_white_addresses(self, addresses: Sequence[str], by: Actor) -> None:
        """Check requests from these addresses no more, and all others. RequestError: no list."""
        if problem := list_problem(addresses):
            raise RequestError(problem)
        old = self.white_addresses
        if tuple(addresses) != old:
            made = [(SETTING_KIND, WHITE_ADDRESSES, list(addresses) or None)]
            self._make(by, AccountEdit("white addresses", list(old), list(addresses), made))

    def set_quotas(self, subject: QuotaSubject, quotas: Quotas, by: Actor) -> None:
        """Limit a subject to this instead of what it was. RequestError: it cannot be."""
        user = subject.name
        if quotas and subject.kind is SubjectKind.USER and user not in {ANONYMOUS, *self.users}:
            raise RequestError(f"there is no user {user}")
        self._make(by, edit_quotas(self, subject, quotas))

    def _make(self, by: Actor, *edits: AccountEdit) -> None:
        """Make all changes in one record of the log, if only the last edit is a large one.

        Of two changes of one record the later one counts, in its place.
        """
        edits = tuple(edit for edit in edits if edit.changes)
        made: dict[tuple[str, str], tuple[str, str, Any]] = {}
        for change in (change for edit in edits for change in edit.changes):
            made.pop(change[:2], None)
            made[change[:2]] = change
        if made:
            self.write(list(made.values()))
        for edit in edits:
            what = edit.what if self._draft is None else f"asked of the master: {edit.what}"
            tell_audit(by, what, edit.before, edit.after)

    @contextmanager
    def drafting(self) -> Iterator[list[Change]]:
        """Have changes made here only as drafts for the master, who alone writes the log."""
        drafted: list[Change] = []
        self._draft = drafted
        try:
            yield drafted
        finally:
            self._draft = None

    def records(self) -> list[Record]:
        """Return everything as other shards take it over, what is deleted included."""
        return [
            [kind, key, value["made"], value["value"]]
            for kind in KINDS
            for key, value in sorted(self._store.meta(kind).items())
        ]

    def digest(self) -> str:
        """Return what is the same on two shards whose records are."""
        if self._digest[0] != self.version:
            made = [record[:3] for record in self.records()]
            self._digest = self.version, hashlib.sha256(orjson.dumps(made)).hexdigest()
        return self._digest[1]

    def merge(self, records: Iterable[Record]) -> int:
        """Take over what is newer of another shard's; return how many. ValueError: no records."""
        newer = []
        for record in records:
            kind, key, made, value = checked_record(record)
            known = self._store.meta(kind).get(key)
            if known is None or order_of(made, value) > order_of(known["made"], known["value"]):
                newer.append((kind, key, {"made": list(made), "value": value}))
        if newer:
            self._store.put_meta(newer)
            self._changed((kind, key) for kind, key, _ in newer)
        return len(newer)

    def made(self, kind: str, key: str) -> list[int] | None:
        """Return when a record, or that it is gone, was made, and by which shard; None: never."""
        known = self._store.meta(kind).get(key)
        return None if known is None else list(known["made"])

    def write(self, changes: Sequence[tuple[str, str, Any]]) -> None:
        """Make records of a kind and a key; None: it is deleted."""
        rows = []
        if self._draft is not None:
            for kind, key, value in changes:
                self._draft.append([kind, key, value, self.made(kind, key)])
            return
        for kind, key, value in changes:
            known = self._store.meta(kind).get(key)
            at_ms = max(self._clock.epoch_ms(), known["made"][0] + 1 if known else 0)
            rows.append((kind, key, {"made": [at_ms, self.shard], "value": value}))
        self._store.put_meta(rows)
        self._changed((kind, key) for kind, key, _ in rows)

    def _changed(self, changed: Iterable[tuple[str, str]]) -> None:
        for kind, key in changed:
            self._read(kind, key, self._store.meta(kind).get(key))
        self.quota_table = QuotaTable(dict(self._quotas.values()))
        self.version += 1
        self._rights.clear()
        for told in self.on_change:
            told()

    def _refresh(self, changed: Iterable[tuple[str, str]]) -> None:
        """Follow what the leader's log, or a cut of ours, says."""
        own = [(kind, key) for kind, key in changed if kind in KINDS]
        if own:
            self._changed(own)

    def _read_all(self) -> None:
        for kind in KINDS:
            for key, value in self._store.meta(kind).items():
                self._read(kind, key, value)
        self.quota_table = QuotaTable(dict(self._quotas.values()))

    def _read(self, kind: str, key: str, record: Mapping[str, Any] | None) -> None:
        value = record["value"] if record is not None else None
        try:
            self._take(kind, key, value)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # One that cannot be read must not keep a broker from starting: it allows nothing.
            logger.warning("access_unreadable kind=%s key=%r error=%s", kind, key, error)
            self._take(kind, key, None)
        if record is not None:
            self.changed_ms = max(self.changed_ms, int(record["made"][0]))

    def _take(self, kind: str, key: str, value: Any) -> None:
        if kind == SETTING_KIND:
            self.white_addresses = tuple(map(str, value or ()))
        elif kind == QUOTA_KIND:
            self._quotas.pop(key, None)
            if value is not None:
                subject = parse_subject(key)
                self._quotas[key] = (subject, quotas_from_json(subject, value))
        elif kind == USER_KIND:
            if value is None:
                self.users.pop(key, None)
            else:
                self.users[key] = User.from_json(key, value)
        elif value is None:
            self.rules.pop(key, None)
        else:
            self.rules[key] = rules_from_json(value)

    def _compiled(self, name: str) -> Rights:
        if name == MEMBER:
            return _RIGHTS_OF_MEMBERS
        user, rules = self.users.get(name), self.rules.get(name, ())
        if name != ANONYMOUS and (user is None or not user.enabled):
            return NOTHING
        if user is not None and user.is_super:
            return EVERYTHING
        return Rights(rules) if rules else NOTHING
