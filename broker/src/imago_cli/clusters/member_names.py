"""How people name a member of a shard: by its slot, its replica number, its name or its uuid.

The replica number belongs to a data folder and is never given again; the slot belongs to the
broker, and stays when its folder is lost.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from imago_cli.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX_CHARS_MIN = 4
"""Shorter beginnings of a uuid could be numbers."""


def member_named(shard: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the one live member that is meant; CommandError lists what there is."""
    found: list[dict[str, Any]] = [m for m in shard["members"] if name in _names(shard, m)]
    if not found and len(name) >= PREFIX_CHARS_MIN:
        found = [member for member in shard["members"] if member["uuid"].startswith(name)]
    if len(found) == 1:
        return found[0]
    problem = f"{name} is more than one member of" if found else f"no live member {name} in"
    listed = "; ".join(map(_described, found or shard["members"])) or "none"
    raise CommandError(f"{problem} {shard['name']}", cure=f"live members: {listed}")


def _names(shard: Mapping[str, Any], member: Mapping[str, Any]) -> Iterator[str]:
    slot = member.get("slot", member["replica"])
    yield member["uuid"]
    yield str(member["replica"])
    yield str(slot)
    yield f"{shard['name']}-{slot}"
    if slot == 0:
        yield str(shard["name"])
    host = str(member.get("address", ""))
    yield host
    if not _is_address(host):
        yield host.partition(".")[0]  # a pod's


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _described(member: Mapping[str, Any]) -> str:
    slot = member.get("slot", member["replica"])
    return f"slot {slot} (replica {member['replica']}, uuid {member['uuid']}, {member['rocketmq']})"
