"""Limits per tenant as commands take and show them: `producer-bytes=1MiB`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from imago_cli.exits import CommandUsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NAMES = {
    "producer-bytes": "producerBytesPerSecond",
    "producer-requests": "producerRequestsPerSecond",
    "consumer-bytes": "consumerBytesPerSecond",
    "consumer-requests": "consumerRequestsPerSecond",
    "connections": "connections",
    "connections-per-address": "connectionsPerAddress",
    "topics": "topics",
    "queues": "queues",
    "groups": "groups",
}
"""Words of the commands, and what the admin interface calls them."""
LIMITS_HELP = ", ".join(NAMES)
_WORDS = {told: word for word, told in NAMES.items()}


def changed_limits(known: Mapping[str, int], wanted: Iterable[str]) -> dict[str, int]:
    """Return limits with what is wanted in place of what was: `NAME=NUMBER` or `NAME=none`."""
    from imago_broker.config.units import measured

    limits = dict(known)
    for text in wanted:
        word, _, value = text.partition("=")
        name = NAMES.get(word)
        if name is None or not value:
            raise CommandUsageError(
                f"{text!r} is no limit", cure=f"NAME=NUMBER or NAME=none: {LIMITS_HELP}"
            )
        if value == "none":
            limits.pop(name, None)
            continue
        number = int(value) if value.isascii() and value.isdecimal() else None
        if number is None and word.endswith("-bytes"):
            number = measured("bytes", value)
        if not number:
            raise CommandUsageError(f"{text!r} is no number above 0", cure=f"{word}=100")
        limits[name] = number
    return limits


def limits_text(limits: Mapping[str, int]) -> str:
    """Return limits in the words that `imago user limit` takes."""
    return " ".join(f"{_WORDS.get(name, name)}={number}" for name, number in limits.items())


def usage_text(usage: Mapping[str, Any]) -> str:
    """Return the use of limits on one broker."""
    if not usage:
        return "not known"
    parts = [f"throttled for {usage['throttledMs'] / 1000:.1f} s", f"{usage['refused']} refused"]
    if usage["connections"]:
        parts.append(f"{usage['connections']} connections")
    owed = ", ".join(
        f"{_WORDS.get(name, name)} for {ms} ms" for name, ms in usage["owedMs"].items()
    )
    return ", ".join([*parts, f"owes {owed}"] if owed else parts)
