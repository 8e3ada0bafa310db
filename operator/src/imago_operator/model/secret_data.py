"""Entries of Secrets."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def decoded(secret: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries of a Secret that are text."""
    found = {}
    for name, said in (secret.get("data") or {}).items():
        try:
            found[str(name)] = base64.b64decode(said, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return found


def coded(entries: Mapping[str, str]) -> dict[str, str]:
    """Return entries as a manifest has them."""
    return {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}
