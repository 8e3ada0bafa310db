"""Files with users: what `imago user export` prints, and RocketMQ 4.9's `plain_acl.yml`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_cli.exits import CommandUsageError
from imago_cli.yaml_text import read

if TYPE_CHECKING:
    from pathlib import Path

PLAIN_ACL = ("accounts", "globalWhiteRemoteAddresses")
"""What `plain_acl.yml` has at its top."""


def read_users(file: Path) -> dict[str, Any]:
    """Return what a file of either kind has, in the form of `export`."""
    told = _tree(file)
    return _of_plain_acl(told) if any(key in told for key in PLAIN_ACL) else told


def _tree(file: Path) -> dict[str, Any]:
    told = read(file.read_text(encoding="utf-8"), file)
    if not isinstance(told, dict):
        raise CommandUsageError(f"{file}: holds no users")
    return told


def _of_plain_acl(told: dict[str, Any]) -> dict[str, Any]:
    from imago_broker.model.access.plain_acl import Account, account_rules, account_user
    from imago_broker.model.access.users import rules_to_json

    users = []
    for one in told.get("accounts") or ():
        account = Account(
            access_key=str(one.get("accessKey", "")),
            secret_key=str(one["secretKey"]) if "secretKey" in one else None,
            white_addresses=str(one.get("whiteRemoteAddress") or ""),
            admin=bool(one.get("admin", False)),
            default_topic=str(one.get("defaultTopicPerm") or "DENY"),
            default_group=str(one.get("defaultGroupPerm") or "DENY"),
            topics=list(map(str, one.get("topicPerms") or ())),
            groups=list(map(str, one.get("groupPerms") or ())),
        )
        try:
            user, rules = account_user(account, None), account_rules(account, ())
        except ValueError as error:
            raise CommandUsageError(f"account {account.access_key!r:.40}: {error}") from error
        users.append(
            {
                "name": user.name,
                "password": user.secret,
                "signs": True,
                "super": user.is_super,
                "whiteAddresses": user.white_addresses,
                "rules": rules_to_json(rules),
            }
        )
    return {"users": users, "whiteAddresses": told.get("globalWhiteRemoteAddresses") or []}
