"""Plan and status of an ImagoUser: a pure function of what was seen.

A password that the operator makes up is in the Secret before brokers know it, under a name of its
own, and takes its place there once they do; the one before goes on to count for `overlap`. So
whatever is cut short goes on from what is there, and at no time does a client read a password that
brokers refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from imago_operator.certificates.state import CERTIFICATE, KEY
from imago_operator.contents import certifying, tokens
from imago_operator.contents.certifying import CertificateNeed
from imago_operator.contents.claiming import ClaimLook, ClaimPlan, held, still
from imago_operator.contents.conditions import ContentRefusal, conditions, holds, ready
from imago_operator.contents.leaving import leave
from imago_operator.contents.tokens import TOKEN, TokenLook
from imago_operator.contents.user_acts import (
    DeleteUser,
    IssueToken,
    PutUser,
    RevokeToken,
    UserAct,
    WriteSecret,
)
from imago_operator.model import names
from imago_operator.model.desired import fingerprint
from imago_operator.model.state import parsed, written
from imago_operator.spec.schema.fields import to_json
from imago_operator.spec.user import (
    ANONYMOUS,
    AclOperation,
    AuthenticationType,
    Binding,
    PatternType,
    ResourceType,
    UserStatus,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imago_operator.contents.certifying import UserSigner
    from imago_operator.contents.values import SeenSecret, SeenUser
    from imago_operator.model.state import ConditionFinding
    from imago_operator.spec.user import Acl, UserSpec, UserToken

PASSWORD: Final = "password"  # noqa: S105  names of entries
NEXT: Final = "password.next"
"""Entry of a Secret with the password that brokers are being told."""
USERNAME: Final = "username"
CA: Final = "ca.crt"
CHANGING: Final = (PASSWORD, NEXT, USERNAME, CA, CERTIFICATE, KEY, TOKEN)
"""Entries of ours that go away again; what somebody adds beside ours stays."""
EVERY_OPERATION: Final = tuple(sorted(o.value for o in AclOperation if o is not AclOperation.ALL))


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLook(ClaimLook["UserSpec", UserStatus]):
    """One look at an ImagoUser."""

    status: UserStatus = field(default_factory=UserStatus)
    user: SeenUser | None = None
    """As brokers have it."""
    secret: SeenSecret | None = None
    """The Secret for clients."""
    given: str | None = field(default=None, repr=False)
    """The password of `passwordSecretRef`; None: there is none."""
    is_super: bool = False
    """Whether the cluster lists it among its super users."""
    checked: bool = True
    """Whether the cluster's brokers check rights at all."""
    connection: Mapping[str, str] = field(default_factory=dict)
    """Entries of the Secret that say where the cluster is."""
    signer: UserSigner | None = None
    """Who signs for users with certificates."""
    unsigned: str = ""
    """Why nobody does."""

    @property
    def secret_name(self) -> str:
        return self.spec.secret_name or self.me.name

    @property
    def signs(self) -> bool:
        return self.spec.authentication.type is AuthenticationType.PASSWORD

    @property
    def shows(self) -> bool:
        """Whether it has a certificate of ours."""
        return self.spec.authentication.type is AuthenticationType.TLS

    @property
    def bears(self) -> bool:
        """Whether it has a token of ours."""
        return self.spec.authentication.type is AuthenticationType.TOKEN

    @property
    def token(self) -> TokenLook:
        """What there is of its token."""
        secret = self.secret.data.get(TOKEN, "") if self.secret is not None else ""
        return TokenLook(spec=self.spec, secret=secret, told=self.status.token, user=self.user)

    @property
    def ordered(self) -> bool:
        """Whether somebody has asked for another password or certificate."""
        asked = self.me.annotations.get(names.FORCE_RENEW, "")
        return bool(asked) and asked != self.status.renewed

    @property
    def notes(self) -> Mapping[str, str]:
        """What is noted beside a certificate."""
        return self.secret.notes if self.secret is not None and self.shows else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPlan(ClaimPlan[UserAct, UserStatus]):
    """What is done now; `act` is not used: `acts` follow each other until one fails."""

    acts: tuple[UserAct, ...] = ()
    renews: bool = False
    """Whether the user gets another password, certificate or token by it."""


def plan(look: UserLook, now: datetime, *, fresh: str, release_after_s: float) -> UserPlan:
    """Return what is to be done now; `fresh`: a password that nobody has had."""
    if look.me.deleting:
        return _leaving(look, now, release_after_s)
    if (found := still(look)) is not None:
        return UserPlan(findings=(found.finding,), hold=found.hold)
    return replace(_settle(look, now, fresh), hold=held(look))


def _leaving(look: UserLook, now: datetime, release_after_s: float) -> UserPlan:
    """Delete the user before the resource goes.

    It is deleted whatever a list says: a member that is behind may not know the user yet.
    """
    going = leave(
        look.me,
        wanted=look.spec.deletion_policy == "Delete" and look.status.user_name is not None,
        refusal=look.refusal,
        claimed=look.owner is not None,
        exists=True if look.listed else None,
        now=now,
        release_after_s=release_after_s,
    )
    if going is None:
        return UserPlan()
    if going.delete:
        return UserPlan(acts=(DeleteUser(),), findings=(going.finding,))
    return UserPlan(release=going if going.release else None, findings=(going.finding,))


def _settle(look: UserLook, now: datetime, fresh: str) -> UserPlan:
    if not look.listed:
        return _refused("ClusterNotReady", "No broker answers.")
    if (look.signs or look.shows or look.bears) and look.name == ANONYMOUS:
        text = "anonymous is every client without credentials: set authentication.type External."
        return _refused("InvalidSpec", text)
    if look.status.user_name is None:
        # Written down first: whatever of it brokers get goes when the resource does.
        return UserPlan(record=replace(look.status, user_name=look.name))
    revoked = () if look.bears else tuple(RevokeToken(one.number) for one in tokens.ours(look.user))
    if (refused := _refusal(look)) is not None:
        # Its tokens end whatever is missing of what follows them.
        return UserPlan(acts=revoked, findings=(refused.finding,))
    acts, renews = _proved(look, now, fresh)
    mark = fingerprint(wanted(look))
    found = tuple(_said(look))
    return UserPlan(acts=(*revoked, *acts), renews=renews, findings=found, applies=mark)


def _refusal(look: UserLook) -> ContentRefusal | None:
    """Return what is missing of how the user proves itself; None: nothing is."""
    if look.secret is not None and not look.secret.ours:
        text = f"Secret {look.secret_name} exists and has another owner."
        return ContentRefusal("SecretNotOurs", text)
    reference = look.spec.authentication.password_secret_ref
    if look.signs and reference is not None and look.given is None:
        text = f"There is no Secret {reference.name} with an entry {reference.key}."
        return ContentRefusal("SecretMissing", text)
    if look.shows and look.signer is None:
        return ContentRefusal("ClientsAuthorityMissing", look.unsigned)
    return None


def _refused(reason: str, text: str) -> UserPlan:
    return UserPlan(findings=(ContentRefusal(reason, text).finding,))


def wanted(look: UserLook) -> dict[str, Any]:
    """Return what the user is to be, without its password, as brokers take it."""
    rules = [rule_of(acl) for acl in look.spec.authorization.acls]
    quotas: dict[str, int] = to_json(look.spec.quotas)
    if look.name == ANONYMOUS:
        return {"rules": rules, "quotas": quotas}
    return {"rules": rules, "quotas": quotas, "super": look.is_super, "enabled": True}


def rule_of(acl: Acl) -> dict[str, Any]:
    """Return a rule in the form in which brokers show it."""
    resource: dict[str, Any] = {"type": acl.resource.type.value}
    if acl.resource.type is not ResourceType.CLUSTER:
        resource["name"] = acl.resource.name or ""
        if acl.resource.pattern_type is PatternType.PREFIX:
            resource["patternType"] = PatternType.PREFIX.value
    named = {operation.value for operation in acl.operations}
    operations = EVERY_OPERATION if AclOperation.ALL in acl.operations else sorted(named)
    rule = {"effect": acl.effect.value, "resource": resource, "operations": list(operations)}
    return rule | ({"hosts": list(acl.hosts)} if acl.hosts else {})


def _proved(look: UserLook, now: datetime, fresh: str) -> tuple[list[UserAct], bool]:
    """Return what is done about the user and what it proves itself by, and whether it gets another
    way to prove itself."""
    have = dict(look.secret.data) if look.secret else {}
    if not look.signs:
        acts: list[UserAct] = []
        if _differs(look) or (look.user is not None and look.user.has_password):
            without = {} if look.name == ANONYMOUS else {"password": None}
            acts.append(PutUser(wanted(look) | without))
        entries = _entries(look, None)
        if look.signer is not None and look.shows:
            return _shown(look, look.signer, acts, entries, now)
        if look.bears:
            return _borne(look, acts, entries, now)
        return acts + _written(have, entries), False
    current, coming = have.get(PASSWORD), have.get(NEXT)
    if look.spec.authentication.password_secret_ref is not None:
        assert look.given is not None, "the plan ended above"
        coming = look.given if look.given != current else None
        return _changes(look, have, current, coming, written_first=False), coming is not None
    if coming is None and (current is None or _is_due(look, now)):
        coming = fresh
    return _changes(look, have, current, coming, written_first=True), coming is not None


def _shown(
    look: UserLook, by: UserSigner, acts: list[UserAct], entries: dict[str, str], now: datetime
) -> tuple[list[UserAct], bool]:
    """Return what is done about a user with a certificate: brokers know it first."""
    needed = certifying.need(look.secret, by, look.spec, look.name, ordered=look.ordered, now=now)
    if needed is CertificateNeed.ISSUE:
        return [*acts, WriteSecret(entries, issues=True)], True
    assert look.secret is not None, "it has a certificate"
    have = look.secret.data
    entries |= {entry: have[entry] for entry in (CERTIFICATE, KEY)}
    if needed is CertificateNeed.NOTE:
        notes = certifying.noted(look.notes, by, now)
        return [*acts, WriteSecret(entries, notes)], False
    return acts + [replace(one, notes=look.notes) for one in _written(have, entries)], False


def _borne(
    look: UserLook, acts: list[UserAct], entries: dict[str, str], now: datetime
) -> tuple[list[UserAct], bool]:
    """Return what is done about a user with a token, which brokers have before its Secret does."""
    if tokens.is_due(look.token, ordered=look.ordered, now=now):
        body = tokens.request_of(look.token, ordered=look.ordered)
        return [*acts, IssueToken(body, entries)], True
    assert look.secret is not None, "it has a token"
    entries[TOKEN] = look.secret.data[TOKEN]
    return acts + _written(look.secret.data, entries), False


def _changes(
    look: UserLook,
    have: Mapping[str, str],
    current: str | None,
    coming: str | None,
    *,
    written_first: bool,
) -> list[UserAct]:
    """Return the way from `current` to `coming`, or what is missing of `current`."""
    password = coming or current
    assert password is not None, "one of them is there"
    acts: list[UserAct] = []
    entries = _entries(look, password)
    if coming is not None:
        before = _entries(look, current) | {NEXT: coming}
        if written_first:
            acts += _written(have, before)
        overlap_s = round(look.spec.authentication.overlap.seconds)
        acts.append(PutUser(_with_password(look, coming) | {"formerSeconds": overlap_s}))
        return [*acts, WriteSecret(entries)]
    confirmed = look.secret is not None and look.secret.version == look.status.credentials_version
    if not confirmed or look.user is None or not look.user.signs:
        acts.append(PutUser(_with_password(look, password)))
    elif _differs(look):
        acts.append(PutUser(wanted(look)))
    return acts + _written(have, entries)


def _written(have: Mapping[str, str], entries: Mapping[str, str]) -> list[WriteSecret]:
    """Return what makes a Secret have these entries; nothing where it has them."""
    gone = any(name in have and name not in entries for name in CHANGING)
    differs = any(have.get(name) != value for name, value in entries.items())
    return [WriteSecret(entries)] if gone or differs else []


def _with_password(look: UserLook, password: str) -> dict[str, Any]:
    return wanted(look) | {"password": password, "signs": True}


def _entries(look: UserLook, password: str | None) -> dict[str, str]:
    """Return what the Secret has for clients."""
    found = dict(look.connection)
    if look.name != ANONYMOUS:
        found[USERNAME] = look.name
    if password is not None:
        found[PASSWORD] = password
    return found


def _differs(look: UserLook) -> bool:
    """Whether brokers have something else than the resource says; of passwords nobody can say."""
    user, whole = look.user, wanted(look)
    if look.status.applied_hash != fingerprint(whole):
        return True
    if user is None:
        # Who has no rules and no credentials is shown to nobody.
        return look.name != ANONYMOUS or bool(whole["rules"] or whole["quotas"])
    if (list(user.rules), user.quotas) != (whole["rules"], whole["quotas"]):
        return True
    return look.name != ANONYMOUS and (user.is_super, user.enabled) != (look.is_super, True)


def _is_due(look: UserLook, now: datetime) -> bool:
    """Whether the password is to be replaced."""
    if look.ordered:
        return True
    due = next_rotation(look.spec, look.status)
    return due is not None and due <= now


def next_rotation(spec: UserSpec, status: UserStatus) -> datetime | None:
    """Return when what it proves itself by is to be replaced; None: never by itself."""
    if status.certificate is not None and spec.authentication.type is AuthenticationType.TLS:
        return certifying.renewed_at(status.certificate, spec)
    if status.token is not None and spec.authentication.type is AuthenticationType.TOKEN:
        return certifying.renewed_at(status.token, spec)
    every, last = spec.authentication.rotate_every, status.last_rotation
    if every is None or last is None or spec.authentication.password_secret_ref is not None:
        return None
    return parsed(last) + timedelta(seconds=every.seconds)


def next_look(look: UserLook) -> datetime | None:
    """Return when something is due that nobody else tells of; None: nothing is."""
    moments = [next_rotation(look.spec, look.status)]
    if look.signer is not None:
        moments.append(certifying.follows_at(look.notes, look.signer))
    if look.bears:
        moments.append(tokens.next_look(look.token))
    return min((moment for moment in moments if moment is not None), default=None)


def _said(look: UserLook) -> list[ConditionFinding]:
    found = [ready("InSync")]
    if not look.checked:
        text = "The cluster has no authorization: its brokers do not check rights."
        found.append(holds("Warning", "AuthorizationOff", text))
    elif look.bears and look.connection.get("admin", "").startswith("http:"):
        text = "The cluster has no certificates: who sees the network can read the token."
        found.append(holds("Warning", "TokenInTheClear", text))
    return found


def status_of(
    look: UserLook,
    planned: UserPlan,
    now: datetime,
    *,
    version: str | None = None,
    notes: Mapping[str, str] | None = None,
    token: UserToken | None = None,
    problem: ContentRefusal | None = None,
) -> UserStatus:
    """Return the status after a look.

    `version` and `notes`: those of the Secret, once all acts have succeeded; `token`: one that was
    made; `problem`: why an act has not succeeded.
    """
    before = planned.record or look.status
    found = [*planned.findings, *([problem.finding] if problem else ())]
    new = replace(
        before,
        observed_generation=look.me.generation,
        conditions=conditions(found, look.status.conditions, look.me.generation, now),
    )
    if planned.applies is None or problem is not None:
        return new
    asked = look.me.annotations.get(names.FORCE_RENEW, "")
    new = replace(
        new,
        applied_hash=planned.applies,
        secret_name=look.secret_name,
        binding=Binding(name=look.secret_name),
        credentials_version=version if look.signs else None,
        renewed=asked or None,
        certificate=certifying.told(notes or {}),
        token=(token or look.token.current) if look.bears else None,
    )
    if planned.renews:
        count = before.credentials_generation + 1
        new = replace(new, credentials_generation=count, last_rotation=written(now))
    due = next_rotation(look.spec, new)
    return replace(new, next_rotation=written(due) if due else None)
