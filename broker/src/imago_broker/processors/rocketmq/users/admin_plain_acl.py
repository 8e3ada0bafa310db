"""Accounts as mqadmin of RocketMQ 4.9 administers them, over the same users and rules."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from imago_broker.errors import RequestError as ServiceError
from imago_broker.model.access.plain_acl import Account, account_rules, account_user
from imago_broker.processors.rocketmq.exchange import OK, Exchange, Reply, RequestError
from imago_broker.processors.rocketmq.users.admin_users import actor_of, is_super, may_raise
from imago_broker.service.access.access_drafts import came_from_elsewhere
from imago_broker.service.access.access_records import USER_KIND
from imago_wire.errors import in_our_words
from imago_wire.remoting.bodies.config import DataVersion
from imago_wire.remoting.codes import ResponseCode
from imago_wire.remoting.headers.access import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

if TYPE_CHECKING:
    from imago_broker.processors.rocketmq.identity import RocketmqIdentity
    from imago_broker.service.access.access import AccessService

SOURCE = "IMAGO_META"
"""Stands where tools show the path of a file: it is a topic of the log."""


class PlainAclAdmin:
    """The request codes 50 to 53."""

    def __init__(self, access: AccessService, identity: RocketmqIdentity) -> None:
        self._access, self._identity = access, identity

    def update(self, exchange: Exchange) -> Reply:
        """UPDATE_AND_CREATE_ACL_CONFIG: what is not given stays as it is."""
        header = CreateAccessConfigRequestHeader.from_ext(exchange.ext)
        account = Account(
            access_key=header.access_key,
            secret_key=header.secret_key or None,
            white_addresses=header.white_remote_address,
            admin=header.admin if "admin" in exchange.ext else None,
            default_topic=header.default_topic_perm or None,
            default_group=header.default_group_perm or None,
            topics=_listed(header.topic_perms),
            groups=_listed(header.group_perms),
        )
        old, by = self._access.users.get(account.access_key), actor_of(exchange)
        if (account.admin or is_super(old)) and not may_raise(exchange, self._access):
            raise _failed("an administrator's account is changed by administrators alone")
        try:
            user = account_user(account, old)
            rules = account_rules(account, self._access.rules.get(user.name, ()))
            self._access.put_account(user, rules, by)
        except (ValueError, ServiceError) as error:
            raise _failed(in_our_words(error)) from error
        return OK

    def delete(self, exchange: Exchange) -> Reply:
        """DELETE_ACL_CONFIG."""
        key = DeleteAccessConfigRequestHeader.from_ext(exchange.ext).access_key
        if is_super(self._access.users.get(key)) and not may_raise(exchange, self._access):
            raise RequestError(
                ResponseCode.DELETE_ACL_CONFIG_FAILED,
                "an administrator's account is deleted by administrators alone",
            )
        gone = self._access.delete_user(key, actor_of(exchange))
        # mqadmin asks all masters, and all have what one was asked for.
        if not gone and not came_from_elsewhere(self._access, USER_KIND, key):
            raise RequestError(
                ResponseCode.DELETE_ACL_CONFIG_FAILED,
                f"The accesskey[{key:.64}] corresponding to accessConfig has been deleted failed.",
            )
        return OK

    def set_white_addresses(self, exchange: Exchange) -> Reply:
        """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG."""
        header = UpdateGlobalWhiteAddrsConfigRequestHeader.from_ext(exchange.ext)
        listed = [part for each in header.global_white_addrs.split(",") if (part := each.strip())]
        if not may_raise(exchange, self._access):
            raise RequestError(
                ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
                "the white list is changed by administrators alone",
            )
        try:
            self._access.set_white_addresses(listed, actor_of(exchange))
        except ServiceError as error:
            raise RequestError(
                ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED, str(error)
            ) from error
        return OK

    def version(self, _: Exchange) -> Reply:
        """GET_BROKER_CLUSTER_ACL_INFO."""
        changed = self._access.changed_ms
        version = DataVersion(counter=changed, timestamp=changed).to_json()
        identity = self._identity
        header = GetBrokerAclConfigResponseHeader(
            version=json.dumps(version),
            all_acl_file_version=json.dumps({SOURCE: version}),
            broker_name=identity.broker_name,
            broker_addr=f"{identity.host}:{identity.port}",
            cluster_name=identity.cluster,
        )
        return Reply(ext=header.to_ext())


def _failed(reason: str) -> RequestError:
    return RequestError(ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED, reason)


def _listed(text: str | None) -> list[str] | None:
    return [part for each in text.split(",") if (part := each.strip())] if text else None
