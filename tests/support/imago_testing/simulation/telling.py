"""Events as lines that a person can follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from imago_broker.core.shard import effects as fx
from imago_broker.core.shard import events as ev
from imago_broker.model.registry.shard import Member, ShardState

if TYPE_CHECKING:
    from collections.abc import Iterable


def told(value: object) -> str:
    """Return an event, effect, frame or state in few words."""
    match value:
        case ShardState():
            leader = "nobody" if value.leader is None else _member(value.leader)
            former = f" former {_members(value.former)}" if value.former else ""
            forced = " UNCLEAN" if value.unclean else ""
            return (
                f"v{value.version}: epoch {value.epoch} of {leader}, in sync "
                f"{_members(value.in_sync)}{former}{forced} ({value.cause})"
            )
        case ev.ViewSeen():
            live = ", ".join(
                f"{uuid}@{info.incarnation}{' unclean' if info.unclean else ''}"
                f" ({info.log_epoch}, {info.log_end})"
                for uuid, info in sorted(value.live.items())
            )
            fresh = f"fresh #{value.ticket} " if value.ticket else ""
            return f"sees {fresh}{told(value.shard)}; live {live}"
        case ev.ProposalDone():
            return f"done #{value.ticket} {told(value.shard)}"
        case fx.Propose():
            return f"proposes #{value.ticket} after v{value.expected_version} {told(value.shard)}"
        case _:
            return str(value)


def _members(members: Iterable[Member]) -> str:
    return "{" + ", ".join(map(_member, members)) + "}"


def _member(member: Member) -> str:
    return f"{member.uuid}@{member.incarnation}"
