"""Accounts of RocketMQ 4.9's plain access control as users with rules.

What an account may do with a topic or group is its own permission for that name, or else its
default one; a permission that is not given is DENY. An `admin` without permissions may do
everything. Every account may look at the cluster, as at the original.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from imago_broker.model.access.access import AccessKind, AccessRule, Operation, Resource
from imago_broker.model.access.users import User
from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SIZE_MIN: Final = 6
"""Of access keys and secret keys."""
_PUB: Final = frozenset({Operation.PUBLISH, Operation.DESCRIBE})
_SUB: Final = frozenset({Operation.SUBSCRIBE, Operation.DESCRIBE})
_BOTH: Final = _PUB | _SUB
_PERMISSIONS: Final = {
    "DENY": frozenset[Operation](),
    "PUB": _PUB,
    "SUB": _SUB,
    "PUB|SUB": _BOTH,
    "SUB|PUB": _BOTH,
}
_LOOK: Final = AccessRule(
    Resource(AccessKind.CLUSTER), frozenset({Operation.DESCRIBE, Operation.LIST})
)
_ANY_TOPIC: Final = Resource(AccessKind.TOPIC, "", prefix=True)
_ANY_GROUP: Final = Resource(AccessKind.GROUP, "", prefix=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a tool or `plain_acl.yml` says of an account; None: nothing, as it was."""

    access_key: str
    secret_key: str | None = None
    white_addresses: str | None = None
    admin: bool | None = None
    default_topic: str | None = None
    default_group: str | None = None
    topics: Sequence[str] | None = None
    """`name=PERMISSION` each."""
    groups: Sequence[str] | None = None


def account_user(account: Account, old: User | None) -> User:
    """Return the account's user. ValueError: there cannot be one."""
    user = old or User(name=account.access_key)
    if len(account.access_key) < SIZE_MIN:
        raise WrongError(f"accessKey: at least {SIZE_MIN} characters")
    if account.secret_key is not None:
        if len(account.secret_key) < SIZE_MIN:
            raise WrongError(f"secretKey: at least {SIZE_MIN} characters")
        user = user.with_secret(account.secret_key)
    if not user.secret:
        raise WrongError("secretKey: a new account needs one")
    if account.white_addresses is not None:
        user = replace(user, white_addresses=account.white_addresses)
    if account.admin is not None:
        user = replace(user, is_super=account.admin)
    return user


def account_rules(account: Account, old: Iterable[AccessRule]) -> list[AccessRule]:
    """Return the rules of the account's user. ValueError names a permission that is none."""
    kept: dict[Resource, list[AccessRule]] = {}
    for rule in old:
        kept.setdefault(rule.resource, []).append(rule)
    kept[_LOOK.resource] = [_LOOK]
    for every, default, own in (
        (_ANY_TOPIC, account.default_topic, account.topics),
        (_ANY_GROUP, account.default_group, account.groups),
    ):
        if default is not None:
            kept[every] = _rules(every, default)
        if own is not None:
            kept = {r: rules for r, rules in kept.items() if r.kind is not every.kind or r == every}
            for entry in own:
                name, _, permission = entry.partition("=")
                resource = Resource(every.kind, name.strip())
                kept[resource] = _rules(resource, permission)
    return [rule for rules in kept.values() for rule in rules]


def _rules(resource: Resource, permission: str) -> list[AccessRule]:
    """A permission for a name stands alone: what it does not allow, the default does not either."""
    given = "".join(permission.upper().split())
    if given not in _PERMISSIONS:
        raise WrongError(f"{permission!a:.40}: must be DENY, PUB, SUB or PUB|SUB")
    allowed = _PERMISSIONS[given]
    rules = [AccessRule(resource, allowed)] if allowed else []
    if denied := _BOTH - allowed:
        rules.append(AccessRule(resource, denied, allow=False))
    return rules
