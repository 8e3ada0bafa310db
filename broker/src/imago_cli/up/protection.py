"""A cluster that was protected is not opened because a setting was forgotten at a later start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from imago_broker.config import ConfigError
from imago_broker.config.loading import parse_tree
from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Protection(NamedTuple):
    """A setting that keeps strangers out, and what is open to them without it."""

    section: str
    key: str
    value: object
    without: str
    other: str
    """How to say that this is what one wants."""


PROTECTIONS = (
    Protection("acl", "enabled", True, "anybody could read, write and administer", "false"),
    Protection("tls", "mode", "enforcing", "its ports would answer without TLS", "permissive"),
)


def refuse_less(before: Path, base: Mapping[str, Any]) -> None:
    """UsageError where settings say nothing of a protection that the last start had.

    `before`: the configuration that a broker of this cluster was started with last, if any.
    """
    try:
        former = parse_tree(before.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError):
        return
    for section, key, value, without, other in PROTECTIONS:
        had = former.get(section, {}).get(key) == value
        if had and key not in base.get(section, {}):
            raise CommandUsageError(
                f"this cluster was started with {section}.{key}={_shown(value)}, and {without} now",
                cure="give the same --config and --set as before, or"
                f" --set {section}.{key}={other} if that is what you want",
            )


def _shown(value: object) -> str:
    return str(value).lower()
