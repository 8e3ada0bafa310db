"""Lists of addresses in the form of RocketMQ 4.9's plain access control.

`10.1.2.3`, `10.1.2.*`, `10.1.2-5.*`, `10.1.2.{3,4}`, `*` for all; the same with groups of IPv6.
An entry may hold several, with commas.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING

from imago_wire.errors import WrongError

if TYPE_CHECKING:
    from collections.abc import Iterable

ENTRIES_MAX = 1000
ENTRY_SIZE_MAX = 1024
_SET = re.compile(r"^(.*)\{([^{}]*)\}$")
_PART = re.compile(r"\*|[0-9]{1,3}(?:-[0-9]{1,3})?", re.ASCII)
_GROUP = re.compile(r"\*|[0-9a-fA-F]{1,4}(?:-[0-9a-fA-F]{1,4})?", re.ASCII)
_SPLIT = re.compile(r",(?![^{]*\})")


def list_problem(addresses: Iterable[str]) -> str | None:
    """Return why this cannot be a list, or None."""
    given = list(addresses)
    if len(given) > ENTRIES_MAX:
        return f"{len(given)} addresses, at most {ENTRIES_MAX}"
    for entry in given:
        if len(entry) > ENTRY_SIZE_MAX or not _is_entry(entry):
            return f"{entry!a:.80} is no address: 10.1.2.3, 10.1.2.*, 10.1.2.3-9, 10.1.2.{{3,4}}"
    return None


def _is_entry(entry: str) -> bool:
    try:
        return bool(_patterns(entry))
    except ValueError:
        return False


def is_listed(address: str, addresses: Iterable[str]) -> bool:
    """Whether an address is one of these; an entry that cannot be read names none."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return any(_is_in(mapped or found, entry) for entry in addresses)


def _is_in(address: IPv4Address | IPv6Address, entry: str) -> bool:
    try:
        patterns = _patterns(entry)
    except ValueError:
        return False
    v4 = isinstance(address, IPv4Address)
    parts = (
        list(address.packed) if v4 else [int(group, 16) for group in address.exploded.split(":")]
    )
    return any(
        of_v4 in (None, v4)
        and all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=False))
        for of_v4, ranges in patterns
    )


_Ranges = tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def _patterns(entry: str) -> tuple[tuple[bool | None, _Ranges], ...]:
    """Return the ranges of an entry's parts; whether it is IPv4, None: all addresses."""
    found: list[tuple[bool | None, _Ranges]] = []
    for one in filter(None, map(str.strip, _SPLIT.split(entry))):
        several = _SET.match(one)
        ends = several[2].split(",") if several else [""]
        start = several[1] if several else one
        found += [_pattern(f"{start}{end.strip()}") for end in ends]
    return tuple(found)


def _pattern(text: str) -> tuple[bool | None, _Ranges]:
    if text == "*":
        return None, ()
    if ":" in text:
        return False, _of_v6(text)
    parts = text.split(".")
    if len(parts) != 4 or not all(map(_PART.fullmatch, parts)):
        raise WrongError(text)
    return True, tuple(_range(part, 10, 255) for part in parts)


def _of_v6(text: str) -> _Ranges:
    if "*" not in text and "-" not in text:
        exploded = IPv6Address(text).exploded.split(":")
        return tuple(_range(part, 16, 0xFFFF) for part in exploded)
    head, gap, tail = text.partition("::")
    before, after = head.split(":") if head else [], tail.split(":") if tail else []
    missing = 8 - len(before) - len(after)
    if missing < 0 or (missing > 0) != bool(gap):
        raise WrongError(text)
    groups = [*before, *["0"] * missing, *after]
    if not all(map(_GROUP.fullmatch, groups)):
        raise WrongError(text)
    return tuple(_range(part, 16, 0xFFFF) for part in groups)


def _range(part: str, base: int, highest: int) -> tuple[int, int]:
    if part == "*":
        return 0, highest
    low, _, high = part.partition("-")
    ends = int(low, base), int(high or low, base)
    if not 0 <= ends[0] <= ends[1] <= highest:
        raise WrongError(part)
    return ends
