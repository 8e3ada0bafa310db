"""Users and their rules as mqadmin of RocketMQ 5 administers them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from imago_broker.errors import RequestError as ServiceError
from imago_broker.model.access.users import User
from imago_broker.processors.rocketmq import rules
from imago_broker.processors.rocketmq.access.policies import (
    acl_info,
    resource_of,
    rules_of,
    with_rules,
)
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.service.access.access_drafts import came_from_elsewhere
from imago_broker.service.access.access_edits import Actor
from imago_broker.service.access.access_records import RULES_KIND, USER_KIND
from imago_wire.remoting import fastjson
from imago_wire.remoting.bodies.access import AclInfo, UserInfo
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.access import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from imago_broker.service.access.access import AccessService

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
TRUSTED = "(not checked)"
"""Whose changes nobody checks: access control is off, or the address is on the white list."""


def actor_of(exchange: Exchange) -> Actor:
    """Return whose request it is, for the audit log."""
    return Actor(exchange.user or TRUSTED, exchange.channel.peer)


def is_super(user: User | None) -> bool:
    """Whether a user may do everything."""
    return user is not None and user.is_super


def may_raise(exchange: Exchange, access: AccessService) -> bool:
    """Whether who asks may change users that may do everything: he is one, or is not checked."""
    return exchange.may_all or is_super(access.users.get(exchange.user or ""))


def refused_as(code: int, change: Callable[[], object]) -> None:
    """Make a change; what the service refuses is answered with this code and its words."""
    try:
        change()
    except ServiceError as error:
        raise RequestError(code, str(error)) from error


class UserAdmin:
    """The request codes 3001 to 3010."""

    def __init__(self, access: AccessService, *, cluster: str) -> None:
        self._access, self._cluster = access, cluster

    def create(self, exchange: Exchange) -> Reply:
        """AUTH_CREATE_USER: mqadmin asks all masters, and all have what one was asked for."""
        name = _name(exchange)
        info = UserInfo.decode(exchange.command.body)
        user = _changed(User(name=name), info)
        self._require_super(exchange, user.is_super, "create")
        if (old := self._access.users.get(name)) is not None:
            asked = (user.secret, user.is_super, user.enabled)
            if asked == (old.secret, old.is_super, old.enabled) and self._is_from_elsewhere(
                USER_KIND, name
            ):
                return OK
            raise rules.forbidden("The user is existed")
        if not user.secret:
            raise rules.forbidden("password can not be blank")
        self._put(exchange, user)
        return OK

    def update(self, exchange: Exchange) -> Reply:
        """AUTH_UPDATE_USER: what the body does not name stays."""
        name = _name(exchange)
        old = self._access.users.get(name)
        if old is None:
            raise rules.forbidden("The user is not exist")
        user = _changed(old, UserInfo.decode(exchange.command.body))
        self._require_super(exchange, user.is_super or old.is_super, "update")
        self._put(exchange, user)
        return OK

    def delete(self, exchange: Exchange) -> Reply:
        """AUTH_DELETE_USER: also one that is not there."""
        name = _name(exchange)
        old = self._access.users.get(name)
        self._require_super(exchange, is_super(old), "delete")
        self._access.delete_user(name, actor_of(exchange))
        return OK

    def show(self, exchange: Exchange) -> Reply:
        """AUTH_GET_USER: without its password; an empty body where there is none."""
        user = self._access.users.get(_name(exchange))
        return Reply(body=_info(user).encode()) if user is not None else OK

    def list_all(self, exchange: Exchange) -> Reply:
        """AUTH_LIST_USER: those with the filter in their names."""
        wanted = ListUsersRequestHeader.from_ext(exchange.ext).filter or ""
        users = self._access.users
        return Reply(body=_list(_info(users[n]) for n in sorted(users) if wanted in n))

    def create_acl(self, exchange: Exchange) -> Reply:
        """AUTH_CREATE_ACL: rules about the same resources are replaced, all others stay."""
        name = self._subject(CreateAclRequestHeader.from_ext(exchange.ext).subject)
        wanted = rules_of(AclInfo.decode(exchange.command.body), self._cluster)
        if name != "anonymous" and name not in self._access.users:
            raise rules.forbidden(f"The subject of User:{name} is not exist.")
        new = with_rules(self._access.rules.get(name, ()), wanted)
        by = actor_of(exchange)
        refused_as(ResponseCode.NO_PERMISSION, lambda: self._access.set_rules(name, new, by))
        return OK

    def delete_acl(self, exchange: Exchange) -> Reply:
        """AUTH_DELETE_ACL: the rules about one resource, or all."""
        header = DeleteAclRequestHeader.from_ext(exchange.ext)
        name = self._subject(header.subject)
        old = self._access.rules.get(name)
        if old is None:
            if self._is_from_elsewhere(RULES_KIND, name):
                return OK
            raise rules.forbidden("The acl is not exist.")
        left = []
        if header.resource:
            gone = resource_of(header.resource, self._cluster)
            left = [rule for rule in old if rule.resource != gone]
        self._access.set_rules(name, left, actor_of(exchange))
        return OK

    def _is_from_elsewhere(self, kind: str, name: str) -> bool:
        return came_from_elsewhere(self._access, kind, name)

    def show_acl(self, exchange: Exchange) -> Reply:
        """AUTH_GET_ACL: an empty body where the user has no rules."""
        name = self._subject(CreateAclRequestHeader.from_ext(exchange.ext).subject)
        found = self._access.rules.get(name)
        return Reply(body=acl_info(name, found, self._cluster).encode()) if found else OK

    def list_acls(self, exchange: Exchange) -> Reply:
        """AUTH_LIST_ACL: of the subjects, and about the resources, with the filters in them."""
        header = ListAclsRequestHeader.from_ext(exchange.ext)
        subject, resource = header.subject_filter or "", header.resource_filter or ""
        infos = [
            acl_info(name, found, self._cluster, resource)
            for name, found in sorted(self._access.rules.items())
            if subject in f"User:{name}"
        ]
        return Reply(body=_list(info for info in infos if info.policies))

    def _subject(self, text: str | None) -> str:
        kind, colon, name = (text or "").partition(":")
        if not text:
            raise rules.invalid("The subject is blank")
        if not colon or kind.lower() != "user" or not name:
            raise rules.forbidden("The subject type is null.")
        return name

    def _require_super(self, exchange: Exchange, concerned: bool, what: str) -> None:
        """Refuse what is about a super user to all who are none."""
        if concerned and not may_raise(exchange, self._access):
            text = f"The super user can only be {what} by super user"
            raise RequestError(ResponseCode.SYSTEM_ERROR, text)

    def _put(self, exchange: Exchange, user: User) -> None:
        by = actor_of(exchange)
        refused_as(ResponseCode.NO_PERMISSION, lambda: self._access.put_user(user, by))


def _name(exchange: Exchange) -> str:
    name = (CreateUserRequestHeader.from_ext(exchange.ext).username or "").strip()
    if not name:
        raise rules.invalid("The username is blank")
    return name


def _changed(user: User, info: UserInfo) -> User:
    if info.password:
        user = user.with_secret(info.password)
    if info.user_type:
        user = replace(user, is_super=_is(info.user_type, SUPER, NORMAL))
    if info.user_status:
        user = replace(user, enabled=_is(info.user_status, ENABLED, DISABLED))
    return user


def _is(text: str, yes: str, no: str) -> bool:
    if text.lower() not in (yes.lower(), no.lower()):
        raise rules.forbidden(f"{text!a:.40}: must be {yes} or {no}")
    return text.lower() == yes.lower()


def _list(infos: Iterable[AclInfo | UserInfo]) -> bytes:
    return fastjson.dump([info.to_json() for info in infos])


def _info(user: User) -> UserInfo:
    return UserInfo(
        username=user.name,
        user_type=SUPER if user.is_super else NORMAL,
        user_status=ENABLED if user.enabled else DISABLED,
    )
