"""What a cluster with access control needs besides: an administrator's token, made once."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING, Any

from imago_cli.clusters.admin_http import TOKEN_VARIABLE
from imago_cli.output import say

if TYPE_CHECKING:
    from pathlib import Path

TOKEN_FILE = "admin-token"  # noqa: S105  a file's name


def with_token(base: dict[str, Any], data: Path) -> dict[str, Any]:
    """Return the settings with a token's file, where access control is on and names none."""
    wanted = str(base.get("acl", {}).get("enabled", "")).lower() == "true"
    admin = base.get("admin", {})
    if not wanted:
        return base
    token = str(admin.get("token_file", "") or data / TOKEN_FILE)
    if not admin.get("token_file"):
        _make(data / TOKEN_FILE)
        say(f"access control is on: administer with {TOKEN_VARIABLE}={token}")
    return {**base, "admin": {**admin, "token_file": token}}


def use_token(base: dict[str, Any]) -> None:
    """Have this process send its brokers the token of their settings."""
    if token := base.get("admin", {}).get("token_file", ""):
        os.environ.setdefault(TOKEN_VARIABLE, str(token))


def _make(path: Path) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(number, "w", encoding="ascii") as file:
        file.write(f"{secrets.token_urlsafe(32)}\n")
