"""What a change of users, rules or quotas writes, and how the audit log tells it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import orjson

from imago_broker.errors import RequestError
from imago_broker.model.access.access import rules_problem
from imago_broker.model.access.quotas import (
    QUOTAS_MAX,
    SubjectKind,
    quotas_to_json,
    subject_of_user,
)
from imago_broker.model.access.users import ANONYMOUS, rules_to_json, user_problem
from imago_broker.service.access.access_records import QUOTA_KIND, RULES_KIND, USER_KIND

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from imago_broker.model.access.access import AccessRule
    from imago_broker.model.access.quotas import Quotas, QuotaSubject, QuotaTable
    from imago_broker.model.access.users import User

audit = logging.getLogger("imago.audit")

USERS_MAX: Final = 10_000


class Actor(NamedTuple):
    """Who changes something, and from where: for the audit log."""

    name: str
    address: str


class Accounts(Protocol):
    """All users, their rules and limits."""

    @property
    def users(self) -> Mapping[str, User]: ...

    @property
    def rules(self) -> Mapping[str, tuple[AccessRule, ...]]: ...

    @property
    def quota_table(self) -> QuotaTable: ...


class AccountEdit(NamedTuple):
    """What somebody changes: how the audit log tells it, and the records that it makes."""

    what: str
    before: object
    after: object
    changes: list[tuple[str, str, Any]]
    """One of KINDS, key, value (None: deleted)."""


def edit_user(accounts: Accounts, user: User) -> AccountEdit:
    """Make or change a user. RequestError: there cannot be such a one."""
    if problem := user_problem(user):
        raise RequestError(problem)
    if user.name == ANONYMOUS:
        raise RequestError(f"{ANONYMOUS} is every client without credentials: it has rules alone")
    if user.name not in accounts.users and len(accounts.users) >= USERS_MAX:
        raise RequestError(f"there are {USERS_MAX} users already, which is the limit")
    old = accounts.users.get(user.name)
    said = "" if old is None or _secrets(old) == _secrets(user) else " with new credentials"
    # Nobody inherits what is left of somebody else of that name: another shard may have some.
    made = [] if old is not None else nothing_of(user.name)
    if old != user:
        made.append((USER_KIND, user.name, user.to_json()))
    return AccountEdit(f"user {user.name}{said}", old and old.shown(), user.shown(), made)


def edit_rules(accounts: Accounts, name: str, rules: Sequence[AccessRule]) -> AccountEdit:
    """Give a user, which may be made with it, these rules. RequestError: they cannot be."""
    if problem := rules_problem(rules):
        raise RequestError(problem)
    is_known = name == ANONYMOUS or name in accounts.users
    old = accounts.rules.get(name, ()) if is_known else ()
    value = rules_to_json(rules)
    made = [(RULES_KIND, name, value or None)] if tuple(rules) != old else []
    return AccountEdit(f"rules of {name}", rules_to_json(old), value, made)


def edit_quotas(accounts: Accounts, subject: QuotaSubject, quotas: Quotas) -> AccountEdit:
    """Limit a subject, which may be made with it, to this. RequestError: it cannot be."""
    key, value = str(subject), quotas_to_json(quotas)
    known = accounts.quota_table.quotas
    if quotas and subject not in known and len(known) >= QUOTAS_MAX:
        raise RequestError(f"{QUOTAS_MAX} subjects have quotas already, which is the limit")
    is_known = subject.kind is not SubjectKind.USER or subject.name in {ANONYMOUS, *accounts.users}
    old = known.get(subject, {}) if is_known else {}
    made = [(QUOTA_KIND, key, value or None)] if dict(quotas) != dict(old) else []
    return AccountEdit(f"quotas of {key}", quotas_to_json(old), value, made)


def nothing_of(name: str) -> list[tuple[str, str, Any]]:
    """Return the deletions of rules and limits of a name, whether or not they are known here."""
    return [(RULES_KIND, name, None), (QUOTA_KIND, str(subject_of_user(name)), None)]


def left_of(accounts: Accounts, name: str) -> list[tuple[str, str, Any]]:
    """Return the deletions of the rules and limits that there are of a name."""
    known = (name in accounts.rules, subject_of_user(name) in accounts.quota_table.quotas)
    return [gone for gone, is_known in zip(nothing_of(name), known, strict=True) if is_known]


def tell_audit(by: Actor, what: str, old: object, new: object) -> None:
    """Write a line of the audit log."""
    told = [orjson.dumps(each).decode() for each in (old, new)]
    audit.info("%s by %s from %s: %s -> %s", what, by.name, by.address, *told)


def _secrets(user: User) -> tuple[str, str, tuple[str, ...]]:
    return user.secret, user.hashed, tuple(token.hashed for token in user.tokens)
